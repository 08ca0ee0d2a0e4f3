"""Projects on disk for the tests of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.schema.model import Model, load_model

LIBRARY = {
    "_registry/object_types.yaml": """\
types:
  author:
    path: people/authors/
    id_prefix: aut
    schema: author.v1
  book:
    path: books
    id_prefix: bok
    schema: book.v2
extraction:
  subtypes:
    shelfmark: identifier
""",
    "_schema/author.v1.yaml": """\
type: author
version: 1
required: [doc_id, name]
fields:
  name: {type: string, index: true}
""",
    "_schema/book.v2.yaml": """\
---
type: book
required: [doc_id, title, author]
fields:
  title: {type: string, index: true, max_length: 40}
  author: {type: ref, target: author, index: true}
  printed: {type: date, store_precision: day}
template:
  headings:
    - {level: 1, text: "{{title}}", id: top}
    - {level: 2, text: Notes}
""",
}


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], ProjectRoot]]:
    """Writes the given files into a fresh project folder and opens it."""
    opened: list[ProjectRoot] = []

    def make(files: Mapping[str, str]) -> ProjectRoot:
        for path, text in files.items():
            target = tmp_path / "project" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        opened.append(ProjectRoot.open(str(tmp_path / "project")))
        return opened[-1]

    yield make
    for root in opened:
        root.close()


@pytest.fixture
def files() -> dict[str, str]:
    """The model files of a sound project of two types."""
    return dict(LIBRARY)


@pytest.fixture
def library(
    make_project: Callable[[Mapping[str, str]], ProjectRoot], files: dict[str, str]
) -> ProjectRoot:
    """The sound project, on disk."""
    return make_project(files)


@pytest.fixture
def library_model(library: ProjectRoot) -> Model:
    return load_model(library)
