"""What YAML means in frontmatter (spec 01 §4.2)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from maadd.protocol.errors import MaadError, SourceLocation
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.yaml_profile import (
    core_scalar,
    key_lines,
    load_frontmatter,
    load_yaml_document,
)

FILE = "notes/n.md"


def fields(block: str) -> dict[str, Any]:
    return load_frontmatter(split_file(f"---\n{block}\n---\n".encode(), FILE), FILE)


def refusal(block: str) -> MaadError:
    with pytest.raises(MaadError) as caught:
        fields(block)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, None) for text in ("", "~", "null", "Null", "NULL")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        ("007", 7),
        ("08", 8),
        ("0", 0),
        ("-42", -42),
        ("+7", 7),
        ("0b101", 5),
        ("-0b1", -1),
        ("0x1F", 31),
        ("0o17", 15),
        ("9007199254740993", 9007199254740993),
        ("3.5", 3.5),
        ("3.10", 3.1),
        ("1.", 1),
        (".5", 0.5),
        ("1e3", 1000),
        ("-1.5E-3", -0.0015),
        (".inf", math.inf),
        ("+.Inf", math.inf),
        ("-.INF", -math.inf),
        *(
            (text, text)
            for text in (
                *("yes", "no", "on", "off", "2026-04-01", "2026-04-01T10:00:00Z", "12:30"),
                *("1_000", "-.5", "+.5", "1e38892", "1e400", "0x", "0o8", "0b2", "tRUE", "nULL"),
                *("-0x", "1e", "e1", ".", "-", "+", ".e1", "-.nan", "inf", "nan", "0X1F", "<<"),
                *("2026-02-30", "10:00", "٣", "9" * 400, "true ", "1 2"),
            )
        ),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    result = core_scalar(text)
    assert (type(result), result) == (type(value), value)


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_not_a_number(text: str) -> None:
    assert math.isnan(core_scalar(text))


def test_numbers_without_a_fraction_are_integers_however_written() -> None:
    assert [type(core_scalar(text)) for text in ("3", "3.0", "3e0", "-0.0", "1e15")] == [int] * 5
    assert type(core_scalar("1e300")) is float


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("a: 'yes'\nb: \"007\"\nc: !!str 3", {"a": "yes", "b": "007", "c": "3"}),
        ("a: !!int '3'\nb: !!float 3.5\nc: !!bool 'true'", {"a": 3, "b": 3.5, "c": True}),
        ("a: !!null\nb: !!seq\nc: !!map\nd: ! 7", {"a": None, "b": [], "c": {}, "d": "7"}),
        ("a: !!seq [1]\nb: !!map {c: 1}", {"a": [1], "b": {"c": 1}}),
        (
            "1: a\ntrue: b\n~: c\n0x10: d\n-0: e",
            {"1": "a", "true": "b", "null": "c", "16": "d", "0": "e"},
        ),
        ("Null: 1\nTRUE: 2", {"null": 1, "true": 2}),
        ("<<: x\nb: 1", {"<<": "x", "b": 1}),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ("a: &k key\n*k : v", {"a": "key", "key": "v"}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        (
            "a: [who?, x]\nb: [b:c, d]\nu: [http://x.y/z]",
            {"a": ["who?", "x"], "b": ["b:c", "d"], "u": ["http://x.y/z"]},
        ),
        ("k:\tv\nl: =\nm: <<", {"k": "v", "l": "=", "m": "<<"}),
        (
            "a: |\n  one\n  two\nb: >-\n  long\n  text\nc: |+\n  k\n",
            {"a": "one\ntwo\n", "b": "long text", "c": "k\n\n"},
        ),
        ("a: x # note\nb: x#y", {"a": "x", "b": "x#y"}),
        ("a: 1\n...", {"a": 1}),
        ("{a: 1, b: [x]}", {"a": 1, "b": ["x"]}),
        ("meta: {a: 1}\nx: [[1]]\ny: [{a: 1}]", {"meta": {"a": 1}, "x": [[1]], "y": [{"a": 1}]}),
        ("x: {? a : 1}", {"x": {"a": 1}}),
        ("? a\n: 1", {"a": 1}),
        ('a: "\\x41\\u00e9\\U0001F600\\n"', {"a": "Aé😀\n"}),
        ("t: [[x]]", {"t": [["x"]]}),
        ("a: 1\rb: 2", {"a": 1, "b": 2}),
    ],
)
def test_values(block: str, expected: dict[str, object]) -> None:
    assert fields(block) == expected


@pytest.mark.parametrize("character", ["\u0085", "\u2028", "\u2029", "\ufeff"])
def test_characters_the_scanners_misread_are_content(character: str) -> None:
    block = f'a: x{character}y\nb: "{character}"\n{character}c: [{character}1, z]\nd: end'
    assert fields(block) == {
        "a": f"x{character}y",
        "b": character,
        f"{character}c": [f"{character}1", "z"],
        "d": "end",
    }


def test_bridging_leaves_private_use_characters_and_their_escapes_alone() -> None:
    block = 'a: "\U000f0000\u2028\\U000F0001"\nb: \U000f0002\u2029'
    assert fields(block) == {"a": "\U000f0000\u2028\U000f0001", "b": "\U000f0002\u2029"}


def test_surrogate_escapes_make_one_character() -> None:
    assert fields('a: "\\uD83D\\uDE00"\nb: [yes, 007]') == {"a": "😀", "b": ["yes", 7]}


def test_a_lone_surrogate_escape_is_refused_unless_asked_for() -> None:
    error = refusal('t: x\na: "\\uD83D!"')
    assert (error.code, error.location) == ("PARSE_ERROR", SourceLocation(FILE, 3, 4))
    kept = load_yaml_document('a: "\\uD83D!"', FILE, lone_surrogates="keep")
    assert kept == {"a": "\ud83d!"}


@pytest.mark.parametrize(
    ("block", "line", "col", "said"),
    [
        ("a: 1\nb: 2\na: 3", 4, 1, "duplicate key 'a', first on line 2"),
        ('1: a\n"1": b', 3, 1, "duplicate key '1'"),
        ("a: {b: 1, b: 2}", 2, 11, "duplicate key 'b'"),
        ("a: 1\n\tb: 2", 3, 1, "tab"),
        ("a:\n\t- b", 3, 1, "tab"),
        ("a:\n-\tb", 3, 2, "tab follows the list dash"),
        ("title: one: two", 2, 11, "in quotes"),
        ("a: @x", 2, 4, "cannot start with '@'"),
        ("a: `x", 2, 4, "cannot start with '`'"),
        ("a: *", 2, 5, "in quotes"),
        ("a: *unknown", 2, 4, "no anchor"),
        ('t: x\na: "open\nb: 1', 3, 4, "never closed"),
        ("a: [x, y", 2, 4, "not closed"),
        ("a: 1\n--- b", 3, 1, "second YAML document"),
        ("a: 1\n...\nb: 2", 4, 1, "second YAML document"),
        ("a: !custom x", 2, 4, "!custom"),
        ("a: !!binary eA==", 2, 4, "!!binary"),
        ("a: !!timestamp 2026-01-01", 2, 4, "!!timestamp"),
        ("a: !!int x", 2, 4, "does not fit"),
        ("a: !!set {x}", 2, 4, "not supported"),
        ("a: !foo [1]", 2, 4, "not supported"),
        ("é: ok\nb: a\x01b", 3, 5, "U+0001"),
        ("a: b # \x7f", 2, 8, "U+007F"),
        ("a: b\0c", 2, 5, "U+0000"),
        ("x: [:a, x]", 2, 5, "quote this item"),
        ("x: {k: ?a}", 2, 8, "quote this item"),
        ("x: {:a: 1}", 2, 5, "quote this item"),
    ],
)
def test_parse_errors_name_the_place_and_the_way_out(
    block: str, line: int, col: int, said: str
) -> None:
    error = refusal(block)
    assert error.code == "PARSE_ERROR"
    assert said in error.message
    assert error.location == SourceLocation(FILE, line, col)
    assert error.details == {"file": FILE, "line": line, "col": col}


@pytest.mark.parametrize(
    ("block", "line", "col", "said"),
    [
        ("d: {a: {b: {}}}", 2, 12, "d.a.b"),
        ("t: 1\nx: [{a: {b: 1}}]", 3, 9, "x[0].a"),
        ("items:\n  - nested:\n      deep: 1", 4, 7, "items[0].nested"),
        ("a: &a [1]\nb: {c: {d: *a}}", 3, 12, "b.c.d"),
        ("a: [x, &a [*a]]", 2, 12, "contains itself"),
        ("? [a]\n: 1", 2, 3, "cannot be a key"),
        ("{a: 1}: 1", 2, 1, "cannot be a key"),
        ("x: [?a, x]", 2, 5, "quote this item"),
        ("x: [ok, a: b]", 2, 9, "quote this item"),
        ("x: {?a: 1}", 2, 6, "quote this key"),
    ],
)
def test_profile_violations_name_the_place(block: str, line: int, col: int, said: str) -> None:
    error = refusal(block)
    assert error.code == "YAML_PROFILE_VIOLATION"
    assert said in error.message
    assert error.location == SourceLocation(FILE, line, col)


def test_a_syntax_error_is_reported_before_a_shape_that_is_too_deep() -> None:
    assert refusal("d: {a: {b: {}}}\nx: 'open").code == "PARSE_ERROR"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("---\na: 1\n\n# c\nb:\n  - x\nc: 2\n---\n", {"a": 2, "b": 5, "c": 7}),
        ("\ufeff---\r\na: 1\r\nb: é\r\nc: 2\r\n---\r\n", {"a": 2, "b": 3, "c": 4}),
        ("---\na: |\n  é\n  x\nd: {e: 1}\n---\n", {"a": 2, "d": 5}),
        ("---\na: 1\rb: 2\nc: 3\n---\n", {"a": 2, "b": 2, "c": 3}),
        ("# none", {}),
    ],
)
def test_lines_of_keys_are_lines_of_the_file(text: str, lines: dict[str, int]) -> None:
    assert key_lines(split_file(text.encode(), FILE)) == lines


def test_plain_documents_take_the_same_rules_without_the_shape_check() -> None:
    text = "\ufeff---\ntypes:\n  task: {path: work, deep: {er: [{x: yes}]}}\n"
    expected = {"types": {"task": {"path": "work", "deep": {"er": [{"x": "yes"}]}}}}
    assert load_yaml_document(text, "_registry/object_types.yaml") == expected
    assert load_yaml_document("", "x.yaml") is None
    assert load_yaml_document("text: |\n  ---\n  kept\nb: 1\n", "x.yaml") == {
        "text": "---\nkept\n",
        "b": 1,
    }
    with pytest.raises(MaadError) as caught:
        load_yaml_document("types:\n  a: 1\n  a: 2\n", "x.yaml")
    assert caught.value.location == SourceLocation("x.yaml", 3, 3)
