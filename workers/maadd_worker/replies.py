"""From what a tool raises or hands back to the reply on the wire (spec 04 §1)."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.messages import Call, Reply
from maadd_worker.index.connection import backend_error
from maadd_worker.outcome import Outcome, with_warnings

_encode = msgspec.json.encode


def reply_of(call: Call, answer: Callable[[], Outcome]) -> Reply:
    """Run `answer`; domain failures and those of SQLite become replies."""
    try:
        return success_reply(call.request_id, answer())
    except (MaadError, MaadErrors) as failure:
        return failure_reply(call.request_id, failure)
    except apsw.InterruptError:
        error = MaadError(
            "REQUEST_TIMEOUT",
            f"{call.tool} did not end within {call.deadline_ms} ms",
            {"tool": call.tool, "limitMs": call.deadline_ms},
        )
    except apsw.Error as failure:
        error = backend_error(failure, "used")
    return failure_reply(call.request_id, error)


def success_reply(request_id: str, outcome: Outcome) -> Reply:
    """The answer of a call that did what it should."""
    return Reply(
        request_id,
        ok=True,
        body=_encode(outcome.data),
        meta=with_warnings(outcome.meta, outcome.warnings),
        rows=outcome.rows,
        audit=outcome.audit,
    )


def failure_reply(request_id: str, failure: MaadError | MaadErrors) -> Reply:
    """The answer of a call that failed."""
    errors = errors_of(failure)
    return Reply(
        request_id, ok=False, body=_encode([error.wire() for error in errors]),
        error_code=errors[0].code,
    )  # fmt: skip
