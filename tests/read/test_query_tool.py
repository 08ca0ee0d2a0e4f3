"""maad_query: filters, projection, order, pages and hydration of one call (spec 02 §4.2)."""

from __future__ import annotations

import msgspec
import pytest

from maadd.protocol.errors import MaadError


def ids(answer):
    return " ".join(row["docId"].partition("-")[2] for row in answer.data["results"])


@pytest.fixture
def labelled(project):
    """Orders 1 to 5; the first three have a title of alpha, charlie, bravo, the others none."""
    for number, title in enumerate(("alpha", "charlie", "bravo", None, None), start=1):
        project.record("work_order", f"wo-{number}", **({"title": title} if title else {}))
    project.reindex()
    return project


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"sortOrder": "desc"}, "2 3 1 5 4"),
        ({"sortOrder": "asc"}, "4 5 1 3 2"),
        ({}, "2 3 1 5 4"),
        ({"sortOrder": "desc", "limit": 2, "offset": 2}, "1 5"),
    ],
)
def test_missing_values_come_first_ascending_and_last_descending(labelled, arguments, expected):
    answer = labelled.call("query", docType="work_order", sortBy="title", **arguments)

    assert ids(answer) == expected
    assert answer.data["total"] == 5


def test_numbers_sort_as_numbers(project):
    for number in (9, 100, 2):
        project.record("work_order", f"wo-{number}", title="T", hours=number)
    project.reindex()

    assert ids(project.call("query", docType="work_order", sortBy="hours", sortOrder="asc")) == (
        "2 9 100"
    )


@pytest.mark.parametrize(
    "key", ["doc_id", "docId", "updated_at", "updatedAt", "created_at", "createdAt",
            "indexed_at", "indexedAt", "doc_type", "docType"],
)  # fmt: skip
def test_system_keys_have_camel_case_names_too(labelled, key):
    assert ids(labelled.call("query", docType="work_order", sortBy=key, sortOrder="asc")) == (
        "1 2 3 4 5"
    )


def test_a_system_key_wins_over_a_field_of_that_name(project):
    schema = (project.path / "_schema/work_order.v1.yaml").read_text()
    project.write(
        "_schema/work_order.v1.yaml",
        schema.replace("  hours:", "  updated_at: {type: string, index: true}\n  hours:"),
    )
    project.reload_model()
    for number, text in enumerate("cab"):
        project.record("work_order", f"wo-{number}", title="T", updated_at=text)
        project.reindex()

    assert ids(project.call("query", docType="work_order", sortBy="updated_at")) == "2 1 0"


@pytest.mark.parametrize("name", ["serial", "status_text", "DOC_ID"])
def test_what_cannot_be_sorted_by_is_refused_with_what_can(labelled, name):
    with pytest.raises(MaadError) as refusal:
        labelled.call("query", docType="work_order", sortBy=name)

    assert refusal.value.code == "UNSUPPORTED_SORT_FIELD"
    assert refusal.value.details["provided"] == name
    assert "hours" in refusal.value.details["indexedFields"]
    assert refusal.value.details["systemKeys"][0] == "doc_id"


def test_pages_joined_by_cursor_are_the_whole_list(project):
    for number in range(7):
        project.record("work_order", f"wo-{number}", title="T", labels=["x"] if number % 2 else [])
    project.reindex()
    arguments = {"docType": "work_order", "sortBy": "labels", "sortOrder": "asc"}
    walked, cursor = [], None

    while True:
        page = project.call("query", **arguments, limit=2, **({"cursor": cursor} if cursor else {}))
        walked += page.data["results"]
        cursor = page.data["nextCursor"]
        if cursor is None:
            break

    assert walked == project.call("query", **arguments).data["results"]


def test_a_foreign_cursor_is_refused(labelled):
    with pytest.raises(MaadError) as refusal:
        labelled.call("query", docType="work_order", cursor="%%%")
    assert refusal.value.code == "INVALID_FIELDS"
    assert refusal.value.details["field"] == "cursor"


@pytest.mark.parametrize(("asked", "clamped"), [(500, False), (501, True), (9000, True)])
def test_a_limit_above_the_cap_is_clamped_and_told(labelled, asked, clamped):
    answer = labelled.call("query", docType="work_order", limit=asked)

    pair = {"requested": asked, "applied": 500}
    assert answer.data.get("limitClamped") == (pair if clamped else None)
    assert answer.meta == ({"limit_clamped": pair} if clamped else None)


