"""Replies that the process itself gives, without the engine."""

from __future__ import annotations

import traceback

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, Reply

_OVERLOADED_RETRY_MS = 500


def error_reply(request_id: str, error: MaadError) -> Reply:
    """A failed call with one error."""
    body = msgspec.json.encode([error.wire()])
    return Reply(request_id, ok=False, body=body, error_code=error.code)


def internal_failure(call: Call, write_outcome: str | None) -> Reply:
    """An exception that should not happen; its text stays in the log, under the request id."""
    details = None if write_outcome is None else {"writeOutcome": write_outcome}
    return error_reply(
        call.request_id,
        MaadError(
            "INTERNAL",
            f"{call.tool} failed unexpectedly; the server's log has it under {call.request_id}",
            details,
        ),
    )


def queue_full(call: Call, limit: int) -> Reply:
    """The bounded queue has no room (spec 04 §13)."""
    details = {"reason": "worker_queue", "limit": limit, "retryAfterMs": _OVERLOADED_RETRY_MS}
    return error_reply(
        call.request_id,
        MaadError("OVERLOADED", "too many calls wait for this project; retry later", details),
    )


def read_timed_out(call: Call) -> Reply:
    """A read that its deadline or a Cancel ended."""
    details = {"tool": call.tool, "limitMs": call.deadline_ms}
    return error_reply(
        call.request_id,
        MaadError("REQUEST_TIMEOUT", f"{call.tool} was ended before it was finished", details),
    )


def write_waited_too_long(call: Call, waited_ms: int, queue_depth: int) -> Reply:
    """A write that the writer did not come to in time (spec 03 §2.2)."""
    details = {"waitedMs": waited_ms, "queueDepth": queue_depth}
    return error_reply(
        call.request_id,
        MaadError("WRITE_TIMEOUT", f"{call.tool} waited too long; nothing was written", details),
    )


def stack_of(error: BaseException) -> list[str]:
    """Where an exception comes from, without its text, which may quote data."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
