"""The answer of a call that has changed something, cut until it fits (spec 03 §2.1, 04 §1.1).

What was done is never answered as too large: the caller would have to find out by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

MARK = "truncated"
"""The member of `_meta` that tells what was cut, and where to see the rest."""

_LONGEST_TEXT = 500
_KEPT_LONGEST = frozenset({"failed", "errors", "mismatches"})
"""Lists that are cut only where the others are empty: nothing else tells what went wrong."""


class _Cut(msgspec.Struct):
    """How much of the lists may stay, and what was cut off them; counts by path."""

    most: int
    most_failures: int
    lists: dict[str, list[int]] = msgspec.field(default_factory=dict)
    texts: int = 0

    def value(self, value: Any, path: str, *, failures: bool = False) -> Any:
        if isinstance(value, str):
            if len(value) <= _LONGEST_TEXT:
                return value
            self.texts += 1
            return value[: _LONGEST_TEXT - 1] + "…"
        if isinstance(value, dict):
            short = {}
            for name, member in value.items():
                place = f"{path}.{name}" if path else name
                kept_longest = failures or name in _KEPT_LONGEST
                short[name] = self.value(member, place, failures=kept_longest)
                whole = value.get(f"{name}Total")
                if place in self.lists and isinstance(whole, int):
                    # The list itself is only a part already.
                    self.lists[place][1] = whole
            return short
        if isinstance(value, list):
            kept = value[: self.most_failures if failures else self.most]
            if len(kept) < len(value):
                shown, total = self.lists.get(path, (0, 0))
                self.lists[path] = [shown + len(kept), total + len(value)]
            return [self.value(member, f"{path}[]", failures=failures) for member in kept]
        return value


def shorten(text: bytes, measure: Callable[[bytes], int], cap: int, rest: str) -> bytes | None:
    """The envelope with texts and lists cut so that `measure` gives at most `cap`; None where
    even the members without any list do not fit.

    Lists keep their first entries, as many as fit. `_meta.truncated` has how many of how many
    are shown for each list, how many texts were cut, and `rest`: where to see the others.
    """
    whole: dict[str, Any] = msgspec.json.decode(text)
    longest = _longest_list(whole)

    def made(most: int, most_failures: int) -> bytes:
        cut = _Cut(most, most_failures)
        short = cut.value(whole, "")
        mark: dict[str, Any] = {
            "lists": {
                path: {"shown": shown, "total": total} for path, (shown, total) in cut.lists.items()
            }
        }
        if cut.texts:
            mark["texts"] = cut.texts
        meta = {**short.get("_meta", {}), MARK: {**mark, "rest": rest}}
        return msgspec.json.encode({**short, "_meta": meta})

    def largest(make: Callable[[int], bytes]) -> bytes | None:
        """Of lengths from 0 to the longest the last that fits."""
        low, high = -1, longest
        while low < high:
            middle = (low + high + 1) // 2
            if measure(make(middle)) <= cap:
                low = middle
            else:
                high = middle - 1
        return make(low) if low >= 0 else None

    return largest(lambda most: made(most, longest)) or largest(lambda most: made(0, most))


def _longest_list(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(_longest_list, value.values()), default=0)
    if isinstance(value, list):
        return max(len(value), max(map(_longest_list, value), default=0))
    return 0
