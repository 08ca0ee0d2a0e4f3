"""`maad_update` through an open project (spec 01 §13.2, 03 §4.2; traps 3-6, 40)."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest

HAND_WRITTEN = """\
---
# who she is
doc_id:   shp-hand
doc_type: ship
schema: ship.v1
name:     'Hand: made'   # a comment
tags:
  - one
  - two
tonnage: 1e3
note: no
---

# Hand

Text.


"""


@pytest.fixture
def ship(open_project: Any) -> Any:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "One", "tonnage": 5}, body="Text")
    return project


def commits(project: Any) -> int:
    count = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=project.root, check=True, capture_output=True
    )
    return int(count.stdout)


def test_given_fields_change_and_the_others_stay(ship: Any) -> None:
    data = ship.ok("maad_update", docId="shp-one", fields={"tonnage": 6})
    assert data["version"] == 2
    assert data["changedFields"] == ["tonnage"]
    frontmatter = ship.ok("maad_get", docId="shp-one", depth="cold")
    assert frontmatter["frontmatter"]["name"] == "One"
    assert frontmatter["frontmatter"]["tonnage"] == 6
    assert frontmatter["body"] == "Text"


def test_one_changed_field_changes_one_line(open_project: Any) -> None:
    project = open_project()
    (project.root / "ships").mkdir()
    (project.root / "ships/shp-hand.md").write_text(HAND_WRITTEN)
    assert project.ok("maad_reindex")["indexed"] == 1
    project.ok("maad_update", docId="shp-hand", fields={"tonnage": 2})
    before, after = HAND_WRITTEN.split("\n"), project.text("ships/shp-hand.md").split("\n")
    assert [(b, a) for b, a in zip(before, after, strict=True) if b != a] == [
        ("tonnage: 1e3", "tonnage: 2")
    ]


def test_an_unchanged_record_is_not_rewritten_and_not_committed(ship: Any) -> None:
    before = commits(ship)
    reply = ship.reply("maad_update", docId="shp-one", fields={"tonnage": 5})
    data = msgspec.json.decode(reply.body)
    assert data["version"] == 1
    assert data["changedFields"] == []
    assert reply.meta["history"]["outcome"] == "none"
    assert commits(ship) == before


def test_a_stale_version_is_refused_with_both_numbers(ship: Any) -> None:
    ship.ok("maad_update", docId="shp-one", fields={"tonnage": 6}, expectedVersion=1)
    error = ship.error("maad_update", docId="shp-one", fields={"tonnage": 7}, expectedVersion=1)
    assert error["code"] == "VERSION_CONFLICT"
    assert error["details"] == {"expected": 1, "actual": 2}


def test_a_stale_hash_is_refused(ship: Any) -> None:
    known = ship.ok("maad_get", docId="shp-one")["contentHash"]
    ship.ok("maad_update", docId="shp-one", fields={"tonnage": 6}, expectedHash=known)
    error = ship.error("maad_update", docId="shp-one", fields={"tonnage": 7}, expectedHash=known)
    assert error["code"] == "VERSION_CONFLICT"
    assert error["details"]["expectedHash"] == known


def test_an_edit_made_outside_is_a_version_of_its_own(ship: Any) -> None:
    path = ship.root / "ships/shp-one.md"
    path.write_text(path.read_text().replace("tonnage: 5", "tonnage: 50"))
    error = ship.error("maad_update", docId="shp-one", fields={"name": "Two"}, expectedVersion=1)
    assert error["details"] == {"expected": 1, "actual": 2}
    ship.ok("maad_update", docId="shp-one", fields={"name": "Two"}, expectedVersion=2)
    assert ship.ok("maad_get", docId="shp-one")["frontmatter"]["tonnage"] == 50


def test_a_body_is_replaced_appended_or_cleared(ship: Any) -> None:
    def file() -> str:
        return str(ship.text("ships/shp-one.md").split("---\n", 2)[2])

    ship.ok("maad_update", docId="shp-one", appendBody="More")
    assert file() == "\nText\n\nMore\n"
    ship.ok("maad_update", docId="shp-one", body="New")
    assert file() == "\nNew\n"
    ship.ok("maad_update", docId="shp-one", body="")
    assert file() == ""


def test_fences_in_a_body_are_text(ship: Any) -> None:
    ship.ok("maad_update", docId="shp-one", body="---\nname: Evil\n---\nrest")
    got = ship.ok("maad_get", docId="shp-one", depth="cold")
    assert got["frontmatter"]["name"] == "One"
    assert got["body"] == "---\nname: Evil\n---\nrest"


def test_body_and_append_together_are_refused(ship: Any) -> None:
    error = ship.error("maad_update", docId="shp-one", body="a", appendBody="b")
    assert error["code"] == "INVALID_FIELDS"


def test_unset_removes_a_field_but_no_required_one(ship: Any) -> None:
    data = ship.ok("maad_update", docId="shp-one", unsetFields=["tonnage"])
    assert data["changedFields"] == ["tonnage"]
    assert "tonnage" not in ship.text("ships/shp-one.md")
    error = ship.error("maad_update", docId="shp-one", unsetFields=["name"])
    assert error["code"] == "FRONTMATTER_GUARD"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"docId": "shp-none", "fields": {}}, "FILE_NOT_FOUND"),
        ({"docId": "shp-one", "fields": None}, "INVALID_FIELDS"),
        ({"docId": "shp-one", "fields": {"schema": "x"}}, "FRONTMATTER_GUARD"),
        ({"docId": "shp-one", "fields": {"name": ""}}, "FRONTMATTER_GUARD"),
        ({"docId": "shp-one", "fields": {"name": None}}, "VALIDATION_FAILED"),
        ({"docId": "shp-one", "fields": {"built": "2026-02-30"}}, "VALIDATION_FAILED"),
    ],
)
def test_what_breaks_a_rule_leaves_the_file_alone(
    ship: Any, args: dict[str, Any], code: str
) -> None:
    before = ship.text("ships/shp-one.md")
    assert ship.error("maad_update", **args)["code"] == code
    assert ship.text("ships/shp-one.md") == before


def test_a_file_that_does_not_parse_is_left_alone(ship: Any) -> None:
    path = ship.root / "ships/shp-one.md"
    broken = path.read_bytes().replace(b"name: One", b"name: [One")
    path.write_bytes(broken)
    error = ship.error("maad_update", docId="shp-one", fields={"tonnage": 6})
    assert error["code"] == "PARSE_ERROR"
    assert error["details"]["line"] >= 5
    assert path.read_bytes() == broken


def test_a_changed_identity_on_disk_is_refused(ship: Any) -> None:
    path = ship.root / "ships/shp-one.md"
    path.write_text(path.read_text().replace("schema: ship.v1", "schema: other.v1"))
    error = ship.error("maad_update", docId="shp-one", fields={"tonnage": 6})
    assert error["code"] == "FRONTMATTER_GUARD"


@pytest.mark.parametrize(
    ("key", "other"),
    [("doc_id: shp-one", "doc_id: shp-two"), ("doc_type: ship", "doc_type: voyage")],
)
def test_a_file_that_became_another_record_is_left_alone(ship: Any, key: str, other: str) -> None:
    path = ship.root / "ships/shp-one.md"
    path.write_text(path.read_text().replace(key, other))
    error = ship.error("maad_update", docId="shp-one", fields={"tonnage": 6})
    assert error["code"] == "FRONTMATTER_GUARD"
    assert ship.error("maad_delete", docId="shp-one")["code"] == "FRONTMATTER_GUARD"
    assert other in path.read_text()


def test_a_record_on_an_older_schema_stays_updatable(ship: Any) -> None:
    root = ship.root
    (root / "_schema/ship.v2.yaml").write_text(
        (root / "_schema/ship.v1.yaml").read_text().replace("version: 1", "version: 2")
    )
    registry = root / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().replace("ship.v1", "ship.v2"))
    reply = ship.reply("maad_update", docId="shp-one", fields={"tonnage": 6})
    assert reply.ok, reply.body
    assert "SCHEMA_DRIFT" in [w["code"] for w in reply.meta["warnings"]]
    assert "schema: ship.v1\n" in ship.text("ships/shp-one.md")


def test_a_broken_schema_refuses_writes_of_its_type_only(ship: Any) -> None:
    schema = ship.root / "_schema/voyage.v1.yaml"
    good = schema.read_text()
    schema.write_text(good + "\nfields: oops\n")
    error = ship.error("maad_create", docType="voyage", fields={"ship": "shp-one"})
    assert error["code"] in {"PARSE_ERROR", "SCHEMA_INVALID"}
    ship.ok("maad_update", docId="shp-one", fields={"tonnage": 8})
    assert ship.ok("maad_query", docType="voyage")["total"] == 0
    schema.write_text(good)
    ship.ok("maad_create", docType="voyage", fields={"ship": "shp-one"})


def test_a_record_over_the_size_limit_is_refused_before_it_is_written(open_project: Any) -> None:
    project = open_project(max_doc_bytes=400)
    project.ok("maad_create", docType="ship", fields={"name": "One"})
    error = project.error("maad_update", docId="shp-one", body="x" * 500)
    assert error["code"] == "DOC_TOO_LARGE"
    assert error["details"]["capBytes"] == 400
    assert "xxx" not in project.text("ships/shp-one.md")


def test_a_nested_map_survives_an_update_elsewhere(open_project: Any) -> None:
    project = open_project()
    project.ok(
        "maad_create", docType="ship", fields={"name": "One", "meta": {"a": 1, "b": "two, three"}}
    )
    project.ok("maad_update", docId="shp-one", fields={"tonnage": 6})
    assert project.ok("maad_get", docId="shp-one")["frontmatter"]["meta"] == {
        "a": 1,
        "b": "two, three",
    }


def test_a_reindex_tells_what_is_wrong_with_a_schema(ship: Any) -> None:
    schema = ship.root / "_schema/voyage.v1.yaml"
    schema.write_text(schema.read_text() + "\nfields: oops\n")
    errors = ship.ok("maad_reindex")["errors"]
    assert {error["code"] for error in errors} <= {"PARSE_ERROR", "SCHEMA_INVALID"}
    assert errors


def test_a_reindex_answer_holds_a_hundred_errors_and_their_number(open_project: Any) -> None:
    project = open_project()
    (project.root / "ships").mkdir()
    for number in range(120):
        (project.root / f"ships/shp-{number}.md").write_text("---\ndoc_type: barge\n---\n")
    data = project.ok("maad_reindex")
    assert len(data["errors"]) == 100
    assert data["errorsTotal"] == 120


def test_a_cursor_of_nonsense_is_named(ship: Any) -> None:
    assert ship.error("maad_validate", cursor="é")["details"] == {"field": "cursor"}
