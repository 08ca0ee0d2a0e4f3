"""Cursors while records come, change and go: nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maadd_worker.index.document import index_document
from maadd_worker.read.changes import _decode

IDS = [f"wo-{number}" for number in range(9)]
SORTS = ["docId", "hours", "title", "labels"]

fields = st.fixed_dictionaries(
    {"title": st.sampled_from(["a", "b", "é"])},
    optional={
        "hours": st.sampled_from([-1, 0, 2.5, 10]),
        "labels": st.lists(st.sampled_from(["x", "y"]), max_size=2),
    },
)
writes = st.lists(st.tuples(st.sampled_from(IDS), st.none() | fields), max_size=3)


class Orders:
    """Work orders as they are written, and the versions that each write made."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.stored: dict[str, dict[str, Any]] = {}
        self.touched: set[str] = set()

    def clear(self) -> None:
        for doc_id in list(self.stored):
            self.write(doc_id, None)
        self.touched.clear()

    def write(self, doc_id: str, given_fields: dict[str, Any] | None) -> None:
        """Store a record, or remove it."""
        project, writer = self.project, self.project.index.writer()
        if given_fields is None:
            if self.stored.pop(doc_id, None) is not None:
                project.hard_delete(doc_id)
                self.touched.add(doc_id)
            return
        path = project.record("work_order", doc_id, **given_fields)
        with writer.transaction():
            index_document(
                writer, project.plans.model, project.root, path,
                (project.path / path).read_bytes(), max_annotations=0,
            )  # fmt: skip
        if self.stored.get(doc_id) != given_fields:
            self.touched.add(doc_id)
        self.stored[doc_id] = given_fields


@pytest.fixture(scope="module")
def orders(shared_project):
    return Orders(shared_project)


@given(
    start=st.dictionaries(st.sampled_from(IDS), fields),
    between=st.lists(writes, max_size=6),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(["asc", "desc"]),
    limit=st.integers(1, 4),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_query_walk_meets_every_record_that_stayed_exactly_once(
    orders, start, between, sort, order, limit
):
    orders.clear()
    for doc_id, given_fields in start.items():
        orders.write(doc_id, given_fields)
    orders.touched.clear()
    waiting = list(between)
    met: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = orders.project.call(
            "query", docType="work_order", sortBy=sort, sortOrder=order, limit=limit, **cursor
        ).data
        met += [row["docId"] for row in page["results"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
        for write in waiting.pop(0) if waiting else ():
            orders.write(*write)
    stayed = set(start) - orders.touched
    assert sorted(doc_id for doc_id in met if doc_id in stayed) == sorted(stayed)
    if sort == "docId":
        assert len(met) == len(set(met))


@given(between=st.lists(writes, min_size=1, max_size=6), limit=st.integers(1, 4))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_feed_tells_every_change_that_lasts_exactly_once(orders, between, limit):
    orders.clear()
    cursor = orders.project.call("changes_since").data["resumeCursor"]
    known: dict[str, str] = {}
    numbers: list[int] = []
    for step in [*between, []]:
        for write in step:
            orders.write(*write)
        # One page after each step, and at the end all that are left.
        more = True
        while more:
            page = orders.project.call(
                "changes_since", cursor=cursor or "", limit=limit, includeDeletes=True
            ).data
            for change in page["changes"]:
                known[change["docId"]] = change["operation"]
            cursor = page["resumeCursor"]
            numbers += [_decode(cursor).s] if page["changes"] else []
            more = page["hasMore"] and step == []
    assert numbers == sorted(set(numbers))
    live = {doc_id for doc_id, operation in known.items() if operation != "delete"}
    assert live == set(orders.stored)
    assert orders.touched <= set(known)


def test_readers_beside_a_writing_thread_lose_nothing(project):
    """A feed and a sorted walk by readers of their own, while one thread writes."""
    orders = Orders(project)
    for doc_id in IDS:
        orders.write(doc_id, {"title": "steady"})
    rounds = 12
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(rounds):
                orders.write(f"wo-new-{number}", {"title": f"new {number}"})
                orders.write(f"wo-{number % 3}", {"title": f"changed {number}"})
        except BaseException as failure:
            failures.append(failure)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    cursor, last, seen = "", {}, []
    alive = True
    while alive or seen[-1]:
        alive = writer.is_alive()
        page = project.call("changes_since", cursor=cursor, limit=3).data
        seen.append([change["docId"] for change in page["changes"]])
        last |= {change["docId"]: change["updatedAt"] for change in page["changes"]}
        cursor = page["resumeCursor"]
        walked: list[str] = []
        place: dict[str, str] = {}
        while True:
            rows = project.call(
                "query", docType="work_order", sortBy="docId", sortOrder="asc", limit=4, **place
            ).data
            walked += [row["docId"] for row in rows["results"]]
            if rows["nextCursor"] is None:
                break
            place = {"cursor": rows["nextCursor"]}
        assert walked == sorted(set(walked))
        assert set(IDS) <= set(walked)
    writer.join()
    assert not failures
    assert set(last) == set(orders.stored)
    for doc_id, updated_at in last.items():
        assert project.reader.find(doc_id).updated_at == updated_at
    assert sum(map(len, seen)) <= len(IDS) + 2 * rounds
