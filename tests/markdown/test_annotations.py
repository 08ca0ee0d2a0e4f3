"""Inline annotations and value calls, outside code (spec 01 §5.2 to §5.4)."""

from __future__ import annotations

import pytest

from maadd_worker.markdown.annotations import Annotation, find_annotations
from maadd_worker.markdown.value_calls import ValueCall, find_value_calls
from maadd_worker.markdown.verbatim import VerbatimZones, code_spans


def annotations(body: str, start: int = 1, limit: int = 0) -> tuple[Annotation, ...]:
    return find_annotations(body, start, VerbatimZones(body), limit)[0]


def texts(body: str) -> list[tuple[str, str, str]]:
    return [(one.type, one.value, one.label) for one in annotations(body)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[[person: Ana Roe | Ana ]]", [("person", "Ana Roe", "Ana")]),
        ("[[url:https://x.y/z?a=b|site]]", [("url", "https://x.y/z?a=b", "site")]),
        ("[[person:A|B|C]]", [("person", "A", "B|C")]),
        ("[[code:a[0]|x]]", [("code", "a[0]", "x")]),
        ("[[_T1:A|b]]", [("_T1", "A", "b")]),
        ("[[constructor:A|b]]", [("constructor", "A", "b")]),
        ("[[a: | ]]", [("a", "", "")]),
        ("[[a:b|[c]]", [("a", "b", "[c")]),
        ("[[[a:b|c]]]", [("a", "b", "c")]),
        ("[[a:b|c]][[d:e|f]]", [("a", "b", "c"), ("d", "e", "f")]),
        ("[[person:A no pipe]] then [[org:B|b]]", [("org", "B", "b")]),
        ("[[a:b [[org:B|b]]", [("org", "B", "b")]),
        ("[[person:A]]", []),
        ("[[person:A|]]", []),
        ("[[person:|B]]", []),
        ("[[my-type:A|b]]", []),
        ("[[1t:A|b]]", []),
        ("[[pérson:A|b]]", []),
        ("[[person:A|B]C]]", []),
        ("[[person:A|B]", []),
        ("[[person:A\n|B]]", []),
        ("[[person:A|B\n]]", []),
        ("[[A|b]]", []),
        ("[person:A|b]", []),
    ],
)
def test_annotations_in_text(text: str, found: list[tuple[str, str, str]]) -> None:
    assert texts(text) == found


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("`[[x:A|a]]`", []),
        ("``[[x:A|a]] ` [[x:B|b]]``", []),
        ("`` ` [[x:A|a]] `", []),
        ("`` [[x:A|a]] `", ["A"]),
        ("` [[x:A|a]] `` [[x:B|b]] `", []),
        ("`code` [[x:A|a]] `code`", ["A"]),
        ("` open [[x:A|a]]\n`", ["A"]),
        ("```\n[[x:A|a]]\n```\n[[x:B|b]]", ["B"]),
        ("~~~\n[[x:A|a]]\n```\n[[x:B|b]]\n~~~ \n[[x:C|c]]", ["C"]),
        ("````md\n```\n[[x:A|a]]\n```\n````\n[[x:B|b]]", ["B"]),
        ("text\n```\n[[x:A|a]]", []),
        ("    [[x:A|a]]", ["A"]),
        ("<!-- [[x:A|a]] -->", ["A"]),
        ("| a | [[x:A|a]] |", ["A"]),
        ("`[[x:A|` and [[x:B|b]]", ["B"]),
        ("``` [[x:A|a]] ``` after", []),
    ],
)
def test_code_is_skipped(body: str, values: list[str]) -> None:
    assert [one.value for one in annotations(body)] == values


def test_places_are_file_lines_and_code_points() -> None:
    body = "\n😀 [[a:b|c]] x [[d:e|f]]\r\n\u2028[[g:h|i]]"
    assert [(one.type, one.line, one.col) for one in annotations(body, 10)] == [
        ("a", 11, 2),
        ("d", 11, 14),
        ("g", 12, 1),
    ]


@pytest.mark.parametrize(
    ("limit", "count", "truncated"),
    [(0, 3, False), (4, 3, False), (3, 3, False), (2, 2, True), (1, 1, True)],
)
def test_the_cap_flags_only_bodies_with_more(limit: int, count: int, truncated: bool) -> None:
    body = "[[a:1|x]] [[a:2|x]]\n[[a:3|x]] `[[a:4|x]]` [[a:5]]"
    found, more = find_annotations(body, 1, VerbatimZones(body), limit)
    assert (len(found), more) == (count, truncated)


@pytest.mark.parametrize(
    "body",
    [
        "[[x:" * 200_000,
        "[[x:y|" * 150_000,
        "[[" * 400_000,
        "[" * 800_000,
        "`" * 100 + "``` [[x:y|z" * 60_000,
        "".join("`" * (n % 90 + 1) + " " for n in range(20_000)) + "[[a:b|c]]",
        "\n".join(["```"] * 150_000) + "[[a:b|c]]",
        "{{a" * 250_000,
    ],
)
@pytest.mark.timeout(10)
def test_hostile_lines_are_read_in_linear_time(body: str) -> None:
    zones = VerbatimZones(body)
    assert len(find_annotations(body, 1, zones, 0)[0]) <= 1
    assert find_value_calls(body, 1, zones) == ()


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("plain", []),
        ("a `b` c", [(2, 5)]),
        ("`a``b`", [(0, 6)]),
        ("``a`b``", [(0, 7)]),
        ("`a", []),
        ("``a` b`", [(3, 7)]),
        ("`a` ```b``` `c`", [(0, 3), (4, 11), (12, 15)]),
    ],
)
def test_a_span_closes_at_a_run_of_the_same_length(line: str, spans: list[tuple[int, int]]) -> None:
    assert code_spans(line, 0, len(line)) == spans


@pytest.mark.timeout(10)
def test_a_line_of_many_annotations_is_read_in_linear_time() -> None:
    body = "é`" + "[[x:y|z]] {{a}} " * 50_000
    zones = VerbatimZones(body)
    found = find_annotations(body, 1, zones, 0)[0]
    assert (len(found), found[-1].col) == (50_000, 2 + 49_999 * 16)
    assert find_value_calls(body, 1, zones)[-1].col == 2 + 49_999 * 16 + 10


def test_value_calls() -> None:
    body = "{{a}} {{ b }} {{c.d}} `{{e}}`\n```\n{{f}}\n```\n{{1g}} {{é}} {{{h}}} {{i\n}}"
    assert find_value_calls(body, 4, VerbatimZones(body)) == (
        ValueCall("a", 4, 0),
        ValueCall("c.d", 4, 14),
        ValueCall("h", 8, 14),
    )
