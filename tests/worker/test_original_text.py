"""Records that keep the text of an existing file (`original` of the bulk tools)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

ODD_BODIES = {
    "no blank line, no final newline": "---\nname: A\n---\n# Text",
    "blank lines around": "---\nname: A\n---\n\n\n# Text\n\n\n",
    "CRLF": "---\r\nname: A\r\n---\r\n\r\n# Text\r\nmore\r\n",
    "mixed line ends": "---\nname: A\n---\n# Text\r\nmore\n\rand\r",
    "byte order mark": "\ufeff---\nname: A\n---\n# Text\n",
    "no frontmatter": "# Text\n\n---\n\nafter a rule\n",
    "only white space": "---\nname: A\n---\n \n\t\n",
    "fence without a line end": "---\nname: A\n---",
    "a later fence": "---\nname: A\n---\nx\n---\ny\n",
}


def body_of(text: str) -> str:
    """What stands behind the closing fence, by a rule that is not the product's."""
    text = text.removeprefix("\ufeff")
    if not text.startswith("---"):
        return text
    return text.split("\n---", 1)[1].partition("\n")[2]


@pytest.mark.parametrize("original", ODD_BODIES.values(), ids=ODD_BODIES)
def test_the_body_of_an_original_is_kept_byte_for_byte(open_project: Any, original: str) -> None:
    project = open_project()
    record = {"docType": "ship", "docId": "shp-a", "fields": {"name": "A"}, "original": original}
    data = project.ok("maad_bulk_create", records=[record])
    assert data["failed"] == []
    assert data["verification"]["mismatches"] == []
    written = (project.root / "ships/shp-a.md").read_bytes()
    assert body_of(written.decode()) == body_of(original)
    assert written.startswith(b"\xef\xbb\xbf") == original.startswith("\ufeff")
    assert data["succeeded"][0]["contentHash"] == hashlib.sha256(written).hexdigest()


def test_fields_of_an_original_keep_their_lines_and_comments(open_project: Any) -> None:
    project = open_project()
    original = "---\n# of the yard\nname:   'A'   # as painted\nextra: [1,2]\ngone: x\n---\nB\n"
    fields = {"name": "A", "tonnage": 7, "extra": [1, 2]}
    record = {"docType": "ship", "docId": "shp-a", "fields": fields, "original": original}
    project.ok("maad_bulk_create", records=[record])
    assert project.text("ships/shp-a.md") == (
        "---\ndoc_id: shp-a\ndoc_type: ship\nschema: ship.v1\n"
        "# of the yard\nname:   'A'   # as painted\ntonnage: 7\nextra: [1,2]\n---\nB\n"
    )


def test_an_original_that_cannot_be_read_fails_alone(open_project: Any) -> None:
    project = open_project()
    records = [
        {"docType": "ship", "docId": f"shp-{n}", "fields": {"name": "A"}, "original": text}
        for n, text in enumerate(["", "---\na: [\n---\n", "---\nnever closed\n", "fine"])
    ]
    records.append({**records[3], "docId": "shp-4", "body": "two texts"})
    data = project.ok("maad_bulk_create", records=records)
    assert [one["docId"] for one in data["succeeded"]] == ["shp-3"]
    codes = [one["code"] for one in data["failed"]]
    assert codes == ["PARSE_ERROR", "PARSE_ERROR", "PARSE_ERROR", "INVALID_FIELDS"]


def test_an_update_with_an_original_replaces_the_whole_record(open_project: Any) -> None:
    project = open_project()
    first = {"docType": "ship", "docId": "shp-a", "fields": {"name": "A", "tonnage": 1, "x": 1}}
    [made] = project.ok("maad_bulk_create", records=[{**first, "body": "old"}])["succeeded"]
    update = {
        "docId": "shp-a",
        "fields": {"name": "B"},
        "original": "---\nname: B\n---\r\n new\r\n",
        "expectedHash": made["contentHash"],
    }
    data = project.ok("maad_bulk_update", updates=[update])
    assert data["failed"] == []
    assert (project.root / "ships/shp-a.md").read_bytes() == (
        b"---\ndoc_id: shp-a\ndoc_type: ship\nschema: ship.v1\nname: B\n---\r\n new\r\n"
    )
    again = project.ok("maad_bulk_update", updates=[update])
    assert [one["code"] for one in again["failed"]] == ["VERSION_CONFLICT"]


def test_an_original_leaves_no_room_for_changes_of_parts(open_project: Any) -> None:
    project = open_project()
    record = {"docType": "ship", "docId": "shp-a", "fields": {"name": "A"}}
    project.ok("maad_bulk_create", records=[record])
    whole = {"docId": "shp-a", "fields": {"name": "B"}, "original": "text"}
    for part in ({"body": "x"}, {"appendBody": "x"}, {"unsetFields": ["tonnage"]}):
        data = project.ok("maad_bulk_update", updates=[{**whole, **part}])
        assert [one["code"] for one in data["failed"]] == ["INVALID_FIELDS"]
