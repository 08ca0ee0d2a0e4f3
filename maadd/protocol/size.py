"""The envelope of a success and the MCP result around it, with its size (spec 04 §1.1, 05 §8.2).

The envelope text is compact JSON, so the only characters that need escaping inside the result's
string are `"` and `\\`: JSON text holds no raw control characters, and non-ASCII stays as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.encode

_HEAD = b'{"content":[{"type":"text","text":"'
_TAIL = b'"}]'
_STRUCTURED = b',"structuredContent":'
_IS_ERROR = b',"isError":true'
_END = b"}"


def success_text(data: bytes, *, source: str | None, meta: dict[str, Any] | None) -> bytes:
    """`{"ok":true,"data":…,"_source"?,"_meta"?}` around finished JSON."""
    return b"".join((b'{"ok":true,"data":', data, envelope_tail(source, meta)))


def envelope_tail(source: str | None, meta: dict[str, Any] | None) -> bytes:
    """What closes every envelope."""
    parts: list[bytes] = []
    if source is not None:
        parts += (b',"_source":', _encode(source))
    if meta:
        parts += (b',"_meta":', _encode(meta))
    parts.append(b"}")
    return b"".join(parts)


def result_size(text: bytes, *, is_error: bool = False, structured: bool = False) -> int:
    """UTF-8 bytes of `encode_result` with the same arguments."""
    size = len(_HEAD) + len(text) + text.count(b'"') + text.count(b"\\") + len(_TAIL) + len(_END)
    if structured:
        size += len(_STRUCTURED) + len(text)
    return size + len(_IS_ERROR) if is_error else size


def encode_result(text: bytes, *, is_error: bool = False, structured: bool = False) -> bytes:
    """The JSON of the MCP result object around an envelope.

    `text` is the envelope's compact JSON in UTF-8. `structured` repeats the envelope as
    `structuredContent`.
    """
    escaped = text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b"".join(
        (
            _HEAD,
            escaped,
            _TAIL,
            _STRUCTURED + text if structured else b"",
            _IS_ERROR if is_error else b"",
            _END,
        )
    )
