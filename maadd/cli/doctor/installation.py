"""Python, the packages, SQLite with its extensions, and Git."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator

import apsw

from maadd import __version__
from maadd.cli.doctor.check import Check, ok, problem, warning
from maadd_worker.history.command import GitTimeout, run_git
from maadd_worker.history.outcome import GitFailure

_PYTHON = (3, 11)
_SQLITE = (3, 51, 3)
_GIT = (2, 30)
_REINSTALL = "install maadd again: pip install --force-reinstall maadd"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def checks() -> Iterator[Check]:
    """Everything that the program needs besides a project."""
    yield _python()
    yield _packages()
    yield _sqlite()
    yield _full_text()
    yield _vectors()
    yield _git()


def _python() -> Check:
    text = f"{sys.version.split()[0]} ({sys.executable}), maadd {__version__}"
    if sys.version_info < _PYTHON:
        return problem("python", text, "use Python 3.11 or later")
    return ok("python", text)


def _packages() -> Check:
    try:
        needed = importlib.metadata.requires("maadd") or []
    except importlib.metadata.PackageNotFoundError:
        return warning("packages", "maadd runs from its sources, uninstalled", "pip install maadd")
    missing = []
    count = 0
    for requirement in needed:
        name = _NAME.match(requirement)
        if name is None or "extra ==" in requirement:
            continue
        count += 1
        try:
            importlib.metadata.version(name[0])
        except importlib.metadata.PackageNotFoundError:
            missing.append(name[0])
    if missing:
        return problem("packages", f"missing: {', '.join(missing)}", _REINSTALL)
    return ok("packages", f"all {count} that it needs are installed")


def _sqlite() -> Check:
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < _SQLITE:
        text = f"{version} can damage an index that several connections use"
        return problem("sqlite", text, "pip install --upgrade apsw")
    return ok("sqlite", f"{version}, by apsw {apsw.apsw_version()}")


def _full_text() -> Check:
    memory = apsw.Connection(":memory:")
    try:
        memory.execute("CREATE VIRTUAL TABLE t USING fts5(a, tokenize = 'trigram')")
    except apsw.Error as error:
        return problem("full text", f"SQLite has no FTS5: {error}", _REINSTALL)
    finally:
        memory.close()
    return ok("full text", "FTS5 works")


def _vectors() -> Check:
    try:
        import sqlite_vec
    except ImportError as error:
        return problem("vectors", f"sqlite-vec is missing: {error}", "pip install sqlite-vec")
    memory = apsw.Connection(":memory:")
    try:
        memory.enable_load_extension(True)
        memory.load_extension(sqlite_vec.loadable_path())
        version = memory.execute("SELECT vec_version()").get
    except apsw.Error as error:
        text = f"sqlite-vec cannot be loaded: {error}; semantic search will not work"
        return problem("vectors", text, "pip install --force-reinstall sqlite-vec")
    finally:
        memory.close()
    return ok("vectors", f"sqlite-vec {version} works")


def _git() -> Check:
    advice = "install Git, or serve projects without history (history mode off)"
    try:
        result = run_git("/", ["--version"], settings=())
    except (GitFailure, GitTimeout) as failure:
        return problem("git", str(failure), advice)
    text = result.stdout.decode("utf-8", "replace").strip()
    found = re.search(r"(\d+)\.(\d+)", text)
    if result.status != 0 or found is None:
        return problem("git", f"git --version failed: {result.complaint}", advice)
    if (int(found[1]), int(found[2])) < _GIT:
        return warning("git", f"{text} is old", "install Git 2.30 or later")
    return ok("git", text)
