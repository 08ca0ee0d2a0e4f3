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


def test_a_long_text_is_not_repeated_in_full():
    with pytest.raises(MaadError) as caught:
        RecordUri.parse("x" * 100_000)
    assert len(str(caught.value.wire())) < 1_000


@pytest.mark.parametrize("rest", ["", "/", "/nte-1", f"/{'x' * 128}"])
def test_what_may_be_watched(rest):
    RecordUri.parse(f"maad://a{rest}").check()


@pytest.mark.parametrize(
    "doc_id",
    ["%00", "%0A", "a%20b", "%ED%A0%80", "..", "-a", "a%2Fb", "nul", "x" * 129, "%41" * 40_000],
)
def test_an_id_that_no_record_can_have_is_refused(doc_id):
    with pytest.raises(MaadError, match="names no record that can be") as caught:
        RecordUri.parse(f"maad://a/{doc_id}").check()
    assert caught.value.code == "INVALID_ARGS"
    assert len(str(caught.value.wire())) < 1_000
