"""From worker events to the queues of subscribed sessions (spec 04 §11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.protocol.messages import Event
from maadd.protocol.roles import Role
from maadd.sessions.binding import bind_multi, bind_single
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.notifier import ChangeNotifier
from maadd.sessions.record_uri import RecordUri
from maadd.sessions.session import Session, Subscription

STAMP = "2031-01-01T00:00:00.000Z"


class Wire:
    """A notifier over a session table; `heard` waits for what a session is told."""

    def __init__(self, bench: Any, instance: Any) -> None:
        self.bench = bench
        self.instance = instance
        self.live: dict[str, TokenRecord | None] = {}
        self.count = 0
        self.notifier = ChangeNotifier(
            self, bench.table, lambda token: self.live.get(token.id, token), bench.log, window_s=0
        )

    def subscriber(
        self,
        *projects: str,
        doc_types: tuple[str, ...] | None = None,
        only: str | None = None,
        watched: tuple[str, ...] = (),
        limit: int = 100,
        owner: TokenRecord | None = None,
    ) -> Session:
        """A session with an open stream, bound to `projects`."""
        session = self.bench.open(f"s-{len(self.bench.table)}", owner)
        session.notices = NoticeQueue(limit)
        session.notices.attach()
        if len(projects) == 1:
            session.binding = bind_single(session, projects[0], None, self.instance, session.token)
        elif projects:
            session.binding = bind_multi(session, projects, None, self.instance, session.token)
        session.watched = {RecordUri.parse(uri) for uri in watched}
        if not watched:
            session.subscription = Subscription(doc_types, only, STAMP)
        return session

    def tell(self, project: str, *actions: str, doc_type: str = "note") -> None:
        """Events as in `create a`, `update b`; numbered one after the other."""
        for action in actions:
            self.count += 1
            verb, doc_id = action.split()
            event = Event(self.count, verb, doc_id, doc_type, STAMP, "tool")
            self.notifier.take(project, event)


async def heard(session: Session) -> list[dict[str, Any]]:
    """The params of everything that the session is told next."""
    batch = await session.notices.take(5)
    assert batch is not None
    messages = [json.loads(notice) for notice in batch]
    assert {message["method"] for message in messages} <= {"notifications/resources/updated"}
    return [message["params"] for message in messages]


def told(params: list[dict[str, Any]]) -> list[str]:
    return [f"{one['action']} {one.get('docId', one['uri'])}" for one in params]


@pytest.fixture
def run(make_bench: Any, make_instance: Any) -> Callable[..., None]:
    """Runs a scenario on a wire over the projects alpha and beta."""

    def runner(scenario: Callable[[Wire], Awaitable[None]], **roles: Role) -> None:
        instance = make_instance(**(roles or {"alpha": Role.ADMIN, "beta": Role.READER}))

        async def inside() -> None:
            await scenario(Wire(make_bench(), instance))

        asyncio.run(inside())

    return runner


def test_a_notification_tells_what_happened_where_and_by_whom(run):
    async def scenario(wire: Wire) -> None:
        session = wire.subscriber("alpha")
        wire.notifier.take("alpha", Event(7, "update", "nte-1", "note", STAMP, "external"))
        assert await heard(session) == [
            {
                "uri": "maad://alpha/nte-1",
                "action": "update",
                "docId": "nte-1",
                "docType": "note",
                "project": "alpha",
                "updatedAt": STAMP,
                "seq": 7,
                "origin": "external",
            }
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (["update a", "update a"], ["update a"]),
        (["create a", "update a"], ["create a"]),
        (["create a", "update a", "update a"], ["create a"]),
        (["create a", "delete a"], []),
        (["create a", "update a", "delete a"], []),
        (["create a", "delete a", "create a"], ["create a"]),
        (["update a", "delete a"], ["delete a"]),
        (["delete a", "create a"], ["create a"]),
        (["delete a", "create a", "delete a"], ["delete a"]),
        (["create a", "create b", "update a"], ["create b", "create a"]),
    ],
)
def test_events_of_one_record_within_the_window_become_one(run, actions, expected):
    async def scenario(wire: Wire) -> None:
        session = wire.subscriber("alpha")
        wire.tell("alpha", *actions, "update last")
        params = await heard(session)
        assert told(params) == [*expected, "update last"]
        numbers = [one["seq"] for one in params]
        assert numbers == sorted(set(numbers))

    run(scenario)


def test_numbers_grow_also_over_a_rebuilt_index(run):
    async def scenario(wire: Wire) -> None:
        session = wire.subscriber("alpha")
        for seq in (40, 41, 1, 2):
            wire.notifier.take("alpha", Event(seq, "update", f"d-{seq}", "note", STAMP, "tool"))
        assert [one["seq"] for one in await heard(session)] == [40, 41, 42, 43]

    run(scenario)


def test_each_subscription_hears_its_types_and_projects(run):
    async def scenario(wire: Wire) -> None:
        everything = wire.subscriber("alpha", "beta")
        one_project = wire.subscriber("alpha", "beta", only="beta")
        one_type = wire.subscriber("alpha", doc_types=("task",))
        elsewhere = wire.subscriber("beta", doc_types=("note",))
        wire.tell("alpha", "create a")
        wire.tell("alpha", "create t", doc_type="task")
        wire.tell("beta", "create b")
        assert told(await heard(everything)) == ["create a", "create t", "create b"]
        assert told(await heard(one_project)) == ["create b"]
        assert told(await heard(one_type)) == ["create t"]
        assert told(await heard(elsewhere)) == ["create b"]

    run(scenario)


def test_resources_are_watched_by_record_or_by_project(run):
    async def scenario(wire: Wire) -> None:
        record = wire.subscriber("alpha", "beta", watched=("maad://alpha/a", "maad://beta/b"))
        project = wire.subscriber("alpha", "beta", watched=("maad://alpha",))
        wire.tell("alpha", "update a", "update z")
        wire.tell("beta", "update z", "update b")
        assert told(await heard(record)) == ["update a", "update b"]
        assert told(await heard(project)) == ["update a", "update z"]

    run(scenario)


def test_a_record_that_is_wanted_twice_is_told_once(run):
    async def scenario(wire: Wire) -> None:
        session = wire.subscriber("alpha", watched=("maad://alpha", "maad://alpha/a"))
        session.subscription = Subscription(None, None, STAMP)
        wire.tell("alpha", "update a")
        assert told(await heard(session)) == ["update a"]

    run(scenario)


def test_who_may_not_read_any_more_hears_nothing(run, make_token):
    async def scenario(wire: Wire) -> None:
        tokens = {name: make_token(name) for name in ("dead", "narrowed", "alive")}
        dead, narrowed, alive = (wire.subscriber("alpha", owner=one) for one in tokens.values())
        unbound, cancelled = wire.subscriber(), wire.subscriber("alpha")
        cancelled.cancelled = True
        wire.live["dead"] = None
        wire.live["narrowed"] = msgspec.structs.replace(
            tokens["narrowed"], projects=(ProjectGrant("beta"),)
        )
        wire.tell("alpha", "create a")
        assert told(await heard(alive)) == ["create a"]
        for session in (dead, narrowed, unbound, cancelled):
            assert await session.notices.take(0) == []

    run(scenario)


def test_a_removed_project_is_silent(run, make_instance):
    async def scenario(wire: Wire) -> None:
        session = wire.subscriber("alpha", "beta")
        wire.tell("alpha", "create a")
        wire.instance = make_instance(beta=Role.READER)
        wire.tell("beta", "create b")
        assert told(await heard(session)) == ["create b"]

    run(scenario)


def test_a_session_without_a_stream_misses_events(run):
    async def scenario(wire: Wire) -> None:
        away, present = wire.subscriber("alpha"), wire.subscriber("alpha")
        away.notices.detach()
        wire.tell("alpha", "create a")
        await heard(present)
        away.notices.attach()
        wire.tell("alpha", "create b")
        assert told(await heard(away)) == ["create b"]

    run(scenario)


def test_a_full_queue_becomes_one_resync_for_each_project_that_lost_events(run):
    async def scenario(wire: Wire) -> None:
        slow, quick = wire.subscriber("alpha", "beta", limit=3), wire.subscriber("alpha")
        slow.notices.offer(b'{"method":"notifications/tools/list_changed"}')
        wire.tell("beta", "create b")
        wire.tell("alpha", "create 1", "create 2", "create 3")
        assert len(await heard(quick)) == 3
        batch = await slow.notices.take(5)
        assert batch is not None
        other, *resyncs = [json.loads(notice) for notice in batch]
        assert other == {"method": "notifications/tools/list_changed"}
        assert [one["params"] for one in resyncs] == [
            {
                "uri": f"maad://{name}",
                "action": "resync",
                "project": name,
                "updatedAt": one["params"]["updatedAt"],
                "seq": seq,
            }
            for name, seq, one in zip(("alpha", "beta"), (4, 1), resyncs, strict=True)
        ]
        wire.tell("alpha", "update 1")
        assert [one["seq"] for one in await heard(slow)] == [5]
        (line,) = wire.bench.events
        assert (line["category"], line["operation"]) == ("notify", "deliver")
        assert (line["session_id"], line["project"], line["limit"]) == (slow.id, "alpha", 3)

    run(scenario)


def test_a_flood_does_not_wait_for_the_end_of_the_window(run):
    async def scenario(wire: Wire) -> None:
        session = wire.subscriber("alpha", limit=5000)
        wire.notifier = ChangeNotifier(
            wire, wire.bench.table, lambda token: token, wire.bench.log, window_s=3600
        )
        wire.tell("alpha", *(f"create d-{number}" for number in range(1024)))
        assert len(await heard(session)) == 1024

    run(scenario)
