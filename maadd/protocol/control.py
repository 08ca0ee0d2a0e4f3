"""Messages on a front's local control socket (spec 04 §10, §13, §19).

A connection begins with one request. `Attach` apart, it is answered and the connection ends.
`Attach` is for the calls of one project: from then on the other side is like the front of that
project's worker, and this side like the worker. Each message is msgpack behind its length in four
bytes.
"""

from __future__ import annotations

import struct

import msgspec

from maadd.protocol.errors import WireError
from maadd.protocol.messages import (
    Call,
    CallProgress,
    Cancel,
    Cancelled,
    Event,
    Failed,
    Hello,
    Permit,
    PermitRequest,
    Ready,
    Reply,
    SessionEnded,
)

HEADER_BYTES = 4

MAX_MESSAGE = 64 * 1_048_576
"""Bytes of one message: the largest record (spec 04 §12.2), escaped, and room around it."""

HANDSHAKE_S = 5.0
"""How long either side waits for the first word of the other, and for a project that is
owned but cannot be reached (spec 04 §10)."""


class Status(msgspec.Struct, frozen=True, tag="status"):
    """Who are you, and what do you serve?"""


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    """Reload the instance and the tokens, and say what came of it (spec 04 §3)."""


class SyncTokens(msgspec.Struct, frozen=True, tag="sync_tokens"):
    """The token registry at `path` has changed: act by it, if it is yours, before you answer
    (spec 04 §7.3)."""

    path: str


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Calls on the project in the directory `root` will follow.

    `follow`: from another front, which also wants to hear of changes; the role of each call is
    limited by the project's ceiling here. Otherwise the local operator's command line.
    """

    root: str
    follow: bool


class ProjectStatus(msgspec.Struct, frozen=True):
    """A served project; `state` is that of its worker (spec 04 §13)."""

    name: str
    path: str
    state: str
    worker_pid: int | None


class StatusReport(msgspec.Struct, frozen=True, tag="status_report"):
    """The answer to `Status`. `started_at` is ISO 8601 in UTC."""

    pid: int
    version: str
    transport: str
    instance: str
    config_path: str | None
    started_at: str
    draining: bool
    projects: list[ProjectStatus]


class Reloaded(msgspec.Struct, frozen=True, tag="reloaded"):
    """The reload is done; `data` is the JSON of the tool's data."""

    data: bytes


class TokensSynced(msgspec.Struct, frozen=True, tag="tokens_synced"):
    """From now on no token counts here that the registry in question had ended."""


class Attached(msgspec.Struct, frozen=True, tag="attached"):
    """Calls may come. `pid` is the front's."""

    pid: int
    version: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The request is refused; the connection ends."""

    errors: list[WireError]


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """The worker died with this call."""

    request_id: str


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """This front takes no more calls; what it holds is answered yet. `removed`: of this project,
    while others are served; the other side ends the connection."""

    removed: bool = False


Request = Status | Reload | SyncTokens | Attach
ToOwner = Call | Cancel | Permit | SessionEnded
Answer = StatusReport | Reloaded | TokensSynced | Attached | Refused
FromOwner = (
    Hello
    | Ready
    | Failed
    | Reply
    | Cancelled
    | PermitRequest
    | CallProgress
    | Event
    | Lost
    | Leaving
)

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_to_owner = msgspec.msgpack.Decoder(ToOwner)
_answers = msgspec.msgpack.Decoder(Answer)
_from_owner = msgspec.msgpack.Decoder(FromOwner)


def encode(message: Request | ToOwner | Answer | FromOwner) -> bytes:
    """One message with its length."""
    body = _encoder.encode(message)
    return struct.pack(">I", len(body)) + body


def body_length(header: bytes) -> int:
    """The length that a header announces; ValueError when it is over the limit."""
    (length,) = struct.unpack(">I", header)
    if length > MAX_MESSAGE:
        raise ValueError(f"a control message of {length} bytes")
    return int(length)


def decode_request(body: bytes) -> Request:
    """The first message to a front; msgspec.MsgspecError when it is none."""
    return _requests.decode(body)


def decode_to_owner(body: bytes) -> ToOwner:
    """A further message to a front; msgspec.MsgspecError when it is none."""
    return _to_owner.decode(body)


def decode_answer(body: bytes) -> Answer:
    """The first message of a front; msgspec.MsgspecError when it is none."""
    return _answers.decode(body)


def decode_from_owner(body: bytes) -> FromOwner:
    """A further message of a front; msgspec.MsgspecError when it is none."""
    return _from_owner.decode(body)
