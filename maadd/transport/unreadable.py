"""What can be told of a line that is no JSON-RPC message: whose it is, and why."""

from __future__ import annotations

import re

import msgspec

from maadd.transport.messages import MessageId

_TOKEN = re.compile(
    rb'"(?P<text>[^"\\]*(?:\\.[^"\\]*)*)\\?(?:"|\Z)|(?P<open>[\[{])|(?P<close>[\]}])'
    rb"|(?P<colon>:)|(?P<comma>,)|(?P<number>[^\s\[\]{},:\"]+)",
    re.DOTALL,
)

_LONGEST_REASON = 120


def readable_id(line: bytes) -> MessageId | None:
    """The id of the request that a line was to be, when it can be read in spite of what is wrong
    elsewhere. The client would wait for ever for an answer without it."""
    if b'"method"' not in line:
        return None
    depth = 0
    name: bytes | None = None
    is_value = False
    for token in _TOKEN.finditer(line):
        kind = token.lastgroup
        if kind == "open":
            depth += 1
            if depth == 1 and token[0] != b"{":
                return None  # a batch
        elif kind == "close":
            depth -= 1
            if depth == 0:
                return None
        elif depth == 1 and kind in ("colon", "comma"):
            is_value = kind == "colon"
        elif depth == 1 and is_value and name == b"id":
            # The last token may be only the begin of one.
            return _id(token[0]) if token.end() < len(line) else None
        elif depth == 1 and not is_value:
            name = token["text"]
    return None


def _id(text: bytes) -> MessageId | None:
    try:
        return msgspec.json.decode(text, type=MessageId)
    except (ValueError, RecursionError):
        return None


def reason_of(fault: ValueError) -> str:
    """Why it is none, in one short line."""
    text = str(fault)
    if "recursion" in text:
        return "it is nested too deep"
    return text[:_LONGEST_REASON]