def test_projection_gives_index_text_and_lists_as_lists(project):
    project.record("work_order", "wo-1", title="T", hours=1250.0, labels=["b", "a"], status="open")
    project.record("work_order", "wo-2", title="U")
    project.reindex()

    answer = project.call(
        "query",
        docType="work_order",
        fields=["labels", "hours", "title", "body", "doc_id"],
        sortBy="docId",
        sortOrder="asc",
    )

    assert [row["fields"] for row in answer.data["results"]] == [
        {"labels": ["b", "a"], "hours": "1250", "title": "T"},
        {"title": "U"},
    ]
    assert answer.codes == ["FIELD_NOT_INDEXED", "FIELD_NOT_INDEXED"]


def test_rows_are_bare_unless_more_is_asked(labelled):
    plain = labelled.call("query", docType="work_order", limit=1, fields=[]).data["results"]
    with_path = labelled.call("query", docType="work_order", limit=1, includeFilePath=True)

    assert plain == [{"docId": "wo-5", "docType": "work_order"}]
    assert with_path.data["results"][0]["filePath"] == "orders/wo-5.md"


def test_an_unknown_type_has_no_records_and_a_hint(labelled):
    answer = labelled.call("query", docType="work_ordr")

    assert answer.data["total"] == 0
    assert answer.codes == ["UNKNOWN_TYPE"]
    assert "work_order" in answer.outcome.warnings[0].message


def test_a_filter_on_an_unindexed_field_warns(labelled):
    answer = labelled.call("query", docType="work_order", filters={"serial": "x"})

    assert answer.data["total"] == 0
    assert answer.codes == ["FILTER_FIELD_NOT_INDEXED"]


@pytest.fixture
def five(project):
    for number in range(5):
        project.record("work_order", f"wo-{number}", f"\nbody {number}\n", title="T")
    project.reindex()
    return project


def query_five(project, **arguments):
    return project.call("query", docType="work_order", sortBy="docId", sortOrder="asc", **arguments)


def test_cold_gives_bodies_up_to_the_hydration_cap(five):
    answer = query_five(five, depth="cold", depthMaxResults=2)

    assert [row.get("body") for row in answer.data["results"]] == [
        "body 0", "body 1", None, None, None,
    ]  # fmt: skip
    assert answer.meta == {"depth": {"depth": "cold", "hydrated": 2, "capped": True}}


def test_hydration_is_reported_for_an_empty_page_too(five):
    answer = query_five(five, depth="full", filters={"title": "none"})

    assert answer.meta == {"depth": {"depth": "full", "hydrated": 0}}


def test_no_more_than_a_hundred_rows_are_hydrated(project):
    for number in range(150):
        project.record("vendor", f"ven-{number:03}", "x", name="N")
    project.reindex()

    answer = project.call("query", docType="vendor", limit=150, depth="cold", depthMaxResults=150)

    assert sum("body" in row for row in answer.data["results"]) == 100
    assert answer.meta["depth"] == {"depth": "cold", "hydrated": 100, "capped": True}


def test_one_record_that_cannot_be_read_costs_its_own_row_only(five, tmp_path):
    (five.path / "orders/wo-1.md").unlink()
    five.write("orders/wo-2.md", "---\nbroken: [\n---\n")
    (tmp_path / "out.md").write_text("---\ndoc_id: wo-3\n---\n")
    (five.path / "orders/wo-3.md").unlink()
    (five.path / "orders/wo-3.md").symlink_to(tmp_path / "out.md")

    answer = query_five(five, depth="cold")

    rows = answer.data["results"]
    assert [row.get("_hydrationError") for row in rows] == [
        None, "FILE_READ_ERROR", "PARSE_ERROR", "PATH_OUTSIDE_PROJECT", None,
    ]  # fmt: skip
    assert [row.get("body") for row in rows] == ["body 0", None, None, None, "body 4"]
    assert answer.meta["depth"]["hydrated"] == 5


def test_hydration_ends_before_it_breaks_the_response_budget(project):
    for number in range(5):
        project.record("work_order", f"wo-{number}", "x" * 1000, title="T")
    project.reindex()
    project.settings = msgspec.structs.replace(project.settings, response_max_bytes=4000)

    answer = query_five(project, depth="cold")

    assert [len(row.get("body", "")) for row in answer.data["results"]] == [1000, 1000, 0, 0, 0]
    assert answer.meta["depth"] == {
        "depth": "cold", "hydrated": 2, "capped": True, "stoppedBy": "bytes",
    }  # fmt: skip


def test_full_gives_the_composite_of_each_row(five):
    row = query_five(five, depth="full", limit=1).data["results"][0]

    assert row["composite"] == five.call("get", docId="wo-0", depth="full").data
