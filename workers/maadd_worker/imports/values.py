"""The values of a field over the items of a type, as parts that may be texts or names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from maadd_worker.imports.source import Item
from maadd_worker.markdown.text import js_text


class FieldValue(msgspec.Struct, frozen=True):
    """The value that one item has for a field; never None or an empty text."""

    item: Item
    value: Any
    raw: Any

    def parts(self) -> list[str]:
        """The texts of a list, or of a text with commas between them."""
        if isinstance(self.value, list):
            return [written(one, raw) for one, raw in paired(self.value, self.raw)]
        text = written(self.value, self.raw)
        return [part.strip() for part in text.split(",") if part.strip()]


def values_of(name: str, items: Sequence[Item]) -> Iterator[FieldValue]:
    """Every value of a field that says something."""
    for item in items:
        value = item.fields.get(name)
        if value is not None and value != "" and value != []:
            yield FieldValue(item, value, item.raw.get(name))


def written(value: Any, raw: Any) -> str:
    """The value as it was written; `raw` is what the source had in place of a number."""
    return raw if isinstance(raw, str) else js_text(value)


def paired(values: list[Any], raw: Any) -> list[tuple[Any, Any]]:
    """The items of a list with what was written for them."""
    if isinstance(raw, list) and len(raw) == len(values):
        return list(zip(values, raw, strict=True))
    return [(one, None) for one in values]
