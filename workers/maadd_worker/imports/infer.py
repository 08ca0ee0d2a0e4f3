"""What type a field has, told from its values (spec 01 §3.1)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from maadd_worker.extract.times import normalize_date
from maadd_worker.imports.targets import Targets, named_in
from maadd_worker.imports.values import FieldValue, written
from maadd_worker.markdown.yaml_scalars import core_scalar
from maadd_worker.schema.precision import (
    is_calendar_date,
    literal_precision,
    rank,
    starts_with_day,
)

Definition = dict[str, Any]

_CLOSED = frozenset(
    (
        "status",
        "state",
        "type",
        "category",
        "kind",
        "priority",
        "level",
        "layout",
        "severity",
        "stage",
        "phase",
        "visibility",
        "impact",
        "risk",
        "lang",
        "language",
        "format",
        "resolution",
        "scope",
        "tier",
    )
)
"""Names of fields whose values are few on purpose."""

_OPEN = frozenset(
    (
        "title",
        "name",
        "description",
        "summary",
        "subtitle",
        "author",
        "authors",
        "owner",
        "tags",
        "tag",
        "keywords",
        "aliases",
        "alias",
        "date",
        "created",
        "updated",
        "url",
        "link",
        "slug",
        "permalink",
        "image",
        "id",
    )
)
"""Names of fields whose values only happen to be few, or to name something."""

_REFERRING = frozenset(
    (
        "requires",
        "required_by",
        "replaces",
        "replaced_by",
        "supersedes",
        "superseded_by",
        "superseded",
        "amends",
        "amended_by",
        "obsoletes",
        "obsoleted_by",
        "updates",
        "updated_by",
        "depends",
        "depends_on",
        "dependencies",
        "blocks",
        "blocked_by",
        "related",
        "relates_to",
        "related_to",
        "see_also",
        "parent",
        "children",
        "child",
        "parents",
        "extends",
        "extended_by",
        "next",
        "previous",
        "prev",
        "part_of",
        "refs",
        "references",
        "links",
        "up",
        "down",
        "duplicates",
        "duplicate_of",
    )
)
"""Names of fields that refer to others, so that a plain number there may be one of them."""

_FEWEST = 2
_MOST_CLOSED = 20
_MOST_VALUES = 8
_VALUE_CHARACTERS = 40
_INDEXED_CHARACTERS = 200
_MOSTLY = 0.8

_MONTH = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])")
_YEAR = re.compile(r"[0-9]{4}")
_TRUTH = frozenset(("true", "false"))


def infer(name: str, values: Sequence[FieldValue], *, textual: bool) -> Definition | None:
    """A definition that all values fit; None for maps, which fields cannot declare.

    `textual` sources have texts only: numbers and truth values show in their form.
    """
    if not values:
        return None
    found = [one.value for one in values]
    if any(_nested(value) for value in found):
        return {"type": "string"} if any(_too_deep(value) for value in found) else None
    if any(isinstance(value, list) for value in found):
        return _list(found)
    if all(isinstance(value, bool) for value in found):
        return {"type": "boolean", "index": True}
    if all(_is_number(value) for value in found):
        return {"type": "number", "index": True}
    texts = [value for value in found if isinstance(value, str)]
    if len(texts) < len(found):
        mixed = _mixed_dates([written(one.value, one.raw) for one in values])
        return mixed or _text(name, [part for one in values for part in [", ".join(one.parts())]])
    if textual and all(text.strip().lower() in _TRUTH for text in texts):
        return {"type": "boolean", "index": True}
    if textual and all(is_plain_number(text) for text in texts):
        return {"type": "number", "index": True}
    return date_definition(texts) or _text(name, texts)


def infer_ref(
    name: str, values: Sequence[FieldValue], targets: Targets, types: Sequence[str]
) -> tuple[Definition | None, str | None]:
    """A ref, or list of refs, when the values name other items; and why not, if it was close."""
    plain = name.lower().replace("-", "_").replace(" ", "_")
    if plain in _OPEN:
        return None, None
    refers = plain in _REFERRING or plain.rstrip("s") in types
    found: Counter[str] = Counter()
    parts = own = links = numbers = several = 0
    for one in values:
        if isinstance(one.value, bool | dict):
            return None, None
        texts = _names(one, targets)
        several += len(texts) > 1 or isinstance(one.value, list)
        for text in texts:
            named = named_in(text)
            parts += 1
            links += named.is_link
            numbers += named.is_number
            target = targets.find(named, one.item)
            if target is not None:
                own += target.key == one.item.key
                found[target.doc_type] += 1
    known = sum(found.values())
    if not known or own > known // 2:
        return None, None
    if numbers == parts:
        sure = known >= _MOSTLY * parts and (refers or several > 0)
    else:
        sure = known == parts and (refers or links > 0 or len(values) > 1)
    if not sure or len(found) > 1:
        what = f"{known} of {parts} values name a record"
        what += f" (of {' and '.join(sorted(found))})" if len(found) > 1 else ""
        return None, what if refers or links else None
    [target_type] = found
    ref: Definition = {"type": "ref", "target": target_type, "index": True}
    if several:
        ref = {"type": "list", "item_type": "ref", "target": target_type, "index": True}
    return ref, None


def _names(one: FieldValue, targets: Targets) -> list[str]:
    """A text that is a name with a comma in it stays whole."""
    if isinstance(one.value, str) and "," in one.value:
        whole = named_in(one.value)
        if whole.is_link or targets.find(whole, one.item) is not None:
            return [one.value]
    return one.parts()


def date_definition(texts: Sequence[str]) -> Definition | None:
    """A date that takes all texts, with the coarsest precision among them; None when one is
    no date."""
    if all(starts_with_day(text) and is_calendar_date(text) for text in texts):
        return {"type": "date", "index": True, **_precision(texts)}
    if all(_MONTH.fullmatch(text) or is_calendar_date(text) for text in texts):
        return {"type": "date", "index": True, "format": "YYYY-MM", "store_precision": "month"}
    mixed = _mixed_dates(texts)
    if mixed is not None:
        return mixed
    if all(_has_month_name(text) and normalize_date(text) for text in texts):
        return {"type": "date", "index": True, "store_precision": "day"}
    return None


def _mixed_dates(texts: Sequence[str]) -> Definition | None:
    """A date for texts of several precisions with a bare year among them; bare years alone are
    numbers, or texts."""
    years = [text for text in texts if _YEAR.fullmatch(text)]
    if not 0 < len(years) < len(texts):
        return None
    if all(text in years or _MONTH.fullmatch(text) or is_calendar_date(text) for text in texts):
        return {"type": "date", "index": True, "format": "YYYY", "store_precision": "year"}
    return None


def is_plain_number(text: str) -> bool:
    """Whether a text is a number and nothing is lost when it becomes one."""
    value = core_scalar(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return str(value) == text


def closed_set(name: str, texts: Sequence[str]) -> tuple[str, ...] | None:
    """The values when they are few and come again and again; most frequent first."""
    counts = Counter(texts)
    plain = name.lower().replace("-", "_")
    if plain in _OPEN or any(len(text) > _VALUE_CHARACTERS or "\n" in text for text in counts):
        return None
    if plain in _CLOSED:
        few = len(counts) <= _MOST_CLOSED and len(texts) >= 2 * len(counts)
    else:
        few = len(counts) <= _MOST_VALUES and len(texts) >= 5 * len(counts)
    if not few or len(counts) < _FEWEST:
        return None
    return tuple(sorted(counts, key=lambda text: (-counts[text], text)))


def _text(name: str, texts: Sequence[str]) -> Definition:
    values = closed_set(name, texts)
    if values is not None:
        return {"type": "enum", "values": list(values), "index": True}
    definition: Definition = {"type": "string"}
    if all(len(text) <= _INDEXED_CHARACTERS and "\n" not in text for text in texts):
        definition["index"] = True
    return definition


def _list(found: Sequence[Any]) -> Definition:
    members = [one for value in found for one in (value if isinstance(value, list) else [value])]
    kinds: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("number", _is_number),
        ("boolean", lambda one: isinstance(one, bool)),
        ("date", lambda one: isinstance(one, str) and is_calendar_date(one)),
    )
    kind = next((kind for kind, fits in kinds if members and all(map(fits, members))), "string")
    definition: Definition = {"type": "list", "item_type": kind, "index": True}
    if kind == "date":
        definition["format"] = "YYYY-MM-DD"
    return definition


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _precision(texts: Sequence[str]) -> Definition:
    found = [literal_precision(text) for text in texts]
    known = [one for one in found if one is not None]
    return {"store_precision": min(known, key=rank)} if len(known) == len(found) else {}


def _has_month_name(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _nested(value: Any) -> bool:
    if isinstance(value, dict):
        return True
    return isinstance(value, list) and any(isinstance(one, dict | list) for one in value)


def _too_deep(value: Any, depth: int = 0) -> bool:
    """Whether a value is deeper than a field may be (spec 01 §4.2)."""
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return depth > 1 or any(_too_deep(one, depth + 1) for one in members)
