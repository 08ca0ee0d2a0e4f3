"""YAML 1.2 core schema for operators' files (spec 01 §4.2)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maadd.config.yaml_core import YamlError, core_scalar, dump_yaml, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("True", True),
        ("FALSE", False),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("08", 8),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("0o17", 15),
        ("0b101", 5),
        ("1.5", 1.5),
        ("1.", 1.0),
        ("1e5", 1e5),
        (".5", 0.5),
        ("-.inf", -math.inf),
        (".INF", math.inf),
    ],
)
def test_scalars_of_the_core_schema(text: str, value: object) -> None:
    found = core_scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number() -> None:
    assert math.isnan(core_scalar(".NaN"))


STRINGS = """
    yes no on off tRUE 2026-04-01 2026-04-01T10:00:00Z 12:30 1_000 -.5 1e400 0x 0o8 1.2.3 ٣
"""


@pytest.mark.parametrize("text", STRINGS.split())
def test_other_plain_scalars_are_strings(text: str) -> None:
    assert core_scalar(text) == text
    assert load_yaml(f"key: {text}") == {"key": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing\n", None),
        ("---\na: 1\n", {"a": 1}),
        ("a: '7'\nb: \"true\"\n", {"a": "7", "b": "true"}),
        ("a: !!str 7\nb: !!int '7'\nc: !!float 7\n", {"a": "7", "b": 7, "c": 7.0}),
        ("1: a\ntrue: b\n~: c\n<<: {d: 1}\n", {"1": "a", "true": "b", "null": "c", "<<": {"d": 1}}),
        ("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}),
        ("a: |\n  --- x\n  y\n", {"a": "--- x\ny\n"}),
    ],
)
def test_documents(text: str, value: object) -> None:
    assert load_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "stands twice"),
        ("a: {b: 1, b: 2}\n", 1, 11, "stands twice"),
        ("1: a\n'1': b\n", 2, 1, "stands twice"),
        ("a: !custom x\n", 1, 4, "!custom"),
        ("a: !!binary eA==\n", 1, 4, "binary"),
        ("a: !!int x\n", 1, 4, "no int"),
        ("? [a]\n: 1\n", 1, 3, "cannot be a key"),
        ("a: &x [*x]\n", 1, 4, "contains itself"),
        ("a: *x\n", 1, 4, "alias"),
        ("a: 1\n---\nb: 1\n", 2, 1, "another document"),
        ("a: 1\n b: 2\n", 2, 3, "mapping values"),
        ("\ta: 1\n", 1, 1, "cannot start"),
        ("a: 1\nb: \x01\n", 2, 4, "control"),
        ("[" * 70 + "]" * 70, 1, 65, "too deep"),
        ("[" * 5000 + "]" * 5000, 1, 1001, "depth"),
    ],
)
def test_what_is_refused_has_a_position(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(YamlError, match=problem) as caught:
        load_yaml(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_an_alias_bomb_is_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(YamlError, match="too many nodes"):
        load_yaml("\n".join(levels))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
data: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, data, max_size=5))
def test_what_is_written_reads_back_the_same(value: dict[str, Any]) -> None:
    assert load_yaml(dump_yaml(value)) == value


@pytest.mark.parametrize(
    "text", ["1e5", "0o17", "yes", "~", "2031-01-01", "12" * 31 + "e7", "a: b"]
)
def test_strings_are_written_so_that_every_reader_takes_them_for_strings(text: str) -> None:
    assert dump_yaml({"k": text}) == f'k: "{text}"\n'
