"""Errors about registry and schema files tell where (spec 01 §2, §3, conventions)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadErrors
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.markdown.yaml_places import find_places
from maadd_worker.schema.model import load_model
from maadd_worker.schema.registry import REGISTRY_PATH
from tests.schema.conftest import LIBRARY

Make = Callable[[Mapping[str, str]], ProjectRoot]

SCHEMA = "_schema/author.v1.yaml"
TYPE_A = "types:\n  a: {path: a, id_prefix: aa, schema: author.v1}\n"
FIELDS = "type: author\nfields:\n"


def places(project: ProjectRoot) -> list[tuple[str, str, int, int]]:
    """Code, file, line and column of every error; details say the same as the location."""
    with pytest.raises(MaadErrors) as caught:
        load_model(project)
    found = []
    for error in caught.value.errors:
        where, details = error.location, error.details
        assert where is not None
        assert details is not None
        assert (details["line"], details["col"]) == (where.line, where.col)
        assert details["dependency" if error.code == "SCHEMA_INVALID" else "file"] == where.file
        found.append((error.code, where.file, where.line, where.col))
    return found


@pytest.mark.parametrize(
    ("text", "code", "line", "col"),
    [
        ("# nothing yet\n", "REGISTRY_INVALID", 1, 1),
        ("# a list\n- task\n", "REGISTRY_INVALID", 2, 1),
        ("extraction: {}\ntypes: [task]\n", "REGISTRY_INVALID", 2, 1),
        (f"{TYPE_A}  B: {{path: b, id_prefix: bb, schema: author.v1}}\n",
         "REGISTRY_INVALID", 3, 3),
        ("types:\n  a:\n    path: ../a\n    id_prefix: aa\n    schema: author.v1\n",
         "REGISTRY_INVALID", 3, 5),
        ("types:\n  a:\n    path: a\n    schema: author.v1\n", "REGISTRY_INVALID", 2, 3),
        (f"{TYPE_A}  b: {{path: b, id_prefix: aa, schema: author.v1}}\n",
         "DUPLICATE_PREFIX", 3, 16),
        ("types:\n  a: {path: a, id_prefix: aa, schema: author.v1, template: no.md}\n",
         "FILE_NOT_FOUND", 2, 50),
        ("types: {}\nextraction:\n  subtypes:\n    ticket: thing\n", "REGISTRY_INVALID", 4, 5),
        ("---\ntypes:\n  a: 5\n---\n", "REGISTRY_INVALID", 3, 3),
        ("types:\r\n  a: 5\r\n", "REGISTRY_INVALID", 2, 3),
    ],
)  # fmt: skip
def test_a_fault_of_the_registry_has_its_place(
    make_project: Make, text: str, code: str, line: int, col: int
) -> None:
    project = make_project({**LIBRARY, REGISTRY_PATH: text})
    assert places(project) == [(code, REGISTRY_PATH, line, col)]


@pytest.mark.parametrize(
    ("text", "line", "col"),
    [
        ("# empty\n", 1, 1),
        ("fields: {}\n", 1, 1),
        ("version: 1\ntype: 5\n", 2, 1),
        ("type: author\nrequired: [doc_id, nme]\nfields: {name: {type: string}}\n", 2, 20),
        ("type: author\nfields: [name]\n", 2, 1),
        (FIELDS + "  name: string\n", 3, 3),
        (FIELDS + "  name:\n    type: string\n    max_lenght: 5\n", 5, 5),
        (FIELDS + "  name: {index: true}\n", 3, 3),
        (FIELDS + "  name: {index: true, type: text}\n", 3, 23),
        (FIELDS + "  a: {type: string}\n  b:\n    type: ref\n    target: writer\n", 6, 5),
        (FIELDS + "  b:\n    type: ref\n", 3, 3),
        (FIELDS + "  b:\n    type: enum\n    values: []\n", 5, 5),
        (FIELDS + "  b:\n    type: number\n    max_length: 5\n", 5, 5),
        (FIELDS + "  b:\n    type: string\n    max_length: 0\n", 5, 5),
        (FIELDS + "  b: {type: string, max_length: 5, soft_max_length: 6}\n", 3, 36),
        (FIELDS + "  b: {type: date, store_precision: week}\n", 3, 19),
        (FIELDS + "  b: {type: date, on_finer: warn}\n", 3, 19),
        (FIELDS + "  ключ: {type: string}\n  b: {type: string, multiline: 5}\n", 4, 21),
    ],
)  # fmt: skip
def test_a_fault_of_a_schema_has_its_place(
    make_project: Make, text: str, line: int, col: int
) -> None:
    project = make_project({**LIBRARY, SCHEMA: text})
    assert places(project) == [("SCHEMA_INVALID", SCHEMA, line, col)]


def test_a_schema_that_is_missing_is_shown_where_the_registry_names_it(make_project: Make) -> None:
    text = "types:\n  a:\n    path: a\n    id_prefix: aa\n    schema: none.v1\n"
    project = make_project({**LIBRARY, REGISTRY_PATH: text})
    assert places(project) == [("SCHEMA_NOT_FOUND", REGISTRY_PATH, 5, 5)]


@pytest.mark.parametrize("file", [REGISTRY_PATH, SCHEMA])
def test_so_is_a_byte_that_is_no_text(make_project: Make, file: str) -> None:
    project = make_project(LIBRARY)
    path = Path(project.path, file)
    path.write_bytes(
        b"\xef\xbb\xbf# one\n" + "# zwei, öü\xff".encode("latin-1") + path.read_bytes()
    )
    path.write_bytes(path.read_bytes().replace(b"\xf6\xfc", "öü".encode()))
    assert places(project) == [("PARSE_ERROR", file, 2, 11)]


def test_the_text_says_the_place_too(make_project: Make) -> None:
    project = make_project({**LIBRARY, SCHEMA: FIELDS + "  name: string\n"})
    with pytest.raises(MaadErrors, match=f" {SCHEMA}:3:3: field"):
        load_model(project)


def test_every_key_and_item_has_a_place_and_what_an_alias_repeats_has_none() -> None:
    text = "\ufeff# top\na: &x\n  1: [p, {q: r}]\nb: *x\n'c d':\n- - e\n  - f\n"
    assert find_places(text, "f.yaml") == {
        (): (2, 1),
        ("a",): (2, 1),
        ("a", "1"): (3, 3),
        ("a", "1", 0): (3, 7),
        ("a", "1", 1): (3, 10),
        ("a", "1", 1, "q"): (3, 11),
        ("b",): (4, 1),
        ("c d",): (5, 1),
        ("c d", 0): (6, 3),
        ("c d", 0, 0): (6, 5),
        ("c d", 0, 1): (7, 5),
    }
