"""The subscription tools against the binding and the roles (spec 04 §11)."""

from __future__ import annotations

import pytest

from maadd.protocol.arguments import SubscribeArgs, SubscriptionsArgs, UnsubscribeArgs
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.protocol.tools import registered_tools
from maadd.sessions.binding import bind_multi, bind_single
from maadd.sessions.stateless import StatelessCaller
from maadd.tools.subscriptions import inventory_of, subscribe, subscribe_knowing, unsubscribe


@pytest.fixture
def office(make_instance):
    return make_instance(alpha=Role.ADMIN, beta=Role.WRITER)


@pytest.fixture
def bench(make_bench):
    return make_bench()


def bound(bench, office, session_id, *names, owner=None):
    session = bench.open(session_id, owner)
    session.binding = bind_multi(session, names, None, office, session.token)
    return session


def test_a_second_subscription_replaces_the_first(bench, office):
    session = bound(bench, office, "s-1", "alpha", "beta")
    first = subscribe(session, SubscribeArgs(doc_types=("note",)), office, session.token)
    second = subscribe(session, SubscribeArgs(project="beta"), office, session.token)
    assert first["filter"] == {"docTypes": ["note"], "project": None}
    assert second["filter"] == {"docTypes": None, "project": "beta"}
    assert (session.subscription.doc_types, session.subscription.project) == (None, "beta")


def test_a_session_without_a_stream_is_told_so(bench, office):
    session = bound(bench, office, "s-1", "alpha")
    assert "GET" in subscribe(session, SubscribeArgs(), office, session.token)["note"]
    session.notices.attach()
    assert "GET" not in subscribe(session, SubscribeArgs(), office, session.token)["note"]


def warnings_of(types, args, session, office):
    answer = subscribe_knowing(lambda project: types.get(project.name))(
        session, args, office, session.token
    )
    assert answer.data["subscribed"] is True
    return [(one["code"], one["field"]) for one in (answer.meta or {}).get("warnings", ())]


def test_a_type_that_no_subscribed_project_has_is_warned_of(bench, office):
    session = bound(bench, office, "s-1", "alpha", "beta")
    types = {"alpha": ["note"], "beta": ["task"]}
    unknown = ("UNKNOWN_TYPE", "docTypes")
    both = SubscribeArgs(doc_types=("note", "task", "nope", "nope"))
    assert warnings_of(types, both, session, office) == [unknown]
    one = SubscribeArgs(doc_types=("note", "task"), project="beta")
    assert warnings_of(types, one, session, office) == [unknown]
    assert session.subscription.doc_types == ("note", "task")
    assert warnings_of(types, SubscribeArgs(), session, office) == []


def test_nothing_is_warned_of_while_the_types_are_unknown(bench, office):
    session = bound(bench, office, "s-1", "alpha", "beta")
    args = SubscribeArgs(doc_types=("nope",))
    assert warnings_of({"alpha": ["note"]}, args, session, office) == []


def test_a_project_that_the_token_lost_cannot_be_subscribed_to(bench, office, make_token):
    session = bound(bench, office, "s-1", "alpha", "beta")
    narrowed = make_token(projects="beta")
    assert subscribe(session, SubscribeArgs(project="beta"), office, narrowed)["subscribed"]
    for args in (SubscribeArgs(), SubscribeArgs(project="alpha")):
        with pytest.raises(MaadError, match="alpha") as caught:
            subscribe(session, args, office, narrowed)
        assert caught.value.code == "INSUFFICIENT_ROLE"


def test_stateless_callers_are_sent_to_listen(office, make_token):
    caller = StatelessCaller(make_token())
    for tool, args in ((subscribe, SubscribeArgs()), (unsubscribe, UnsubscribeArgs())):
        with pytest.raises(MaadError, match="subscriptions/listen") as caught:
            tool(caller, args, office, caller.token)
        assert caught.value.code == "SESSION_STATELESS"


def test_the_inventory_bins_by_project_and_type(bench, office):
    single = bench.open("s-1")
    single.binding = bind_single(single, "alpha", None, office, single.token)
    subscribe(single, SubscribeArgs(doc_types=("note", "task")), office, single.token)
    both = bound(bench, office, "s-2", "alpha", "beta")
    subscribe(both, SubscribeArgs(), office, both.token)
    explicit = bound(bench, office, "s-3", "alpha", "beta")
    subscribe(explicit, SubscribeArgs(doc_types=("note",), project="beta"), office, explicit.token)
    bound(bench, office, "s-4", "alpha")
    answer = inventory_of(bench.table)(both, SubscriptionsArgs(), office, both.token)
    assert answer["totalSubscriptions"] == 3
    assert answer["byProject"] == {"alpha": 2, "beta": 2}
    assert answer["byDocType"] == {"note": 2, "task": 1, "*": 1}
    rows = {row["sessionId"]: row for row in answer["subscriptions"]}
    assert (rows["s-1"]["mode"], rows["s-1"]["activeProject"]) == ("single", "alpha")
    assert (rows["s-1"]["whitelist"], rows["s-2"]["whitelist"]) == (None, ["alpha", "beta"])
    assert rows["s-3"]["subscription"]["project"] == "beta"


def test_a_token_sees_no_project_that_it_is_not_bound_to(bench, office):
    both = bound(bench, office, "s-1", "alpha", "beta")
    subscribe(both, SubscribeArgs(), office, both.token)
    elsewhere = bound(bench, office, "s-2", "alpha", "beta")
    subscribe(elsewhere, SubscribeArgs(project="alpha"), office, elsewhere.token)
    caller = bound(bench, office, "s-3", "beta")
    answer = inventory_of(bench.table)(caller, SubscriptionsArgs(), office, caller.token)
    assert [row["sessionId"] for row in answer["subscriptions"]] == ["s-1"]
    assert answer["subscriptions"][0]["whitelist"] == ["beta"]
    assert answer["byProject"] == {"beta": 1}


def test_single_project_servers_have_the_subscription_tools():
    names = {spec.name for spec in registered_tools(Role.READER)}
    assert {"maad_subscribe", "maad_unsubscribe"} <= names
    assert "maad_subscriptions" not in names
    assert "maad_subscriptions" in {spec.name for spec in registered_tools(Role.ADMIN)}
