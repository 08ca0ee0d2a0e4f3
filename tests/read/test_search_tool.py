"""maad_search: extracted objects, exact and by substring (spec 02 §4.3)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index import object_search as search_module


def found(answer):
    return [f"{row['docId']}:{row['value']}" for row in answer.data["results"]]


@pytest.fixture
def notes(project):
    project.record(
        "work_order",
        "wo-2",
        "[[person:Bo Lind|Bo]] paid [[price:1,250.00 USD|much]].\n\n## Costs\n\n[[rate:8%|8]]",
        title="50% off_road",
        hours=3,
    )
    project.record("work_order", "wo-1", "[[person:Ada Lind|Ada]]", title="50 percent offXroad")
    project.reindex()
    return project


def test_objects_are_listed_by_record_and_line_with_their_block(notes):
    answer = notes.call("search", primitive="entity", subtype="person")

    assert found(answer) == ["wo-1:Ada Lind", "wo-2:Bo Lind"]
    assert answer.data["total"] == 2
    assert answer.data["results"][1] == {
        "primitive": "entity",
        "subtype": "person",
        "value": "Bo Lind",
        "normalizedValue": "Bo Lind",
        "label": "Bo",
        "docId": "wo-2",
        "sourceLine": 8,
        "blockId": None,
    }


def test_normalized_values_are_texts_also_when_they_are_objects(notes):
    row = notes.call("search", primitive="amount").data["results"][0]

    assert row["normalizedValue"] == '{"amount":1250,"currency":"USD"}'


def test_an_annotation_knows_its_block(notes):
    assert notes.call("search", primitive="percentage").data["results"][0]["blockId"] == "costs"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "LIND"}, ["wo-1:Ada Lind", "wo-2:Bo Lind"]),
        ({"contains": "ada"}, ["wo-1:Ada Lind"]),
        ({"query": "bo", "contains": "ada"}, ["wo-2:Bo Lind"]),
        ({"query": "", "contains": "ada"}, ["wo-1:Ada Lind"]),
        ({"value": "Ada Lind"}, ["wo-1:Ada Lind"]),
        ({"value": "ada lind"}, []),
        ({"value": "Ada Lind", "query": "bo"}, []),
        ({"docId": "wo-2"}, ["wo-2:Bo Lind"]),
        ({"limit": 1, "offset": 1}, ["wo-2:Bo Lind"]),
        ({"offset": 9}, []),
    ],
)
def test_conditions_are_combined(notes, arguments, expected):
    answer = notes.call("search", primitive="entity", subtype="person", **arguments)
    assert found(answer) == expected


@pytest.mark.parametrize(("needle", "hits"), [("50%", 1), ("f_r", 1), ("\\", 0), ("o", 2)])
def test_wildcards_mean_themselves(notes, needle, hits):
    answer = notes.call("search", primitive="entity", subtype="title", query=needle)
    assert answer.data["total"] == hits


@pytest.mark.parametrize("field", ["subtype", "value", "query"])
def test_empty_texts_count_as_not_given(notes, field):
    everything = notes.call("search", primitive="entity").raw
    assert notes.call("search", primitive="entity", **{field: ""}).raw == everything


def test_a_deleted_record_has_no_objects(notes):
    notes.soft_delete("wo-1")
    assert found(notes.call("search", primitive="entity", subtype="person")) == ["wo-2:Bo Lind"]


def test_an_unknown_primitive_is_refused_with_the_eleven(notes):
    with pytest.raises(MaadError) as refusal:
        notes.call("search", primitive="person")

    assert refusal.value.code == "INVALID_PRIMITIVE"
    assert refusal.value.details["provided"] == "person"
    assert len(refusal.value.details["valid"]) == 11


@pytest.mark.parametrize(("asked", "clamped"), [(500, False), (501, True)])
def test_the_limit_is_capped_at_500(notes, asked, clamped):
    answer = notes.call("search", primitive="entity", limit=asked)
    assert ("limitClamped" in answer.data) is clamped
    assert (answer.meta is not None) is clamped


@pytest.mark.parametrize("short_walk", [0, 10**6])
def test_many_matches_are_paged_as_few_are(project, monkeypatch, short_walk):
    for number in range(30):
        project.record("work_order", f"wo-{number:02}", "[[person:P|x]] [[person:Q|x]]", title="T")
    project.reindex()

    def pages():
        return [
            project.call("search", primitive="entity", query="", limit=7, offset=offset).raw
            for offset in range(0, 100, 7)
        ]

    listed = pages()
    monkeypatch.setattr(search_module, "_LISTED", 10)
    monkeypatch.setattr(search_module, "_SHORT_WALK", short_walk)
    project.reader = project.index.reader()
    assert pages() == listed
