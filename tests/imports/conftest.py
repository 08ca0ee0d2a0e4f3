"""Small sources of every kind, made where a test asks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from maadd_worker.imports.markdown_source import read_folder
from maadd_worker.imports.prepare import Prepared, planned_model, prepare
from maadd_worker.imports.propose import Place, propose
from maadd_worker.imports.source import Source
from maadd_worker.imports.table_source import read_table
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import parse_registry

EMPTY = Model(parse_registry({"types": {}}), {}, {})
NOWHERE = Place({}, {}, frozenset(), frozenset())

Write = Callable[[dict[str, str | bytes]], Source]


def read(path: Path) -> Source:
    """The source at a path."""
    if path.is_dir():
        return read_folder(str(path), max_bytes=100_000, progress=lambda _done, _all: None)
    return read_table(str(path), lambda _done, _all: None)


def ready(source: Source, links: str = "keep") -> tuple[object, Prepared]:
    """The proposed plan of a source, and its records."""
    plan = propose(source, NOWHERE, links).plan  # one of three words
    return plan, prepare(source, plan, planned_model(EMPTY, plan), {})


@pytest.fixture
def folder(tmp_path: Path) -> Write:
    """Makes a folder `notes` of files and reads it."""

    def make(files: dict[str, str | bytes]) -> Source:
        for name, content in files.items():
            path = tmp_path / "notes" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read(tmp_path / "notes")

    return make


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str, str | bytes], Source]:
    """Makes a table and reads it."""

    def make(name: str, content: str | bytes) -> Source:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read(path)

    return make


@pytest.fixture
def propose_and_prepare() -> Callable[..., tuple[object, Prepared]]:
    return ready
