"""The uris of records (spec 04 §11)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd.sessions.record_uri import RecordUri


@pytest.mark.parametrize(
    ("text", "project", "doc_id"),
    [
        ("maad://roads_2/nte-2031-001", "roads_2", "nte-2031-001"),
        ("maad://a/A.b_c-d", "a", "A.b_c-d"),
        ("maad://a/odd%20id%2F1", "a", "odd id/1"),
        ("maad://roads_2", "roads_2", None),
    ],
)
def test_a_uri_names_a_record_or_a_project(text, project, doc_id):
    uri = RecordUri.parse(text)
    assert uri == RecordUri(project, doc_id)
    assert str(uri) == text


def test_a_slash_behind_a_project_changes_nothing():
    assert RecordUri.parse("maad://roads/") == RecordUri("roads")


@pytest.mark.parametrize(
    "text",
    ["", "maad://", "maad:///x", "http://a/b", "maad://A/x", "maad://a/x/y", "maad://a/x?y", "a/b"],
)
def test_anything_else_is_refused_and_told_the_form(text):
    with pytest.raises(MaadError, match="maad://<project>/<docId>") as caught:
        RecordUri.parse(text)
    assert caught.value.code == "INVALID_ARGS"
