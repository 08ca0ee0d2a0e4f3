"""The answer envelope of every tool, as bytes (spec 04 §1).

`data` and `errors` come as finished JSON, so an answer is put together, never re-parsed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.bounded_errors import bounded
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.size import envelope_tail

_LONGEST_ERRORS = 16_384
"""Bytes up to which errors are answered as they are."""

_encode = msgspec.json.encode


class CallResult(msgspec.Struct, frozen=True):
    """The end of a call: `text` is the envelope as compact JSON in UTF-8."""

    text: bytes
    is_error: bool


class FrontAnswer(msgspec.Struct, frozen=True):
    """What a tool that the front answers itself has to say.

    `rehearsed`: the server runs dry, the call was judged and nothing done; there is no data.
    """

    data: dict[str, Any] | None
    meta: dict[str, Any] | None = None
    rehearsed: bool = False


def dry_run(
    tool: str,
    would_execute: object,
    data: bytes,
    *,
    source: str | None,
    meta: dict[str, Any] | None,
) -> bytes:
    """The answer of a server in dry-run mode; `data` may be empty (spec 03 §2.4)."""
    parts = [
        b'{"ok":true,"dryRun":true,"tool":',
        _encode(tool),
        b',"wouldExecute":',
        _encode(would_execute),
    ]
    if data:
        parts += (b',"data":', data)
    parts.append(envelope_tail(source, meta))
    return b"".join(parts)


def failure(failures: MaadError | MaadErrors, *, meta: dict[str, Any] | None) -> bytes:
    """`{"ok":false,"errors":[…],"_meta"?}`; errors that repeat too much of the call are cut."""
    errors = [error.wire() for error in errors_of(failures)]
    text = _encode(errors)
    if len(text) > _LONGEST_ERRORS:
        text = _encode([bounded(error) for error in errors])
    return b"".join((b'{"ok":false,"errors":', text, envelope_tail(None, meta)))
