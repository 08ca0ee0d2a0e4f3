"""uvicorn's HTTP/1.1 protocol with bounds on how long and how large a request may come in."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from maadd.transport.replies import CLOSE, WHOLE_ANSWERS, Answer, Headers, refusal

MAX_HEAD_BYTES = 65_536
"""Request line and headers, and what follows the last byte of a body: trailers, which nobody here
reads; counted from the second packet on, so up to one packet more."""

_UNREADABLE = refusal("BAD_REQUEST", "this is no HTTP request that can be understood", CLOSE)
_NO_HOST = refusal("BAD_REQUEST", "the request must have one Host header, with a host", CLOSE)
_HEAD_TOO_LARGE = refusal("BAD_REQUEST", "the request headers are too large", CLOSE, status=431)
_TOO_SLOW = refusal("REQUEST_TIMEOUT", "the request took too long to arrive", CLOSE, status=408)

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:\d*)?", re.ASCII)
"""A host and perhaps a port; nothing at all is what a client without an authority sends."""


class _Receiving(enum.Enum):
    HEAD = 1
    BODY = 2
    NOTHING = 3


class _HostError(Exception):
    """The request names no host, or more than one, or one that is none (RFC 9112 §3.2)."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection; `close_if_overdue`, asked from time to time, spares requests a timer.

    `on_refused` hears the code of every answer given in the application's place.
    """

    def __init__(self, on_refused: Callable[[str], None], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_refused = on_refused
        self._receiving = _Receiving.HEAD
        self._since = self.loop.time()
        self._head_bytes = 0
        self._got_body = False
        self._unreadable = _UNREADABLE

    def data_received(self, data: bytes) -> None:
        before = self._receiving
        self._got_body = False
        super().data_received(data)
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
        if not self._names_its_host():
            self._unreadable = _NO_HOST
            # The parser ends with it, and the connection with `send_400_response`.
            raise _HostError
        super().on_headers_complete()
        self._receiving = _Receiving.BODY
        self._head_bytes = 0
        # Trailers must not join what the application has.
        self.headers = []
        scope: Any = self.scope
        scope["extensions"] = {WHOLE_ANSWERS: partial(self._answer_whole, self.cycle)}

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._receiving = _Receiving.NOTHING

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._unreadable)

    def close_if_overdue(self, headers_s: float, request_s: float) -> None:
        """End a connection whose request has not come in within these times (spec 04 §9.7)."""
        if self._receiving is _Receiving.NOTHING:
            return
        limit = headers_s if self._receiving is _Receiving.HEAD else request_s
        if self.loop.time() - self._since > limit:
            self._refuse(_TOO_SLOW)

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

    def _names_its_host(self) -> bool:
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) == 1:
            return _HOST.fullmatch(hosts[0].strip()) is not None
        return not hosts and self.parser.get_http_version() == "1.0"

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
            return not cycle.response_started
        return bool(cycle.response_complete)
