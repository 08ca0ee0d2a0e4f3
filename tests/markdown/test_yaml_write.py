"""Values as one line of YAML (spec 01 §9.3)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.serializer import check_keys, order_keys, serialize_record
from maadd_worker.markdown.yaml_profile import load_frontmatter


def deep_list(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def written(fields: dict[str, Any]) -> list[str]:
    lines = serialize_record(fields, list(fields), None).decode().split("\n")
    assert (lines[0], lines[-2:]) == ("---", ["---", ""])
    return lines[1:-2]


def read_back(fields: dict[str, Any]) -> dict[str, Any]:
    data = serialize_record(fields, list(fields), None)
    return load_frontmatter(split_file(data, "n.md"), "n.md")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("name", "Acme Corp", "name: Acme Corp"),
        ("tags", ["a", "b", "c"], "tags: [a, b, c]"),
        ("desc", "value: with colon", 'desc: "value: with colon"'),
        ("val", "", 'val: ""'),
        ("git_ref", "4962218", 'git_ref: "4962218"'),
        ("v", "1e38892", 'v: "1e38892"'),
        ("v", "007", 'v: "007"'),
        ("v", "3.14", 'v: "3.14"'),
        ("v", "-42", 'v: "-42"'),
        ("opened", "2026-04-01", "opened: 2026-04-01"),
        (
            "at",
            dt.datetime(2026, 4, 16, 17, 20, 30, 500_000, dt.UTC),
            'at: "2026-04-16T17:20:30.500Z"',
        ),
        ("slug", "agt-beta-dev", "slug: agt-beta-dev"),
        ("sha", "76a859c", 'sha: "76a859c"'),
        ("at", "12:30", 'at: "12:30"'),
        ("n", None, "n: null"),
        ("n", True, "n: true"),
        ("n", False, "n: false"),
        ("n", 7, "n: 7"),
        ("n", 3.0, "n: 3"),
        ("n", -3.5, "n: -3.5"),
        ("n", 1e21, "n: 1e+21"),
        ("n", 1e-7, "n: 1e-7"),
        ("n", 9007199254740993, "n: 9007199254740993"),
        ("n", float("nan"), "n: .nan"),
        ("n", float("inf"), "n: .inf"),
        ("n", float("-inf"), "n: -.inf"),
        ("l", [], "l: []"),
        ("l", [["a"], []], "l: [[a], []]"),
        ("l", [{"a": 1, "b c": "x, y"}], 'l: [{a: 1, b c: "x, y"}]'),
        ("m", {"a": 1, "b": ["x"]}, "m: {a: 1, b: [x]}"),
        ("m", {}, "m: {}"),
        ("s", "a#b", 's: "a#b"'),
        ("s", "it's", 's: "it\'s"'),
        ("s", 'say "x"', 's: "say \\"x\\""'),
        ("s", "back\\slash", "s: back\\slash"),
        ("s", "a, [b] {c}", "s: a, [b] {c}"),
        ("l", ["a,b", "[x]", "{x}", "who?"], 'l: ["a,b", "[x]", "{x}", "who?"]'),
        ("s", "two\nlines\r\n\tend", 's: "two\\nlines\\r\\n\\tend"'),
        (
            "s",
            "\x00\x1b\x7f\x85\u2028\u2029\ufeff",
            's: "\\x00\\x1b\\x7f\\x85\\u2028\\u2029\\ufeff"',
        ),
        ("s", "Émile 日本 😀", "s: Émile 日本 😀"),
        *(("s", text, f's: "{text}"') for text in ("yes", "no", "true", "null", "~", "-", "- a")),
        *(("s", text, f's: "{text}"') for text in ("? x", "|", ">", " a", "a ", "nan", ".inf")),
        *(("s", text, f's: "{text}"') for text in ("@x", "`x", "%x", "!x", "&x", "*x", "{x", "[x")),
        *(("s", text, f's: "{text}"') for text in ("1_000", "0x1F", "+1", "-.5", ",x", "]", "---")),
        *(
            ("s", text, f"s: {text}")
            for text in ("on", "off", "True Story", "-x", "1.2.3", "a - b")
        ),
        ("a b", 1, "a b: 1"),
        ("true", 1, '"true": 1'),
        ("7", 1, '"7": 1'),
        ("a: b", 1, '"a: b": 1'),
        ("- a", 1, '"- a": 1'),
        ("", 1, '"": 1'),
    ],
)
def test_lines(key: str, value: Any, line: str) -> None:
    assert written({key: value}) == [line]


SURVIVORS = [
    "src/routes/[itemId]/route.ts",
    *("src/a,b.ts", "a[b", "a]b", "a{b", "a}b", "a:b", "a: b", "a # b", "", " ", " padded "),
    *("\t", "a\tb", "a\nb", "a\rb", "a\r\nb", "src\\[item]\\file.ts", "says \"hi\", then 'bye'"),
    *("true", "false", "null", "007", "-42", "3.5"),
]
MIXED = [
    *(True, False, None, 7, -42, 3.5, "true", "007", "null", []),
    ["a,b", "x[y]", "", False, 0, None],
]


@pytest.mark.parametrize("text", SURVIVORS)
def test_strings_survive_alone_and_in_lists(text: str) -> None:
    fields = {"s": text, "l": [text, text], "m": {"k": text}, "x": [{"k": text}]}
    assert read_back(fields) == fields


def test_mixed_values_survive_with_their_types() -> None:
    result = read_back({"x": MIXED, "all": SURVIVORS})
    assert result["all"] == SURVIVORS
    assert [type(item) for item in result["x"]] == [type(item) for item in MIXED]
    assert result["x"] == MIXED


def test_a_second_identical_write_gives_the_same_bytes() -> None:
    fields = {"x": MIXED, "all": SURVIVORS}
    first = serialize_record(fields, ["x", "all"], "body")
    again = load_frontmatter(split_file(first, "n.md"), "n.md")
    assert serialize_record(again, ["x", "all"], "body") == first


@pytest.mark.parametrize(
    ("body", "tail"),
    [
        (None, "---\n"),
        ("", "---\n"),
        ("text", "---\n\ntext\n"),
        ("  untrimmed \r\n", "---\n\n  untrimmed \r\n\n"),
        ("---\na: 1\n---\nx", "---\n\n---\na: 1\n---\nx\n"),
    ],
)
def test_bodies_of_new_files(body: str | None, tail: str) -> None:
    data = serialize_record({"a": 0}, ["a"], body)
    assert data.decode() == f"---\na: 0\n{tail}"


def test_key_order() -> None:
    fields = {
        "x": 1,
        "due": 2,
        "schema": 3,
        "title": 4,
        "doc_id": 5,
        "y": 6,
        "state": 7,
        "doc_type": 8,
    }
    order = order_keys(fields, ["doc_id", "state", "missing"], ["title", "state", "due"])
    assert order == ["doc_id", "doc_type", "schema", "state", "title", "due", "x", "y"]
    assert [line.split(":")[0] for line in written({key: fields[key] for key in order})] == order


def test_keys_outside_the_order_are_not_lost() -> None:
    assert serialize_record({"b": 1, "a": 2}, ["a"], None) == b"---\na: 2\nb: 1\n---\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"a\nb": 1},
        {"a\x00": 1},
        {"\x7f": 1},
        {"a\u2028b": 1},
        {"k" * 129: 1},
        {"m": {"a\nb": 1}},
        {"l": [[{"a\tb": 1}]]},
    ],
)
def test_keys_that_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(MaadError) as caught:
        check_keys(fields)
    assert caught.value.code == "INVALID_FIELDS"
    with pytest.raises(MaadError):
        serialize_record(fields, list(fields), None)


def test_the_longest_key_is_written_whatever_it_holds() -> None:
    fields = {"\u00e9\"'" * 42: 1, "😀" * 128: {"\\" * 128: 1}}
    assert read_back(fields) == fields


@pytest.mark.parametrize(
    ("fields", "body", "code"),
    [
        ({"a": {1, 2}}, None, "INVALID_FIELDS"),
        ({"a": "half \ud83d"}, None, "INVALID_FIELDS"),
        ({"a": "x"}, "half \ud83d", "INVALID_FIELDS"),
        ({"a": {"b": {"c": {}}}}, None, "YAML_PROFILE_VIOLATION"),
        ({"a": deep_list(2_000)}, None, "YAML_PROFILE_VIOLATION"),
        ({"a": "x" * 300_000}, None, "YAML_PROFILE_VIOLATION"),
        ({"a": 10**400}, None, "FRONTMATTER_GUARD"),
    ],
)
def test_records_that_cannot_be_stored(fields: dict[str, Any], body: str | None, code: str) -> None:
    with pytest.raises(MaadError) as caught:
        serialize_record(fields, list(fields), body)
    assert caught.value.code == code
