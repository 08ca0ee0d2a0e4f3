"""Fields of a type as columns in memory, to combine unselective filters and to group records
(spec 02 §4.2, §4.6).

How many records match two filters that each match a fifth of the corpus is nothing an index
can tell. A column holds the values of one field in order, and for some places of that order
the set of all records before it as the bits of an integer. A range of values is then the
difference of two such sets, filters combine by `&`, and a hundred thousand records take
microseconds.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import compress, repeat

from maadd_worker.index.filters import ascii_lower
from maadd_worker.index.scope import Part

Key = str | float
"""Text of a value, or its number."""

Held = Key | tuple[Key, ...] | None
"""What a record has in a field: one value, several, or none."""

_PREFIXES = 64
_SHORTEST = 128
"""Values between two kept sets, at least."""

_SPARSE = 12
"""In a set with fewer than one in so many, to go from one to the next is the shorter way."""

_AS_FLAGS = bytes.maketrans(b"01", b"\0\1")


class Column:
    """The values of a field that has at most one in each record; records are small integers.

    `rows` are (value, record) in the order of values.
    """

    __slots__ = (
        "_bounds", "_everything", "_keys", "_prefixes", "_records", "_starts", "_value_of",
    )  # fmt: skip

    def __init__(self, rows: Sequence[tuple[Key, int]]) -> None:
        self._keys: list[Key] = []
        self._records = array("q", [record for _, record in rows])
        self._value_of: list[Key | None] = [None] * (max(self._records, default=-1) + 1)
        # For each bound: its place in the order, and the records before it.
        self._bounds: list[Key] = []
        self._starts: list[int] = []
        self._prefixes: list[int] = []
        step = max(_SHORTEST, len(rows) // _PREFIXES)
        bits = bytearray(len(self._value_of) // 8 + 1)
        last: Key | None = None
        start = 0
        for place, (key, record) in enumerate(rows):
            if key != last:
                last = key
                if place - start >= step:
                    self._bounds.append(key)
                    self._starts.append(place)
                    self._prefixes.append(int.from_bytes(bits, "little"))
                    start = place
            # Equal values are one object.
            self._keys.append(last)
            self._value_of[record] = last
            bits[record >> 3] |= 1 << (record & 7)
        self._everything = int.from_bytes(bits, "little")

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def held(self) -> Sequence[Held]:
        """What each record has; shorter than the records when the last ones have nothing."""
        return self._value_of

    def everything(self) -> int:
        """The records that have a value."""
        return self._everything

    def passing(self, part: Part) -> int:
        """The records whose value passes one operator."""
        if part.op == "in":
            found, single = 0, array("q")
            for bound in part.bound:
                low, high = bisect_left(self._keys, bound), bisect_right(self._keys, bound)
                if high - low < _SHORTEST:
                    single += self._records[low:high]
                else:
                    found |= self._between(low, high)
            return found | _bits(single)
        low, high = 0, len(self._keys)
        if part.op in ("eq", "gte"):
            low = bisect_left(self._keys, part.bound)
        elif part.op == "gt":
            low = bisect_right(self._keys, part.bound)
        if part.op in ("eq", "lte"):
            high = bisect_right(self._keys, part.bound)
        elif part.op == "lt":
            high = bisect_left(self._keys, part.bound)
        return self._between(low, high)

    def holding(self, text: str, among: int) -> int:
        """The records of `among` whose text holds another; only ASCII letters fold."""
        folded = ascii_lower(text)
        held = self._value_of
        among &= (1 << len(held)) - 1
        found = [
            record
            for record in members(among)
            if isinstance(value := held[record], str) and folded in ascii_lower(value)
        ]
        return _bits(found)

    def put(self, record: int, key: Key | None) -> None:
        """The value of a record is now `key`, None for no value."""
        if record >= len(self._value_of):
            self._value_of.extend([None] * (record + 1 - len(self._value_of)))
        old = self._value_of[record]
        if old is not None:
            first, end = bisect_left(self._keys, old), bisect_right(self._keys, old)
            place = self._records.index(record, first, end)
            del self._keys[place]
            del self._records[place]
            self._shift(old, record, -1)
        if key is not None:
            place = bisect_right(self._keys, key)
            self._keys.insert(place, key)
            self._records.insert(place, record)
            self._shift(key, record, 1)
        self._value_of[record] = key

    def _shift(self, key: Key, record: int, by: int) -> None:
        """Take a value into the sets behind it, or out of them."""
        bit = 1 << record
        self._everything ^= bit
        for number in range(bisect_right(self._bounds, key), len(self._bounds)):
            self._starts[number] += by
            self._prefixes[number] ^= bit

    def _between(self, low: int, high: int) -> int:
        return self._before(low) ^ self._before(high) if low < high else 0

    def _before(self, place: int) -> int:
        """The records of all values before a place of the order, from the nearest kept set."""
        number = bisect_right(self._starts, place) - 1
        start, before = (self._starts[number], self._prefixes[number]) if number >= 0 else (0, 0)
        if number + 1 < len(self._starts):
            end, behind = self._starts[number + 1], self._prefixes[number + 1]
        else:
            end, behind = len(self._records), self._everything
        if place - start <= end - place:
            return before | _bits(self._records[start:place])
        return behind ^ _bits(self._records[place:end])


class ListColumn:
    """The values of a field that has several in some records: it tells what records have, not
    which of them pass a filter.

    `rows` are (value, record) in any order.
    """

    __slots__ = ("_held", "_values")

    def __init__(self, rows: Iterable[tuple[Key, int]]) -> None:
        found: dict[int, list[Key]] = {}
        last: Key | None = None
        self._values = 0
        for key, record in rows:
            # Equal values that follow each other are one object.
            if key != last:
                last = key
            found.setdefault(record, []).append(last)
            self._values += 1
        self._held: list[tuple[Key, ...] | None] = [None] * (max(found, default=-1) + 1)
        for record, keys in found.items():
            self._held[record] = tuple(keys)

    def __len__(self) -> int:
        return self._values

    @property
    def held(self) -> Sequence[Held]:
        """As `Column.held`."""
        return self._held

    def put(self, record: int, keys: Sequence[Key]) -> None:
        """The values of a record are now `keys`, in any order."""
        if record >= len(self._held):
            self._held.extend([None] * (record + 1 - len(self._held)))
        self._values += len(keys) - len(self._held[record] or ())
        self._held[record] = tuple(keys) or None


def members(bits: int) -> list[int]:
    """The records of a set, in order."""
    end = bits.bit_length()
    if bits.bit_count() * _SPARSE > end:
        return list(compress(range(end), flags(bits, end)))
    found: list[int] = []
    words = (end + 63) // 64
    for place, word in enumerate(struct.unpack(f"<{words}Q", bits.to_bytes(words * 8, "little"))):
        rest = word
        while rest:
            lowest = rest & -rest
            found.append(place * 64 + lowest.bit_length() - 1)
            rest ^= lowest
    return found


def flags(bits: int, records: int) -> bytes:
    """A byte for each record, 1 for those of the set."""
    # Python writes the digits of two in one pass, the lowest last.
    return f"{bits:0{records}b}".encode().translate(_AS_FLAGS)[::-1]


def _bits(records: Sequence[int]) -> int:
    """The set of some records."""
    if not records:
        return 0
    bits = bytearray(max(records) // 8 + 1)
    for record in records:
        bits[record >> 3] |= 1 << (record & 7)
    return int.from_bytes(bits, "little")


def held_by(held: Sequence[Held], records: int, mask: bytes | None) -> list[Held]:
    """What the first `records` records have, of those alone that `mask` has a 1 for."""
    everything = [*held, *repeat(None, records - len(held))]
    return everything if mask is None else list(compress(everything, mask))
