"""Sorting and paging (spec 02 §4.2)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index import pages
from maadd_worker.index.pages import query_page
from maadd_worker.index.projection import project_fields
from maadd_worker.index.scope import build_scope
from maadd_worker.index.sorting import DEFAULT_SORT, resolve_sort


@pytest.fixture
def query(project, reader):
    """Ids of a page without their prefix, as one string."""

    def run(sort_by=None, order=None, filters=None, doc_type="task", **page) -> str:
        scope = build_scope(doc_type, filters, project.model)
        sort = resolve_sort(doc_type, sort_by, order, project.model)
        found = query_page(reader, scope, sort, project.plans, **{"limit": 100, **page})
        return " ".join(row.doc_id.removeprefix("tsk-") for row in found.rows)

    return run


@pytest.fixture
def labelled(project):
    """Records 1 to 5 labelled alpha, charlie, bravo, none, none."""
    for doc_id, state in (("1", "alpha"), ("2", "charlie"), ("3", "bravo"), ("4", ""), ("5", "")):
        project.index_file(project.task(f"tsk-{doc_id}", **({"state": state} if state else {})))
    return project


@pytest.fixture(params=["walk", "list"])
def way(request, monkeypatch):
    """Both ways to a page of few records must agree."""
    if request.param == "list":
        monkeypatch.setattr(pages, "_SHORT_WALK", -1)
    return request.param


EVERYTHING = {"title": {"op": "gte", "value": ""}}


@pytest.mark.usefixtures("labelled", "way")
@pytest.mark.parametrize("filters", [None, EVERYTHING])
@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ({"order": "desc"}, "2 3 1 5 4"),
        ({"order": None}, "2 3 1 5 4"),
        ({"order": "asc"}, "4 5 1 3 2"),
        ({"order": "desc", "limit": 2, "offset": 2}, "1 5"),
        ({"order": "asc", "limit": 2, "offset": 1}, "5 1"),
        ({"order": "asc", "limit": 1, "offset": 4}, "2"),
        ({"order": "asc", "offset": 5}, ""),
        ({"order": "asc", "offset": 500}, ""),
    ],
)
def test_missing_values_come_first_ascending_and_last_descending(query, filters, page, expected):
    assert query("state", filters=filters, **page) == expected


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("filters", [None, EVERYTHING])
def test_numbers_sort_as_numbers_and_unreadable_ones_before_them(project, query, filters):
    values = {"a": "9", "b": "100", "c": "2", "d": "word", "f": "-3", "g": "2"}
    for name, points in values.items():
        project.index_file(project.task(f"tsk-{name}", points=points))
    project.index_file(project.task("tsk-e"))
    assert query("points", "asc", filters) == "e d f c g a b"
    assert query("points", "desc", filters) == "b a g c f d e"


@pytest.mark.usefixtures("way")
def test_amounts_sort_by_their_number(project, query):
    for name, budget in {"a": "100 EUR", "b": "9 EUR", "c": "1000 USD"}.items():
        project.index_file(project.task(f"tsk-{name}", budget=budget))
    assert query("budget", "asc") == "b a c"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("filters", [None, EVERYTHING])
def test_lists_sort_by_their_smallest_or_largest_item(project, query, filters):
    for name, labels in {"a": "[m]", "b": "[z, b]", "c": "[c, y, c]", "d": "[]"}.items():
        scores = {"a": "[5]", "b": "[10, 9]", "c": "[100, 1]", "d": "[word]"}[name]
        project.index_file(project.task(f"tsk-{name}", labels=labels, scores=scores))
    assert query("labels", "asc", filters) == "d b c a"
    assert query("labels", "desc", filters) == "b c a d"
    assert query("scores", "asc", filters) == "d c a b"
    assert query("scores", "desc", filters) == "c b a d"


@pytest.mark.usefixtures("way")
def test_a_list_in_a_scalar_field_never_doubles_a_record(project, query):
    project.index_file(project.task("tsk-a", state="[todo, done]"))
    project.index_file(project.task("tsk-b", state="doing"))
    assert query("state", "asc") == "b a"
    assert query("state", "desc") == "a b"
    assert query("state", "asc", {"state": {"op": "gte", "value": "a"}}) == "b a"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("key", "alias"),
    [
        ("doc_id", "docId"),
        ("doc_type", "docType"),
        ("updated_at", "updatedAt"),
        ("indexed_at", "indexedAt"),
        ("created_at", "createdAt"),
    ],
)
def test_system_keys_and_their_aliases(project, clock, query, key, alias):
    for name in ("b", "a", "c"):
        project.index_file(project.task(f"tsk-{name}"))
        clock.advance()
    project.index_file(project.task("tsk-a", state="done"))
    expected = {
        "doc_id": "a b c",
        "doc_type": "a b c",
        "updated_at": "b c a",
        "indexed_at": "b c a",
        "created_at": "b a c",
    }[key]
    for name in (key, alias):
        assert query(name, "asc") == query(name, "asc", EVERYTHING) == expected
        assert query(name, "desc") == " ".join(reversed(expected.split()))


def test_without_a_sort_the_newest_index_stamp_comes_first(project, clock, query):
    for name in ("b", "c"):
        project.index_file(project.task(f"tsk-{name}"))
    clock.advance()
    project.index_file(project.task("tsk-a"))
    assert query() == query(order="asc") == "a c b"


def test_system_keys_sort_over_all_types(project, query):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.member("mbr-x"))
    assert query("doc_id", "asc", doc_type=None) == "mbr-x a"
    assert query("doc_type", "desc", doc_type=None) == "a mbr-x"


@pytest.mark.parametrize(
    ("doc_type", "sort_by", "details"),
    [
        (
            None,
            "title",
            {
                "provided": "title",
                "systemKeys": ["doc_id", "doc_type", "updated_at", "indexed_at", "created_at"],
            },
        ),
        ("nothing", "title", {"provided": "title", "docType": "nothing"}),
        (
            "member",
            "title",
            {
                "provided": "title",
                "docType": "member",
                "indexedFields": ["name"],
                "systemKeys": ["doc_id", "doc_type", "updated_at", "indexed_at", "created_at"],
            },
        ),
    ],
)
def test_unsupported_sort_fields(project, doc_type, sort_by, details):
    with pytest.raises(MaadError) as caught:
        resolve_sort(doc_type, sort_by, "asc", project.model)
    assert (caught.value.code, caught.value.details) == ("UNSUPPORTED_SORT_FIELD", details)


def test_a_field_that_is_not_indexed_cannot_sort(project):
    with pytest.raises(MaadError) as caught:
        resolve_sort("task", "note", "asc", project.model)
    assert "note" not in caught.value.details["indexedFields"]


def test_a_type_that_does_not_exist_is_an_empty_page(query, project, reader):
    scope = build_scope("nothing", {}, project.model)
    page = query_page(reader, scope, DEFAULT_SORT, project.plans, limit=5)
    assert (page.total, page.rows, page.next_cursor) == (0, (), None)


@pytest.mark.usefixtures("labelled", "way")
@pytest.mark.parametrize("filters", [None, EVERYTHING])
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("sort_by", ["state", "points", "doc_id", "updated_at"])
def test_cursors_walk_every_record_once(project, reader, filters, order, sort_by):
    scope = build_scope("task", filters, project.model)
    sort = resolve_sort("task", sort_by, order, project.model)
    whole = query_page(reader, scope, sort, project.plans, limit=100)
    assert whole.next_cursor is None
    walked, cursor = [], None
    for _ in range(5):
        page = query_page(reader, scope, sort, project.plans, limit=1, cursor=cursor)
        assert page.total == 5
        walked += page.rows
        cursor = page.next_cursor
    assert tuple(walked) == whole.rows
    assert cursor is None


@pytest.mark.usefixtures("labelled")
def test_a_cursor_keeps_its_place_while_records_come_and_go(project, reader):
    scope = build_scope("task", None, project.model)
    sort = resolve_sort("task", "doc_id", "asc", project.model)
    first = query_page(reader, scope, sort, project.plans, limit=2)
    project.index_file(project.task("tsk-0"))
    with project.writer.transaction():
        project.writer.remove_document("tsk-2")
    second = query_page(reader, scope, sort, project.plans, limit=2, cursor=first.next_cursor)
    assert [row.doc_id for row in second.rows] == ["tsk-3", "tsk-4"]


@pytest.mark.usefixtures("labelled")
def test_foreign_cursors_are_refused(project, reader):
    scope = build_scope("task", None, project.model)
    sort = resolve_sort("task", "state", "asc", project.model)
    good = query_page(reader, scope, sort, project.plans, limit=2).next_cursor
    other_sort = resolve_sort("task", "state", "desc", project.model)
    other_scope = build_scope("task", {"state": "alpha"}, project.model)
    for cursor, its_scope, its_sort in [
        ("%%%", scope, sort),
        ("", scope, sort),
        ("e30", scope, sort),
        (good[:-4], scope, sort),
        (good, scope, other_sort),
        (good, other_scope, sort),
    ]:
        with pytest.raises(MaadError) as caught:
            query_page(reader, its_scope, its_sort, project.plans, limit=2, cursor=cursor)
        assert (caught.value.code, caught.value.details) == ("INVALID_FIELDS", {"field": "cursor"})


def test_kept_totals_and_lists_follow_every_change(project, query, reader):
    for name in "abc":
        project.index_file(project.task(f"tsk-{name}", state="todo"))
    filters = {"state": "todo", "title": {"op": "neq", "value": "x"}}
    assert query("title", "asc", filters) == "a b c"
    project.index_file(project.task("tsk-b", state="done"))
    assert query("title", "asc", filters) == "a c"
    with project.writer.transaction():
        project.writer.tombstone("tsk-a", "work/tasks/_deleted_tsk-a.md")
    assert query("title", "asc", filters) == "c"


def test_a_sort_field_that_the_schema_gained_orders_every_record_before_the_reindex(project, query):
    for name in "ab":
        project.index_file(project.task(f"tsk-{name}", note=f"n{name}"))
    schema = (project.path / "_schema/task.v1.yaml").read_text()
    project.write(
        "_schema/task.v1.yaml",
        schema.replace("note: {type: string}", "note: {type: string, index: true}"),
    )
    project.reload()
    assert query("note", "asc") == "a b"
    project.index_file(project.task("tsk-b", note="na", title="again"))
    project.index_file(project.task("tsk-c", note="nb"))
    assert query("note", "asc") == "a b c"
    project.run()
    assert query("note", "desc") == "c b a"


def test_projection_gives_index_text_and_arrays_for_lists(project, reader):
    project.index_file(
        project.task("tsk-a", points="1250.0", labels="[b, a, b]", state="todo", budget="5 EUR")
    )
    project.index_file(project.task("tsk-b", labels="[]", note="hidden"))
    fields = ["labels", "points", "note", "nothing", "title", "state"]
    found = project_fields(reader, ["tsk-b", "tsk-a", "tsk-none"], fields, project.model, "task")
    assert found == {
        "tsk-b": {"title": "tsk-b"},
        "tsk-a": {"labels": ["b", "a", "b"], "points": "1250", "title": "tsk-a", "state": "todo"},
        "tsk-none": {},
    }
    assert list(found) == ["tsk-b", "tsk-a", "tsk-none"]
    assert list(found["tsk-a"]) == ["labels", "points", "title", "state"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_cursors_walk_all_types_too(project, reader, monkeypatch, order):
    monkeypatch.setattr(pages, "_LISTED", 0)
    for name in "abc":
        project.index_file(project.task(f"tsk-{name}"))
        project.index_file(project.member(f"mbr-{name}"))
    scope = build_scope(None, None, project.model)
    sort = resolve_sort(None, "doc_type", order, project.model)
    walked, cursor = [], None
    while cursor is not None or not walked:
        page = query_page(reader, scope, sort, project.plans, limit=4, cursor=cursor)
        walked += [row.doc_id for row in page.rows]
        cursor = page.next_cursor
    ascending = ["mbr-a", "mbr-b", "mbr-c", "tsk-a", "tsk-b", "tsk-c"]
    assert walked == (ascending if order == "asc" else ascending[::-1])
