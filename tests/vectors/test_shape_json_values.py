"""The lossless packing reproduces every published text (spec 05 §9.5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from maadd.protocol.canonical_json import DELIVERY, Limits, canonical_json, sha256_hex
from maadd.protocol.errors import MaadError
from maadd.protocol.shape_json import SHAPE_TABLE, pack, unpack
from maadd.protocol.strict_json import parse_json

Vectors = Callable[[str], dict[str, Any]]


def _packed(shapes: list[Any], value: Any) -> str:
    return json.dumps({"encoding": "shape-json-v1", "shapes": shapes, "value": value})


def _generated(row: dict[str, Any]) -> str:
    match row["generator"]:
        case "null-shape-rows":
            keys, rows = [f"key{i}" for i in range(row["keys"])], row["rows"]
            return _packed([[[], keys]], [0, *[[1, 0]] * rows] if rows else [1, 0])
        case "long-null-key-rows":
            return _packed([[[], ["k" * row["keyLength"]]]], [0, *[[1, 0]] * row["rows"]])
        case "nested-tag0":
            value: list[Any] = [0]
            for _ in range(row["levels"] - 1):
                value = [0, value]
            return _packed([], value)
        case "tag0-zeros":
            return _packed([], [0] * (1 + row["items"]))
        case "tag0-empty-arrays":
            return _packed([], [0, *[[0]] * row["items"]])
        case "distinct-one-key-shapes":
            rows = [{_base36(i): None} for i in range(row["items"])]
            return pack(rows)
    raise ValueError(row)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not number:
            return digits


def test_a_value_packs_to_exactly_the_published_text_and_comes_back(vectors: Vectors) -> None:
    for row in vectors("shape-json-v1")["vectors"]:
        value = parse_json(row["valueJson"])
        packed = pack(value)
        assert packed == row["packed"], row["name"]
        assert len(packed.encode()) == row["packedBytes"]
        assert len(packed.encode("utf-16-le")) // 2 == row["packedCharacters"]
        assert sha256_hex(packed) == row["packedDigest"]
        canonical = canonical_json(unpack(packed), DELIVERY)
        assert (canonical, sha256_hex(canonical)) == (row["canonical"], row["digest"])


def test_any_layout_of_a_packed_text_is_read(vectors: Vectors) -> None:
    for row in vectors("shape-json-v1")["decodeOnly"]:
        canonical = canonical_json(unpack(row["packed"]), DELIVERY)
        assert (canonical, sha256_hex(canonical)) == (row["canonical"], row["digest"]), row["name"]


def test_a_text_that_breaks_a_rule_is_refused(vectors: Vectors) -> None:
    values = vectors("shape-json-v1-reject")
    for row in values["rejects"] + values["stricterThanReference"]:
        with pytest.raises(MaadError):
            unpack(row["packed"])
            pytest.fail(row["name"])


def test_a_small_table_cannot_grow_into_a_huge_value(vectors: Vectors) -> None:
    for row in vectors("shape-json-v1-reject")["generatedReject"]:
        with pytest.raises(MaadError):
            unpack(_generated(row))
            pytest.fail(row["name"])


def test_what_stands_exactly_at_the_bounds_is_read(vectors: Vectors) -> None:
    for row in vectors("shape-json-v1-reject")["generatedAccept"]:
        canonical = canonical_json(unpack(_generated(row)), DELIVERY)
        assert sha256_hex(canonical) == row["digest"], row["name"]


def test_the_bounds_of_the_table_are_the_published_ones(vectors: Vectors) -> None:
    published = vectors("bounds")["shapeTable"]
    assert Limits(published["nodes"], published["depth"], published["scalarBytes"]) == SHAPE_TABLE
