"""uvicorn's HTTP/1.1 protocol with bounds on how long and how large a request may come in."""

from __future__ import annotations

import asyncio
import enum
import re
import select
from collections.abc import Callable
from functools import partial
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from maadd.transport.head import PROTOCOL_VERSION, STATELESS_VERSIONS
from maadd.transport.replies import CLOSE, WHOLE_ANSWERS, Answer, Headers, refusal

MAX_HEAD_BYTES = 65_536
"""Request line and headers, and what follows the last byte of a body: trailers, which nobody here
reads; counted from the second packet on, so up to one packet more."""

HALF_CLOSED_S = 5.0
"""How long an answer may still take when its client sends no more, and nothing tells whether it
waits or has left. The handshake revisions do not withdraw a request by leaving."""

_UNREADABLE = refusal("BAD_REQUEST", "this is no HTTP request that can be understood", CLOSE)
_NO_HOST = refusal("BAD_REQUEST", "the request must have one Host header, with a host", CLOSE)
_NO_TUNNEL = refusal("BAD_REQUEST", "this is no proxy: CONNECT is not served", CLOSE, status=501)
_OTHER_VERSION = refusal("BAD_REQUEST", "only HTTP/1.0 and 1.1 are served", CLOSE, status=505)
_CHUNKED_IN_1_0 = refusal("BAD_REQUEST", "HTTP/1.0 has no Transfer-Encoding", CLOSE)
_OTHER_CODING = refusal(
    "BAD_REQUEST", "the only Transfer-Encoding understood is chunked", CLOSE, status=501
)
_HEAD_TOO_LARGE = refusal("BAD_REQUEST", "the request headers are too large", CLOSE, status=431)
_TOO_SLOW = refusal("REQUEST_TIMEOUT", "the request took too long to arrive", CLOSE, status=408)

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:\d*)?", re.ASCII)
"""A host and perhaps a port; nothing at all is what a client without an authority sends."""


class _Receiving(enum.Enum):
    HEAD = 1
    BODY = 2
    NOTHING = 3


