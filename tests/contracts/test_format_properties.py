"""The formats under generated values (spec 05 §3, §9)."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maadd.client import assemble, canonical_json, pack, unpack
from maadd.protocol.arguments import Delivery
from maadd.protocol.canonical_json import DELIVERY
from maadd.protocol.messages import ResultBudget
from maadd.protocol.strict_json import parse_json
from maadd_worker.contracts.delivery import Observed, deliver, measured
from maadd_worker.contracts.snapshots import Snapshots

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
"""Every code point, half surrogate pairs among them."""

KEYS = TEXTS | st.sampled_from(["__proto__", "constructor", "10", "2", "", "\ud83d\ude00"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_canonical_text_is_a_fixed_point(value: Any) -> None:
    text = canonical_json(value)
    assert canonical_json(parse_json(text)) == text
    text.encode()


@given(st.dictionaries(KEYS, st.integers(0, 9), max_size=8))
@settings(max_examples=100, deadline=None)
def test_members_are_sorted_by_utf16(members: dict[str, int]) -> None:
    names = list(json.loads(canonical_json(members)))
    units = [name.encode("utf-16-be", "surrogatepass") for name in names]
    assert units == sorted(units)


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_every_double_comes_back(bits: int) -> None:
    (number,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    if number == number and abs(number) != float("inf"):
        assert float(canonical_json(number)) == number


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_packing_loses_nothing(value: Any) -> None:
    assert canonical_json(unpack(pack(value)), DELIVERY) == canonical_json(value, DELIVERY)


@given(
    st.lists(TEXTS | st.text('\U0001f600\u20ac"\\ab', min_size=40), min_size=30, max_size=60),
    st.integers(700, 2_000),
)
@settings(max_examples=10, deadline=None)
def test_pages_of_any_size_come_together(texts: list[str], cap: int) -> None:
    snapshots = Snapshots(lambda: 1_000)
    observed = Observed("maad_create_contract", "s", 1, "{}", {"texts": texts})
    pages: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        asked = Delivery(format="compact-json-v1", cursor=cursor)
        text = deliver(snapshots, observed, asked, ResultBudget(cap))
        assert measured(text.encode(), ResultBudget(cap), None) <= cap
        pages.append(json.loads(text))
        pages[-1]["chunk"].encode()
        cursor = pages[-1]["nextCursor"]
        if cursor is None:
            break
    value = assemble(pages, 1_000)
    assert canonical_json(value) == canonical_json({"texts": texts})


@pytest.mark.parametrize("depth", [50_000, 200_000])
def test_depth_is_refused_and_never_a_crash(depth: int) -> None:
    with pytest.raises(ValueError, match=r"recursion|depth|nested"):
        parse_json("[" * depth + "]" * depth)
