"""Extracted objects as tools show them (spec 02 §4.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

OBJECT_COLUMNS = "primitive, subtype, value, normalized_value, label, doc_id, source_line, block_id"


def object_views(rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rows of `OBJECT_COLUMNS` as answer members."""
    return [
        {
            "primitive": primitive,
            "subtype": subtype,
            "value": value,
            "normalizedValue": normalized,
            "label": label,
            "docId": doc_id,
            "sourceLine": line,
            "blockId": block_id or None,
        }
        for primitive, subtype, value, normalized, label, doc_id, line, block_id in rows
    ]
