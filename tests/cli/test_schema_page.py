"""`SCHEMA.md`: what it says, and when it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maadd.cli.schema_page import MARKER, schema_page, write_schema_page
from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.schema.model import load_model

REGISTRY = """\
types:
  person: {path: people, id_prefix: pe, schema: person.v1}
  visit: {path: visits, id_prefix: vi, schema: visit.v2, shard: 2}
extraction:
  subtypes:
    vessel: entity
"""
PERSON = "type: person\nversion: 1\nrequired: [doc_id, name]\nfields: {name: {type: string}}\n"
VISIT = """\
type: visit
version: 2
required: [doc_id, who, kind]
fields:
  who: {type: ref, target: person, index: true}
  kind: {type: enum, values: [call, "a|b"], index: true, default: call}
  also: {type: list, item_type: ref, target: person}
  on: {type: date, index: true, store_precision: day, role: created_at}
"""
PAGE = f"""\
{MARKER}
# Schema

Documents: 5. Types: person, visit.

## Types

| type | documents | id prefix | required |
|---|---|---|---|
| person | 2 | pe | name |
| visit | 3 | vi | who, kind |

## person

Prefix `pe`, schema `person.v1`, path `people/`.

| field | type | indexed | details |
|---|---|---|---|
| name | string |  | required |

## visit

Prefix `vi`, schema `visit.v2`, path `visits/`, folders of 2 hex digits.

| field | type | indexed | details |
|---|---|---|---|
| who | ref -> person | yes | required |
| kind | enum | yes | required, call / a\\|b, default call |
| also | list of ref -> person |  |  |
| on | date | yes | role created_at, format YYYY-MM-DD, to the day |

## Annotation types of this project

| type | primitive |
|---|---|
| vessel | entity |
"""
COUNTS = {"person": 2, "visit": 3}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[ProjectRoot]:
    (tmp_path / "_registry").mkdir()
    (tmp_path / "_schema").mkdir()
    (tmp_path / "_registry/object_types.yaml").write_text(REGISTRY)
    (tmp_path / "_schema/person.v1.yaml").write_text(PERSON)
    (tmp_path / "_schema/visit.v2.yaml").write_text(VISIT)
    opened = ProjectRoot.open(str(tmp_path))
    yield opened
    opened.close()


def test_the_page_describes_types_fields_and_annotation_types(root: ProjectRoot) -> None:
    assert schema_page(load_model(root), COUNTS) == PAGE


def test_an_empty_registry_has_a_page_too(root: ProjectRoot, tmp_path: Path) -> None:
    (tmp_path / "_registry/object_types.yaml").write_text("types: {}\n")
    assert schema_page(load_model(root), {}) == (
        f"{MARKER}\n# Schema\n\nDocuments: 0. Types: none yet.\n"
    )


def test_it_is_written_only_when_its_content_changed(root: ProjectRoot, tmp_path: Path) -> None:
    model = load_model(root)
    page = tmp_path / "SCHEMA.md"
    assert write_schema_page(root, model, COUNTS)
    written = page.stat()
    assert not write_schema_page(root, model, COUNTS)
    assert page.stat().st_mtime_ns == written.st_mtime_ns
    assert page.stat().st_ino == written.st_ino
    assert write_schema_page(root, model, {"person": 2, "visit": 4})
    assert "| visit | 4 |" in page.read_text()


def test_a_page_of_somebody_else_is_kept(root: ProjectRoot, tmp_path: Path) -> None:
    (tmp_path / "SCHEMA.md").write_text("# Our own notes\n")
    with pytest.raises(MaadError, match="rename it"):
        write_schema_page(root, load_model(root), COUNTS)
    assert (tmp_path / "SCHEMA.md").read_text() == "# Our own notes\n"