class _HeadError(Exception):
    """The request cannot be served whatever its body; `_unreadable` has the answer."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection; `close_if_overdue`, asked from time to time, spares requests a timer.

    uvicorn's `cycle` is the request that came in last; `_answering` is the one that the
    application has, behind which others may wait. `on_refused` hears the code of every answer
    given in the application's place.
    """

    def __init__(self, on_refused: Callable[[str], None], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_refused = on_refused
        self._receiving = _Receiving.HEAD
        self._since = self.loop.time()
        self._head_bytes = 0
        self._got_body = False
        self._unreadable = _UNREADABLE
        self._answering: Any = None
        self._giving_up: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        before = self._receiving
        self._got_body = False
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError:
            self._refuse(self._unreadable)
            return
        if before is self._receiving is not _Receiving.NOTHING:
            self._head_bytes = 0 if self._got_body else self._head_bytes + len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(_HEAD_TOO_LARGE)

    def on_body(self, body: bytes) -> None:
        self._got_body = True
        super().on_body(body)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving = _Receiving.HEAD
        self._since = self.loop.time()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        fault = self._fault_of_head()
        if fault is not None:
            self._unreadable = fault
            # The parser ends with it, and the connection with what `_parse` raises.
            raise _HeadError
        if self.parser.should_upgrade():
            return  # `_parse` asks again
        super().on_headers_complete()
        if len(self.pipeline) == 1:
            # Reading goes on, to notice when the client leaves; its body stays bounded.
            self.flow.resume_reading()
        self._receiving = _Receiving.BODY
        self._head_bytes = 0
        # Trailers must not join what the application has.
        self.headers = []
        scope: Any = self.scope
        scope["extensions"] = {WHOLE_ANSWERS: partial(self._answer_whole, self.cycle)}

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._receiving = _Receiving.NOTHING

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool
        """Keep our half open for a client that closed its own, while it can be waiting."""
        cycle = self._answering
        if cycle is None or cycle.response_complete or self._withdraws_by_closing():
            return False
        if cycle is self.cycle and self._receiving is _Receiving.BODY:
            return False
        self.cycle.keep_alive = False
        self._give_up_soon()
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
            if self.pipeline:
                self._give_up_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._giving_up is not None:
            self._giving_up.cancel()
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def close_if_overdue(self, headers_s: float, request_s: float) -> None:
        """End a connection whose request has not come in within these times (spec 04 §9.7), or
        whose client left while nothing was read."""
        if self.flow.read_paused and _sends_no_more(self.transport):
            if self._withdraws_by_closing():
                self.transport.close()
            else:
                self._give_up_soon()
        if self._receiving is _Receiving.NOTHING:
            return
        limit = headers_s if self._receiving is _Receiving.HEAD else request_s
        if self.loop.time() - self._since > limit:
            self._refuse(_TOO_SLOW)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _withdraws_by_closing(self) -> bool:
        """Whether events are being sent, or are what the revision sends: whoever closes them,
        if only a half, no longer wants them."""
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return False
        if cycle.response_started and cycle.chunked_encoding:
            return True
        return any(
            name == PROTOCOL_VERSION and value.strip() in STATELESS_VERSIONS
            for name, value in cycle.scope["headers"]
        )

    def _give_up_soon(self) -> None:
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(HALF_CLOSED_S, self._give_up)

    def _give_up(self) -> None:
        self._giving_up = None
        if self.flow.write_paused:
            self._give_up_soon()  # it still reads an answer; of one that left, we would know
        else:
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        """Parse what came in, ignoring every offer of another protocol (RFC 9110 §7.8).

        The parser takes whatever follows such an offer for that protocol, not for the body: so
        the head is parsed once more without it. Raises HttpParserError.
        """
        # No copy for each of the offers that one packet may hold.
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            head = self._head_without_upgrade()
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(head)

    def _head_without_upgrade(self) -> bytes:
        asked = self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        kept = [header for header in self.headers if header[0] != b"upgrade"]
        return b"".join((b"%s %s HTTP/%s\r\n" % asked, *(b"%s: %s\r\n" % h for h in kept), b"\r\n"))

    def _answer_whole(self, cycle: Any, status: int, headers: Headers, body: bytes) -> bool:
        """Send a whole answer in one write; False, and nothing sent, where the connection closes
        or has to wait, or nobody wants the body: uvicorn's way of sending knows about those."""
        closes = not cycle.keep_alive or cycle.disconnected or CLOSE in headers
        if closes or self.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        # It leads back to the cycle, which would live until the collector finds it.
        del cycle.scope["extensions"]
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        lines = [b"%s: %s\r\n" % header for header in self.server_state.default_headers]
        lines += [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(
            b"".join((STATUS_LINE[status], *lines, b"content-length: %d\r\n\r\n" % len(body), body))
        )
        cycle.message_event.set()
        cycle.on_response()
        return True

    def _fault_of_head(self) -> Answer | None:
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            return _OTHER_VERSION
        if self.parser.get_method() == b"CONNECT":
            return _NO_TUNNEL
        # One Host, with a host (RFC 9112 §3.2).
        hosts = self._values(b"host")
        if len(hosts) > 1 or (version == "1.1" and not hosts):
            return _NO_HOST
        if hosts and _HOST.fullmatch(hosts[0]) is None:
            return _NO_HOST
        # Whoever is in front may see another end of the body (RFC 9112 §6.1).
        codings = self._values(b"transfer-encoding")
        if codings and version == "1.0":
            return _CHUNKED_IN_1_0
        if codings and [coding.lower() for coding in codings] != [b"chunked"]:
            return _OTHER_CODING
        return None

    def _values(self, name: bytes) -> list[bytes]:
        return [value.strip() for found, value in self.headers if found == name]

    def _refuse(self, answer: Answer) -> None:
        """Answer in the place of the application, unless it began to, and close."""
        if self.transport.is_closing():
            return
        if self._may_answer():
            self._on_refused(answer.code)
            length = (b"content-length", b"%d" % len(answer.body))
            headers = [*self.server_state.default_headers, *answer.headers, length]
            lines = [b"%s: %s\r\n" % header for header in headers]
            self.transport.write(
                b"".join((STATUS_LINE[answer.status], *lines, b"\r\n", answer.body))
            )
        self.transport.close()

    def _may_answer(self) -> bool:
        cycle: Any = self.cycle
        if cycle is None:
            return True
        if self._receiving is _Receiving.BODY:
            return cycle is self._answering and not cycle.response_started
        return bool(cycle.response_complete)


def _sends_no_more(transport: asyncio.Transport) -> bool:
    """Whether the other side closed, also when there is something before the end to read."""
    if transport.is_closing():
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))
