"""Keeps secrets out of both log channels (spec 04 §16)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any

REDACTED = "[redacted]"

_SECRET_KEY = re.compile(
    r"authorization|bearer|secret|password|passwd|api[-_ ]?key|token\Z", re.IGNORECASE
)
_TOKEN = re.compile(r"maad_pat_[0-9A-Za-z]+", re.ASCII)
_BEARER = re.compile(r"(bearer )\s*[A-Za-z0-9._~+/=-]{16,}", re.ASCII | re.IGNORECASE)

_PLAIN = frozenset({NoneType, bool, int, float})
"""Types of which no value holds a secret."""


_LONGEST = 4096
"""Characters of a value that stay: what clients send may be as long as they like."""


def scrub_text(text: str) -> str:
    """`text` without bearer tokens, whole or cut short; the texts around them stay."""
    if "maad_pat_" in text:
        text = _TOKEN.sub(f"maad_pat_{REDACTED}", text)
    if "earer " in text or "EARER " in text:
        text = _BEARER.sub(rf"\1{REDACTED}", text)
    return text


def is_secret_key(key: str) -> bool:
    """Whether a member of that name holds a secret: `token` does, `token_id` does not."""
    return _SECRET_KEY.search(key) is not None


@functools.lru_cache(maxsize=1024)
def _judged_name(key: str) -> tuple[str, bool]:
    """The name of a member as it is shown, and whether the member holds a secret."""
    return scrub_text(key), is_secret_key(key)


def scrub_members(members: Mapping[str, Any]) -> dict[str, Any]:
    """`members` as JSON data without secrets, at any depth."""
    scrubbed: dict[str, Any] = {}
    for key, value in members.items():
        name, is_secret = _judged_name(key)
        if is_secret:
            scrubbed[name] = REDACTED
        elif type(value) is str:
            scrubbed[name] = _cut(scrub_text(value))
        else:
            scrubbed[name] = value if type(value) in _PLAIN else scrub_value(value)
    return scrubbed


def scrub_value(value: Any) -> Any:
    """`value` as JSON data without secrets; what is no JSON data becomes its scrubbed text."""
    if isinstance(value, str):
        return _cut(scrub_text(str(value)))
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return scrub_members({str(key): item for key, item in value.items()})
    if isinstance(value, (list, tuple, set, frozenset)):
        return [scrub_value(item) for item in value]
    if isinstance(value, bytes):
        return _cut(scrub_text(value.decode("utf-8", "replace")))
    return _cut(scrub_text(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
