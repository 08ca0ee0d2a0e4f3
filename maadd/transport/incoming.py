"""One HTTP request to `/mcp` that passed the checks of who may ask, and how it can end early."""

from __future__ import annotations

import asyncio

from maadd.auth.record import TokenRecord
from maadd.config.rules import TrustProxy
from maadd.sessions.session import Session
from maadd.transport.head import Head, Pin
from maadd.transport.replies import Answer, Receive, Reply, Scope

_WATCH_AFTER_S = 0.05
"""A request that takes longer is worth a task that notices when its client has gone."""

KEEP_ALIVE_S = 25.0
"""A comment goes out on an open stream after so long a silence (spec 04 §9.7)."""


class RefusedError(Exception):
    """The request ends here, with this answer; `reason` is for the metrics alone."""

    def __init__(self, answer: Answer, reason: str = "") -> None:
        super().__init__(answer.status)
        self.answer = answer
        self.reason = reason


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class Incoming:
    """A request with what is known of its sender."""

    __slots__ = ("head", "pin", "receive", "reply", "scope", "session", "token")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        reply: Reply,
        head: Head,
        token: TokenRecord,
        pin: Pin | None,
        session: Session | None,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.reply = reply
        self.head = head
        self.token = token
        self.pin = pin
        self.session = session


def remote_address(scope: Scope, head: Head, trust: TrustProxy) -> str:
    """Where a request comes from: an address, or `unix` on the unix transport."""
    client = scope.get("client")
    return "unix" if client is None else head.remote_address(client[0], trust)


class DisconnectWatch:
    """Around the answering of a request: cancels it when its client goes away meanwhile.

    The cancellation ends at the edge of the `with` block; `disconnected` tells. While it
    lasts, `reply` (None for clients that take no events) is kept open with comments.
    """

    __slots__ = ("_receive", "_reply", "_task", "_timer", "_watcher", "disconnected")

    def __init__(self, receive: Receive, reply: Reply | None) -> None:
        self._receive = receive
        self._reply = reply
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher: asyncio.Task[None] | None = None
        self.disconnected = False

    def __enter__(self) -> DisconnectWatch:
        self._timer = self._task.get_loop().call_later(_WATCH_AFTER_S, self._start)
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> bool:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if not self.disconnected or raised is not asyncio.CancelledError:
            return False
        self._task.uncancel()
        return True

    def _start(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    message = await self._receive()
            except TimeoutError:
                if self._reply is not None:
                    await self._reply.keep_alive()
                continue
            if message["type"] == "http.disconnect":
                self.disconnected = True
                self._task.cancel()
                return
