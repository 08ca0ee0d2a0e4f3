"""Entries of the session table that stand for an open `subscriptions/listen` (spec 04 §9.8)."""

from __future__ import annotations

import pytest

from maadd.sessions.record_uri import RecordUri
from maadd.sessions.session import Binding, CloseReason, Mode


@pytest.fixture
def bench(make_bench):
    return make_bench(total=3, per_token=2)


def listen(bench, session_id, *projects, owner=None):
    session = bench.open(session_id, owner, binding=Binding(Mode.MULTI, projects, None, None))
    session.listening = True
    session.in_flight = 1
    session.watched = {RecordUri(name) for name in projects}
    return session


def test_no_request_can_resume_one(bench):
    listen(bench, "listen-1", "alpha")
    assert bench.table.get("listen-1") is None
    assert len(bench.table) == 1


def test_it_lasts_however_quiet_it_is_and_is_never_evicted(bench, make_token):
    owner = make_token()
    stream = listen(bench, "listen-1", "alpha", owner=owner)
    bench.now += 100_000
    assert bench.sweep() == 0
    bench.open("s-1", owner)
    bench.open("s-2", owner)
    assert bench.closed == [("s-1", CloseReason.CAPACITY)]
    assert stream.close_reason is None


def test_it_ends_with_its_token(bench, make_token):
    listen(bench, "listen-1", "alpha", owner=make_token("tok-9"))
    assert bench.sweep("tok-9") == 1
    assert bench.closed == [("listen-1", CloseReason.AUTH)]


def test_removed_projects_leave_it_and_the_last_one_ends_it(bench):
    stream = listen(bench, "listen-1", "alpha", "beta")
    assert bench.table.remove_projects({"alpha"}).pruned == 1
    assert stream.watched == {RecordUri("beta")}
    assert bench.table.remove_projects({"beta"}).cancelled == 1
    assert bench.closed == [("listen-1", CloseReason.TRANSPORT)]


def test_a_session_stops_watching_a_removed_project(bench):
    session = bench.open("s-1", binding=Binding(Mode.MULTI, ("alpha", "beta"), None, None))
    session.watched = {RecordUri("alpha", "x"), RecordUri("beta", "y"), RecordUri("alpha")}
    bench.table.remove_projects({"alpha"})
    assert session.watched == {RecordUri("beta", "y")}
    assert session.close_reason is None
