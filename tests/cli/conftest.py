"""`maad` as a child process, and a small project to run it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from maadd.cli.main import main

REGISTRY = """\
types:
  note:
    path: notes
    id_prefix: nt
    schema: note.v1
"""
SCHEMA = """\
type: note
version: 1
required: [doc_id, title]
fields:
  title: {type: string, index: true}
  stage: {type: enum, values: [draft, done], index: true}
  pages: {type: number, index: true}
  tags: {type: list, item_type: string, index: true}
"""
NOTES = {
    "nt-tide": "title: High tide\nstage: done\npages: 3\ntags: [sea, moon]\n",
    "nt-wind": "title: North wind = cold\nstage: draft\npages: 12\n",
    "nt-fog": "title: Fog\nstage: draft\npages: 1\n",
}


SUBJECT = "maad:create ast-1 [asset] — Pump"
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("MAAD_", "MAADD_", "GIT_"))
} | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
"""The environment without settings of whoever runs the tests."""


class Finished:
    """What a command left: exit code and both outputs."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Maad = Callable[..., Finished]


def command_line(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "maadd.cli", *arguments]


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Without settings of whoever runs the tests, and with a runtime directory of its own.

    Its path is short, so that socket names fit.
    """
    with tempfile.TemporaryDirectory(prefix="maadd-test-") as folder:
        yield CLEAN | {"MAADD_RUNTIME_DIR": f"{folder}/run"}


@pytest.fixture
def maad(tmp_path: Path, environment: dict[str, str]) -> Maad:
    """Runs `maad` in `tmp_path`, or in `cwd`, with more variables in `env`."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> Finished:
        process = subprocess.run(
            command_line(arguments),
            cwd=cwd or tmp_path,
            env=environment | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return Finished(process.returncode, process.stdout, process.stderr)

    return run


@pytest.fixture
def maad_here(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Maad:
    """As `maad`, in this process, which is faster."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> Finished:
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", environment | (env or {}))
            patch.chdir(cwd or tmp_path)
            capsys.readouterr()
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return Finished(code, out, err)

    return run


@pytest.fixture
def terminal(maad_here: Maad, monkeypatch: pytest.MonkeyPatch) -> Maad:
    """As `maad_here`, for a person at a terminal of 100 columns without colours, in UTC."""

    def run(*arguments: str) -> Finished:
        with monkeypatch.context() as patch:
            # rich keeps the environment that it was first imported in.
            patch.setattr("rich.console.Console._environ", {"NO_COLOR": "1", "COLUMNS": "100"})
            patch.setenv("TZ", "UTC")
            patch.setattr("maadd.cli.output.on_terminal", lambda: True)
            time.tzset()
            done = maad_here(*arguments)
        time.tzset()
        return done

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of three notes that was never indexed, without a repository."""
    root = tmp_path / "project"
    for folder in ("_registry", "_schema", "notes"):
        (root / folder).mkdir(parents=True)
    (root / "_registry/object_types.yaml").write_text(REGISTRY)
    (root / "_schema/note.v1.yaml").write_text(SCHEMA)
    for doc_id, fields in NOTES.items():
        write_note(root, doc_id, fields)
    return root


def write_note(root: Path, doc_id: str, fields: str) -> None:
    """A note as a person would write it."""
    head = f"doc_id: {doc_id}\ndoc_type: note\nschema: note.v1\n"
    (root / f"notes/{doc_id}.md").write_text(f"---\n{head}{fields}---\n\n# Note {{#top}}\n")


@pytest.fixture
def instance(tmp_path: Path, project: Path) -> Path:
    """An instance file that declares the project as `notes`, with ceiling writer."""
    path = tmp_path / "instance.yaml"
    path.write_text("name: desk\nprojects:\n  - {name: notes, path: ./project, role: writer}\n")
    return path


YARD_REGISTRY = """\
types:
  vendor: {path: vendors, id_prefix: ven, schema: vendor.v1}
  asset: {path: assets, id_prefix: ast, schema: asset.v1}
"""
YARD_SCHEMAS = {
    "vendor": """\
type: vendor
required: [doc_id, name]
fields:
  name: {type: string, index: true}
""",
    "asset": """\
type: asset
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  site: {type: enum, values: [north, south], index: true}
  vendor: {type: ref, target: vendor, index: true}
  parent: {type: ref, target: asset, index: true}
  weight: {type: number, index: true}
  due: {type: date, index: true}
  tags: {type: list, item_type: string, index: true}
template:
  headings: [{level: 2, text: Findings}]
""",
}
YARD_RECORDS = {
    "vendors/ven-seal": "name: Northern Seals\n",
    "vendors/ven-pump": "name: South Pumps\n",
    "assets/ast-1": (
        "name: Pump\nsite: north\nvendor: ven-seal\nweight: 12.5\ndue: 2031-02-03\ntags: [a, b]\n"
    ),
    "assets/ast-2": f"name: Valve {'that goes on ' * 10}\nsite: south\nvendor: ven-pump\n"
    "parent: ast-1\nweight: 3\n",
    "assets/ast-3": "name: Lost\nsite: south\nvendor: ven-none\nparent: ast-2\n",
}
YARD_BODY = "\n# About\n\nSeen by [[person:Ada|A]].\n\n## Findings {#found}\n\nSeal worn.\n"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An indexed project of three assets and two vendors, one reference broken; read it only."""
    root = tmp_path_factory.mktemp("yard")
    for name in ("_registry", "_schema", "assets", "vendors"):
        (root / name).mkdir()
    (root / "_registry/object_types.yaml").write_text(YARD_REGISTRY)
    for name, text in YARD_SCHEMAS.items():
        (root / f"_schema/{name}.v1.yaml").write_text(text)
    for path, fields in YARD_RECORDS.items():
        folder, doc_id = path.split("/")
        kind = folder.removesuffix("s")
        head = f"doc_id: {doc_id}\ndoc_type: {kind}\nschema: {kind}.v1\n"
        (root / f"{path}.md").write_text(f"---\n{head}{fields}---\n{YARD_BODY}")
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "."],
        ["git", "-c", "user.name=Ada", "-c", "user.email=a@example.org", "commit", "-qm", SUBJECT],
        command_line(["reindex"]),
    ):
        subprocess.run(command, cwd=root, env=CLEAN, check=True, capture_output=True)
    return root
