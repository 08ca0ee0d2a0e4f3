"""Canonical JSON reproduces every published value, and refuses what it must (spec 05 §3)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import struct
from collections.abc import Callable
from typing import Any

import pytest

from maadd.protocol.canonical_json import DELIVERY, STANDARD, Limits, canonical_json, sha256_hex
from maadd.protocol.errors import MaadError
from maadd.protocol.strict_json import NotJsonError, parse_json

Vectors = Callable[[str], dict[str, Any]]
Generate = Callable[[str, int], Any]


def test_numbers_are_spelled_as_ecmascript_spells_them(vectors: Vectors) -> None:
    values = vectors("canonical-json")
    for row in values["numbers"]:
        assert canonical_json(parse_json(row["json"])) == row["canonical"], row
    for bits, canonical in values["numberBits"]:
        (number,) = struct.unpack(">d", bytes.fromhex(bits))
        assert canonical_json(number) == canonical, bits


def test_strings_escape_only_what_has_to_be_escaped(vectors: Vectors) -> None:
    for row in vectors("canonical-json")["strings"]:
        text = canonical_json(parse_json(row["json"]))
        assert text == row["canonical"], row["name"]
        assert text.encode().hex() == row["utf8Hex"], row["name"]


def test_documents_and_their_digests(vectors: Vectors) -> None:
    for row in vectors("canonical-json")["documents"]:
        text = canonical_json(parse_json(row["json"]))
        assert text == row["canonical"], row["name"]
        assert (len(text.encode()), sha256_hex(text)) == (row["utf8Bytes"], row["sha256"])


@pytest.mark.parametrize(
    ("file", "part", "limits"),
    [
        ("canonical-json", "generatedAccept", STANDARD),
        ("canonical-json-reject", "deliveryGeneratedAccept", DELIVERY),
    ],
)
def test_a_value_exactly_at_a_bound_passes(
    vectors: Vectors, generate: Generate, file: str, part: str, limits: Limits
) -> None:
    for row in vectors(file)[part]:
        text = canonical_json(generate(row["generator"], row["n"]), limits)
        assert (len(text.encode()), sha256_hex(text)) == (row["utf8Bytes"], row["sha256"]), row


@pytest.mark.parametrize(
    ("part", "limits"), [("generatedReject", STANDARD), ("deliveryGeneratedReject", DELIVERY)]
)
def test_a_value_beyond_a_bound_is_refused(
    vectors: Vectors, generate: Generate, part: str, limits: Limits
) -> None:
    for row in vectors("canonical-json-reject")[part]:
        with pytest.raises(MaadError) as refused:
            canonical_json(generate(row["generator"], row["n"]), limits)
        assert refused.value.code == row["code"], row


def test_what_is_no_json_never_becomes_a_value(vectors: Vectors) -> None:
    for row in vectors("canonical-json-reject")["jsonTexts"]:
        if row["code"] == "NOT_JSON":
            with pytest.raises(NotJsonError):
                parse_json(row["json"])
        else:
            with pytest.raises(MaadError) as refused:
                canonical_json(parse_json(row["json"]))
            assert refused.value.code == row["code"], row


@dataclasses.dataclass
class _Custom:
    a: int = 1


def _host_value(name: str) -> Any:
    itself: list[Any] = []
    itself.append(itself)
    members: dict[str, Any] = {}
    members["me"] = members
    shared = [1]
    return {
        "nan": float("nan"),
        "positive-infinity": float("inf"),
        "negative-infinity": float("-inf"),
        "integer-10-pow-400": 10**400,
        "bytes": b"x",
        "set": {1},
        "non-string-key": {1: 2},
        "self-containing-list": itself,
        "self-containing-dict": members,
        "dataclass-or-custom-object": _Custom(),
        "datetime": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "decimal": decimal.Decimal(1),
        "same-list-twice-no-cycle": [shared, shared],
    }[name]


def test_only_plain_values_count(vectors: Vectors) -> None:
    for row in vectors("canonical-json-reject")["hostValues"]:
        value = _host_value(row["value"])
        if row["code"] is None:
            canonical_json(value)
            continue
        with pytest.raises(MaadError) as refused:
            canonical_json(value)
        assert refused.value.code == row["code"], row


class _Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [(1,), _Text("x"), {_Text("k"): 1}, True + 1j])
def test_tuples_and_subclasses_are_no_values(value: Any) -> None:
    with pytest.raises(MaadError):
        canonical_json(value)


def test_a_boolean_is_no_number() -> None:
    assert canonical_json([True, 1, False, 0]) == "[true,1,false,0]"


def test_the_two_halves_of_a_character_count_as_the_character() -> None:
    assert canonical_json("\ud83d\ude00") == '"\U0001f600"'
    assert canonical_json({"\ud83d\ude00": 1, "\uffff": 2}) == '{"\U0001f600":1,"\uffff":2}'
    assert canonical_json({"\ud83d\ude00": 1, "\U0001f600": 2}) == '{"\U0001f600":2}'


def test_the_bounds_are_the_published_ones(vectors: Vectors) -> None:
    bounds = vectors("bounds")
    for limits, name in ((STANDARD, "canonical"), (DELIVERY, "deliveryCanonical")):
        published = bounds[name]
        assert limits == Limits(published["nodes"], published["depth"], published["scalarBytes"]), (
            name
        )
