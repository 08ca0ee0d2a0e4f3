"""Document ids of new records: the check of a given one, and automatic allocation (03 §3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from maadd.protocol.doc_ids import MAX_DOC_ID_LENGTH, describe_fault, doc_id_fault
from maadd.protocol.errors import MaadError
from maadd_worker.markdown.blocks import slug
from maadd_worker.schema.registry import TypeEntry

MAX_SLUG_LENGTH = 40
SEQUENCE_DIGITS = 3

_LEADING_DIGITS = re.compile(r"[0-9]+")


def check_doc_id(value: object) -> None:
    """Refuse what may not become the id of a new record: INVALID_DOC_ID `{reason}`."""
    reason = doc_id_fault(value, stem=True)
    if reason is None:
        return
    shown = ascii(value[:MAX_DOC_ID_LENGTH]) if isinstance(value, str) else "the id"
    raise MaadError("INVALID_DOC_ID", f"docId {shown} {describe_fault(reason)}", {"reason": reason})


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
