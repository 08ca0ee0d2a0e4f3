"""The grammar of document ids (spec 01 §10, 03 §3.2)."""

from __future__ import annotations

import re

MAX_DOC_ID_LENGTH = 128
"""In code points."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_GRAMMAR = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE | re.ASCII)

_REASONS = {
    "EMPTY": "must be a text that is not empty",
    "TOO_LONG": f"is longer than {MAX_DOC_ID_LENGTH} characters",
    "CONTROL_CHARS": "contains control characters",
    "LEADING_DOT": "starts with a dot",
    "CONTAINS_DOTDOT": "contains `..`",
    "INVALID_CHARS": "may hold ASCII letters, digits, `.`, `_` and `-`, "
    "a letter or digit at both ends",
    "WINDOWS_RESERVED": "is a device name on Windows",
}


def doc_id_fault(value: object, *, stem: bool = False) -> str | None:
    """The reason why `value` is no document id, or None.

    With `stem` the part before the first dot may not be a device name either: a rule for new
    records only, so that records which exist keep working.
    """
    if not isinstance(value, str) or not value:
        return "EMPTY"
    sound = len(value) <= MAX_DOC_ID_LENGTH and _GRAMMAR.fullmatch(value) and ".." not in value
    if not sound:
        return _form_fault(value)
    if _RESERVED.fullmatch(value.partition(".")[0] if stem else value):
        return "WINDOWS_RESERVED"
    return None


def _form_fault(value: str) -> str:
    """What is wrong with an id that is too long or breaks the grammar; the first that applies."""
    if len(value) > MAX_DOC_ID_LENGTH:
        return "TOO_LONG"
    if _CONTROL.search(value):
        return "CONTROL_CHARS"
    if value.startswith("."):
        return "LEADING_DOT"
    if ".." in value:
        return "CONTAINS_DOTDOT"
    return "INVALID_CHARS"


def describe_fault(reason: str) -> str:
    """What a reason of `doc_id_fault` says, as the end of a sentence that starts with the id."""
    return _REASONS[reason]
