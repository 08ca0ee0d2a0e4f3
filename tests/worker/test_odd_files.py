"""Files as people leave them, met through the tools (known traps 1, 2, 4, 7, 12, 39, 41)."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

SHIP = "---\ndoc_id: {0}\ndoc_type: ship\nschema: ship.v1\nname: {1}\n---\n\nText"

BROKEN = {
    "colon": ("title: one: two", 3, "PARSE_ERROR"),
    "tab": ("\ttitle: x", 3, "PARSE_ERROR"),
    "star": ("title: *x", 3, "PARSE_ERROR"),
    "quote": ("title: 'x", 3, "PARSE_ERROR"),
    "deep": ("a: {b: {c: {d: 1}}}", 3, "YAML_PROFILE_VIOLATION"),
    "null": ("title:\ndoc_type: null", None, "UNKNOWN_TYPE"),
}
"""What stands in the third line, the line that is told, the code."""


def seen(root: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in root.rglob("*.md"))
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def test_each_broken_file_is_told_with_its_place_and_the_others_are_served(
    open_project: Any,
) -> None:
    project = open_project()
    ships = project.root / "ships"
    ships.mkdir()
    for number in range(200):
        (ships / f"shp-{number}.md").write_text(SHIP.format(f"shp-{number}", number))
    for name, (line, _, _) in BROKEN.items():
        (ships / f"{name}.md").write_text(f"---\ndoc_id: shp-{name}\n{line}\n---\n")
    for number in range(20):
        (ships / f"untyped-{number}.md").write_text("---\ntitle:\ndoc_type: null\n---\n")
    (ships / "empty.md").write_bytes(b"")
    before = seen(project.root)
    data = project.ok("maad_reindex")
    assert (data["scanned"], data["indexed"]) == (227, 200)
    told = {error["details"]["file"]: error for error in data["errors"]}
    assert len(told) == 27
    for name, (_, line, code) in BROKEN.items():
        error = told[f"ships/{name}.md"]
        assert error["code"] == code
        if line is not None:
            assert (error["location"]["line"], error["location"]["col"] > 0) == (line, True)
    assert told["ships/empty.md"]["code"] == "PARSE_ERROR"
    assert project.ok("maad_query", docType="ship")["total"] == 200
    # Nobody's file was touched, and the next run has the same to say.
    assert seen(project.root) == before
    assert project.ok("maad_reindex")["errors"] == data["errors"]


def test_names_that_differ_by_case_or_normal_form_are_records_of_their_own(
    open_project: Any,
) -> None:
    project = open_project()
    ships = project.root / "ships"
    ships.mkdir()
    composed = unicodedata.normalize("NFC", "é")
    files = {
        "shp-a": "shp-a", "SHP-A": "SHP-A", "shp-nfc": composed,
        "shp-nfd": unicodedata.normalize("NFD", composed),
    }  # fmt: skip
    for doc_id, stem in files.items():
        (ships / f"{stem}.md").write_text(SHIP.format(doc_id, doc_id))
    assert project.ok("maad_reindex")["indexed"] == 4
    for number, doc_id in enumerate(files):
        project.ok("maad_update", docId=doc_id, fields={"tonnage": number})
    for number, (doc_id, stem) in enumerate(files.items()):
        text = (ships / f"{stem}.md").read_text()
        assert f"doc_id: {doc_id}\n" in text
        assert f"tonnage: {number}\n" in text
    project.catch_up()
    assert project.git("status", "--porcelain") == ""


def test_a_text_that_looks_like_frontmatter_is_text(open_project: Any) -> None:
    project = open_project()
    body = "---\nname: Evil\ndoc_id: shp-evil\n---\nrest"
    project.ok("maad_create", docType="ship", fields={"name": "Ada"}, body=body)
    project.ok("maad_update", docId="shp-ada", appendBody="---\nx: 1\n---")
    project.ok("maad_reindex", force=True)
    got = project.ok("maad_get", docId="shp-ada", depth="cold")
    assert got["frontmatter"]["name"] == "Ada"
    assert got["body"] == f"{body}\n\n---\nx: 1\n---"
    assert project.ok("maad_summary")["totalDocuments"] == 1


def test_dates_stay_as_they_are_written(open_project: Any) -> None:
    project = open_project()
    schema = project.root / "_schema/ship.v1.yaml"
    schema.write_text(
        "type: ship\nversion: 1\nrequired: [doc_id, name]\nfields:\n"
        "  name: {type: string}\n  built: {type: date}\n"
        "  left: {type: date, format: loose}\n  back: {type: date, format: loose}\n"
    )
    written = {"left": "2031-02-03T04:05:06+05:30", "back": "2031-02-03T04:05:06-08:00"}
    project.ok("maad_create", docType="ship", fields={"name": "Ada", **written})
    project.ok("maad_update", docId="shp-ada", fields={"back": "2031-02-04T00:00:00+01:00"})
    text = project.text("ships/shp-ada.md")
    assert "2031-02-03T04:05:06+05:30" in text
    assert "2031-02-04T00:00:00+01:00" in text
    # A time in a field for days is kept whole, never cut to what would fit.
    project.ok("maad_update", docId="shp-ada", fields={"built": written["left"]})
    found = project.ok("maad_get", docId="shp-ada")["frontmatter"]
    assert (found["built"], found["left"]) == (written["left"], written["left"])


@pytest.mark.parametrize("mode", ["audit", "batch", "feed"])
def test_an_engine_with_nothing_to_do_asks_for_no_time(
    open_project: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known trap 18: nobody is woken for an idle project."""
    monkeypatch.setattr("maadd_worker.history.controller.CHECKPOINT_IDLE_S", 0.0)
    monkeypatch.setattr("maadd_worker.history.controller.MAINTENANCE_IDLE_S", 3600.0)
    project = open_project(mode)
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    project.ok("maad_flush")
    project.settle()
    wait = project.engine.settle(True)
    assert wait is None or wait > 60
