"""Document ids: grammar and automatic allocation (spec 01 §10, 03 §3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.blocks import slug
from maadd_worker.schema.registry import TypeEntry

MAX_DOC_ID_LENGTH = 128
"""In code points."""

MAX_SLUG_LENGTH = 40
SEQUENCE_DIGITS = 3

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_GRAMMAR = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE | re.ASCII)
_LEADING_DIGITS = re.compile(r"[0-9]+")

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


def check_doc_id(value: object) -> None:
    """Refuse what may not become the id of a new record: INVALID_DOC_ID `{reason}`."""
    reason = doc_id_fault(value, stem=True)
    if reason is None:
        return
    shown = ascii(value[:MAX_DOC_ID_LENGTH]) if isinstance(value, str) else "the id"
    raise MaadError("INVALID_DOC_ID", f"docId {shown} {_REASONS[reason]}", {"reason": reason})


def has_type_prefix(entry: TypeEntry, doc_id: str) -> bool:
    """Whether refs to the record can pass the prefix rule of the type."""
    return doc_id.startswith(f"{entry.id_prefix}-")


def slug_id(entry: TypeEntry, fields: Mapping[str, object]) -> str | None:
    """`<prefix>-<slug>` of `name`, else of `title`; None when neither gives a slug.

    The slug is cut to 40 characters and never ends in a hyphen.
    """
    for key in ("name", "title"):
        text = fields.get(key)
        if isinstance(text, str):
            cut = slug(text)[:MAX_SLUG_LENGTH].rstrip("-")
            return f"{entry.id_prefix}-{cut}" if cut else None
    return None


def sequence_prefix(entry: TypeEntry, year: int) -> str:
    """What the sequence ids of a type and (UTC) year begin with: `inv-2026-`."""
    return f"{entry.id_prefix}-{year:04d}-"


def next_sequence(prefix: str, existing_ids: Iterable[str]) -> str:
    """The id after the highest of `existing_ids` that continue `prefix` with digits.

    `…-014-old` counts as 14; other ids are passed over. At least three digits.
    """
    highest = 0
    start = len(prefix)
    for doc_id in existing_ids:
        if doc_id.startswith(prefix) and (digits := _LEADING_DIGITS.match(doc_id, start)):
            highest = max(highest, int(digits[0]))
    return f"{prefix}{highest + 1:0{SEQUENCE_DIGITS}d}"
