"""`maad` as a child process, and a small project to run it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
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
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAAD_", "MAADD_", "GIT_"))
    }
    with tempfile.TemporaryDirectory(prefix="maadd-test-") as folder:
        yield kept | {
            "MAADD_RUNTIME_DIR": f"{folder}/run",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }


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
    """As `maad`, in this process: for tables of cases that touch no engine."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> Finished:
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", environment | (env or {}))
            patch.chdir(tmp_path)
            capsys.readouterr()
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return Finished(code, out, err)

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
