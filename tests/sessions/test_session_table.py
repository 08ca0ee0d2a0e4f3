"""Creation, eviction, idling and the death of tokens (spec 04 §3, §4.4, §9.4)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Binding, BindingSource, CloseReason, Mode, Subscription
from maadd.sessions.table import SessionLimits, SessionTable


def ids(bench) -> list[str]:
    return [session.id for session in bench.table]


def single(name: str) -> Binding:
    return Binding(Mode.SINGLE, (name,), None, BindingSource.CLIENT_TOOL)


def multi(*names: str) -> Binding:
    return Binding(Mode.MULTI, names, None, BindingSource.CLIENT_TOOL)


def test_only_its_own_token_resumes_a_session(make_bench, make_token):
    bench = make_bench()
    session = bench.open("s", make_token("tok-a"))
    bench.now += 5
    assert not bench.table.resume(session, make_token("tok-b"))
    assert session.last_activity == 1000.0
    renamed = make_token("tok-a", name="renamed")
    assert bench.table.resume(session, renamed)
    assert session.token is renamed
    assert session.last_activity == 1005.0


def test_the_cap_costs_the_longest_inactive_session_its_place(make_bench, make_token):
    bench = make_bench(total=128, per_token=1000)
    for number in range(128):
        bench.open(f"s{number}")
        bench.now += 1
    bench.table.resume(bench.table.get("s0"), make_token())
    bench.open("one more")
    assert bench.closed == [("s1", CloseReason.CAPACITY)]
    assert bench.table.get("s1") is None
    assert len(bench.table) == 128


def test_a_token_at_its_own_cap_evicts_its_own_oldest(make_bench, make_token):
    bench = make_bench(total=10, per_token=2)
    bench.open("other", make_token("tok-other"))
    for number in range(5):
        bench.open(f"greedy{number}", make_token("tok-greedy"))
    assert ids(bench) == ["other", "greedy3", "greedy4"]


def test_busy_sessions_stay_and_open_streams_go_last(make_bench):
    bench = make_bench(total=3, per_token=3)
    bench.open("busy").in_flight = 1
    bench.open("streaming").notices.attach()
    bench.open("quiet")
    bench.open("next").in_flight = 1
    bench.open("last").in_flight = 1
    assert [name for name, _ in bench.closed] == ["quiet", "streaming"]
    with pytest.raises(MaadError) as caught:
        bench.open("too many")
    assert caught.value.code == "OVERLOADED"
    assert caught.value.details["reason"] == "sessions"
    assert ids(bench) == ["busy", "next", "last"]


def test_five_thousand_abandoned_sessions_leave_the_table_at_its_cap(make_bench, make_token):
    bench = make_bench(total=128, per_token=64)
    for number in range(5000):
        bench.open(f"s{number}", make_token(f"tok-{number % 5}"))
    assert len(bench.table) == 128


def test_idle_sessions_are_swept_and_activity_resets_the_clock(make_bench, make_token):
    bench = make_bench(idle_s=100)
    for name in ("idle", "active", "busy"):
        bench.open(name, binding=single("alpha"))
    bench.table.get("busy").in_flight = 1
    bench.now += 60
    bench.table.resume(bench.table.get("active"), make_token())
    bench.now += 60
    assert bench.sweep() == 1
    assert bench.closed == [("idle", CloseReason.IDLE)]
    assert bench.events == [{"level": "info", "event": "idle_sweep", "swept": 1, "remaining": 2}]
    assert bench.sweep() == 0
    assert len(bench.events) == 1


def test_a_session_that_never_did_anything_goes_after_two_minutes(make_bench):
    bench = make_bench()
    bench.open("unused")
    bench.open("used").used = True
    bench.open("bound", binding=single("alpha"))
    bench.now += 119
    assert bench.sweep() == 0
    bench.now += 1
    assert bench.sweep() == 1
    assert ids(bench) == ["used", "bound"]


def test_a_permanent_session_neither_idles_nor_counts(make_bench):
    bench = make_bench(total=1, per_token=1)
    bench.open("stdio", permanent=True)
    bench.open("http")
    bench.now += 1_000_000
    bench.sweep()
    assert ids(bench) == ["stdio"]


def test_dead_tokens_take_their_sessions_along(make_bench, make_token):
    bench = make_bench()
    for name, owner in (("a1", "tok-a"), ("a2", "tok-a"), ("b", "tok-b")):
        bench.open(name, make_token(owner))
    kept = bench.table.get("a2")
    status = {"tok-a": "revoked"}
    assert bench.table.close_dead_tokens(lambda t: status.get(t.id), keep=kept) == 1
    assert bench.closed == [("a1", CloseReason.AUTH)]
    assert bench.events == [
        {
            "level": "info",
            "event": "session_token_evicted",
            "session_id": "a1",
            "token_id": "tok-a",
            "reason": "revoked",
        }
    ]
    assert bench.sweep("tok-a") == 1
    assert ids(bench) == ["b"]


def test_the_next_sweep_is_due_when_the_first_token_expires(make_bench, make_token):
    bench = make_bench()
    assert bench.table.next_sweep_s() == 60.0
    bench.open("s", make_token(expires_at="2030-03-17T17:46:45Z"))
    assert bench.table.next_sweep_s() == pytest.approx(5.0, abs=0.01)
    bench.now += 5.5
    assert bench.table.next_sweep_s() < 0.01
    bench.sweep("tok-1")
    assert bench.table.next_sweep_s() == 60.0


def test_sessions_that_keep_coming_do_not_put_the_sweep_off(make_bench, make_token):
    bench = make_bench()
    bench.now += 59
    bench.open("s", make_token(expires_at="2099-01-01T00:00:00Z"))
    assert bench.table.next_sweep_s() == 1.0
    bench.now += 2
    assert bench.table.next_sweep_s() == 0.0


def test_an_expiry_that_is_changed_moves_the_next_sweep(make_bench, make_token):
    bench = make_bench()
    told = []
    bench.table.tell_of_expiries(lambda: told.append(bench.table.next_sweep_s()))
    bench.open("s", make_token())
    assert told == []
    changed = make_token(expires_at="2030-03-17T17:46:45Z")
    bench.table.follow_expiries({"tok-1": changed}.get)
    assert told == [pytest.approx(5.0, abs=0.01)]
    bench.table.follow_expiries({"tok-1": make_token()}.get)
    assert told[1:] == [60.0]


@pytest.mark.parametrize(("idle_s", "period"), [(0.5, 1.0), (30, 15), (1800, 60)])
def test_the_sweep_period_is_half_the_idle_time_within_bounds(make_bench, idle_s, period):
    assert make_bench(idle_s=idle_s).table.next_sweep_s() == period


def test_closing_is_idempotent_and_a_failing_hook_stops_no_other(make_bench):
    bench = make_bench()

    def fail(_session, _reason):
        raise RuntimeError("broken hook")

    after = []
    bench.table.add_close_hook(fail)
    bench.table.add_close_hook(lambda session, reason: after.append(reason))
    session = bench.open("s")
    session.notices.attach()
    assert bench.table.close(session, CloseReason.TRANSPORT)
    assert not bench.table.close(session, CloseReason.IDLE)
    assert session.close_reason is CloseReason.TRANSPORT
    assert bench.closed == [("s", CloseReason.TRANSPORT)]
    assert after == [CloseReason.TRANSPORT]
    assert [event["event"] for event in bench.events] == ["session_close_hook_failed"]


def test_removed_projects_cancel_or_prune(make_bench):
    bench = make_bench()
    bench.open("single", binding=single("alpha"))
    bench.open("pinned", binding=Binding(Mode.SINGLE, ("alpha",), None, BindingSource.GATEWAY_PIN))
    bench.open("pruned", binding=multi("alpha", "beta"))
    bench.open("emptied", binding=multi("alpha", "gamma"))
    bench.open("untouched", binding=single("beta"))
    bench.open("unbound")
    fallout = bench.table.remove_projects({"alpha", "gamma"})
    assert (fallout.cancelled, fallout.pruned) == (3, 1)
    assert [s.id for s in bench.table if s.cancelled] == ["single", "pinned", "emptied"]
    assert bench.table.get("pruned").binding.projects == ("beta",)
    again = bench.table.remove_projects({"alpha", "gamma"})
    assert (again.cancelled, again.pruned) == (0, 0)


def test_subscriptions_to_removed_projects_go(make_bench):
    bench = make_bench()
    for name, project in (("gone", "alpha"), ("kept", "beta"), ("all", None)):
        bench.open(name, binding=multi("alpha", "beta")).subscription = Subscription(
            None, project, "2031-01-01T00:00:00.000Z"
        )
    bench.table.remove_projects({"alpha"})
    assert [s.id for s in bench.table if s.subscription] == ["kept", "all"]


def test_shutdown_ends_all(make_bench):
    bench = make_bench()
    bench.open("a")
    bench.open("b")
    bench.table.close_all(CloseReason.SHUTDOWN)
    assert len(bench.table) == 0
    assert [reason for _, reason in bench.closed] == [CloseReason.SHUTDOWN] * 2


def test_open_hooks_see_the_new_session(log_into):
    seen = []
    table = SessionTable(SessionLimits(1, 1, 1800.0), log_into([]), on_open=[seen.append])
    session = table.open(
        "s", transport="http", notices=NoticeQueue(1), remote_addr="10.0.0.9", user_agent="curl"
    )
    assert seen == [session]
    assert (session.remote_addr, session.user_agent, session.principal) == (
        "10.0.0.9",
        "curl",
        None,
    )
