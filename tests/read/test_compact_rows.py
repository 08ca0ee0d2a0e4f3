"""`maad_query` with `response_mode` columns: the page as a table (spec 02 §9)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError


@pytest.fixture(scope="module")
def yard(shared_project):
    shared_project.record("asset", "ast-1", "Old.", name="Pump", weight=4, tags=["a", "b"])
    shared_project.record("asset", "ast-2", "New.", name="Valve")
    shared_project.reindex()
    return shared_project


def table(project, **args):
    found = project.call("query", docType="asset", sortBy="docId", sortOrder="asc",
                         response_mode="columns", **args)  # fmt: skip
    assert "results" not in found.data
    return found


def test_every_row_has_a_value_for_every_column(yard):
    found = table(yard, fields=["weight", "name", "tags", "weight"], includeFilePath=True)
    assert found.data == {
        "total": 2,
        "columns": ["docId", "docType", "filePath", "weight", "name", "tags"],
        "rows": [
            ["ast-1", "asset", "assets/ast-1.md", "4", "Pump", ["a", "b"]],
            ["ast-2", "asset", "assets/ast-2.md", None, "Valve", None],
        ],
        "nextCursor": None,
    }


def test_columns_and_rows_say_the_same(yard):
    rows = yard.call(
        "query", docType="asset", sortBy="docId", sortOrder="asc", fields=["name"], limit=501
    )
    found = table(yard, fields=["name"], limit=501)
    assert [[row["docId"], row["docType"], row["fields"]["name"]] for row in rows.data["results"]] \
        == found.data["rows"]  # fmt: skip
    assert (found.data["limitClamped"], found.meta) == (rows.data["limitClamped"], rows.meta)
    assert found.outcome.rows == 2


def test_pages_are_walked_by_cursor_as_ever(yard):
    first = table(yard, limit=1)
    second = table(yard, limit=1, cursor=first.data["nextCursor"])
    assert [page.data["rows"][0][0] for page in (first, second)] == ["ast-1", "ast-2"]
    assert second.data["nextCursor"] is None


def test_content_stands_in_the_last_columns(yard):
    cold = table(yard, depth="cold", depthMaxResults=1)
    assert cold.data["columns"] == ["docId", "docType", "body"]
    assert [row[2] for row in cold.data["rows"]] == ["Old.", None]
    assert cold.meta["depth"] == {"depth": "cold", "hydrated": 1, "capped": True}
    full = table(yard, depth="full").data
    assert full["columns"][-1] == "composite"
    assert full["rows"][0][-1]["frontmatter"]["name"] == "Pump"


def test_an_empty_page_still_names_its_columns(yard):
    found = table(yard, filters={"name": "Nothing"}, fields=["name"]).data
    assert found == {
        "total": 0, "columns": ["docId", "docType", "name"], "rows": [], "nextCursor": None,
    }  # fmt: skip


def test_a_row_that_cannot_be_read_has_its_error_in_a_column(project):
    for doc_id in ("ast-1", "ast-2"):
        project.record("asset", doc_id, "Text.", name="Pump")
    project.reindex()
    (project.path / "assets/ast-2.md").unlink()
    found = table(project, depth="cold").data
    assert found["columns"] == ["docId", "docType", "body", "_hydrationError"]
    assert [row[2:] for row in found["rows"]] == [["Text.", None], [None, "FILE_READ_ERROR"]]


@pytest.mark.parametrize("mode", ["table", "", None, 1])
def test_other_modes_are_refused(yard, mode):
    with pytest.raises(MaadError) as refused:
        yard.call("query", docType="asset", response_mode=mode)
    assert refused.value.code == "INVALID_ARGS"
