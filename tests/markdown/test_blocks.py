"""Headings and the blocks below them (spec 01 §5.1)."""

from __future__ import annotations

import pytest

from maadd_worker.markdown.blocks import Block, block_content, find_block, scan_blocks, slug


def outline(body: str, start: int = 1) -> list[tuple[str | None, str, int, int, int]]:
    return [
        (block.block_id, block.heading, block.level, block.start_line, block.end_line)
        for block in scan_blocks(body, start)
    ]


def content(body: str, selector: str, start: int = 1) -> str | None:
    block = find_block(scan_blocks(body, start), selector)
    return None if block is None else block_content(body.split("\n"), start, block)


def test_the_published_vector() -> None:
    assert outline("\n# H {#h}\ntext\n\n## S\nmore\n", 5) == [
        ("h", "H", 1, 6, 8),
        ("s", "S", 2, 9, 11),
    ]


@pytest.mark.parametrize(
    ("line", "block_id", "heading", "level"),
    [
        ("# One", "one", "One", 1),
        ("###### Six", "six", "Six", 6),
        ("#\tTab", "tab", "Tab", 1),
        ("#\u00a0NBSP", "nbsp", "NBSP", 1),
        ("## A ##", "a", "A ##", 2),
        ("## C#", "c", "C#", 2),
        ("#   Spaced   out  ", "spaced-out", "Spaced   out", 1),
        ("# {#top}", "top", "", 1),
        ("# Goal {#Goal_1-a}", "Goal_1-a", "Goal", 1),
        ("# Goal {#a}  ", "a", "Goal", 1),
        ("# Goal {#a} x", "goal-a-x", "Goal {#a} x", 1),
        ("# Goal {#a b}", "goal-a-b", "Goal {#a b}", 1),
        ("# Résumé & Co.", "rsum-co", "Résumé & Co.", 1),
        ("# 日本", "", "日本", 1),
        ("# CRLF\r", "crlf", "CRLF", 1),
        ("#  ", "", "", 1),
    ],
)
def test_lines_that_are_headings(line: str, block_id: str, heading: str, level: int) -> None:
    assert outline(f"{line}\nx") == [(block_id, heading, level, 1, 2)]


@pytest.mark.parametrize(
    "line",
    [
        "#",
        "# ",
        "#\r",
        "# \r",
        "#text",
        "   # x",
        " # x",
        "> # x",
        "- # x",
        "####### x",
        "Setext\n===",
    ],
)
def test_lines_that_are_not_headings(line: str) -> None:
    assert [block.level for block in scan_blocks(f"text\n{line}\nx", 1)] == [0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Résumé & Co.", "rsum-co"),
        ("A_B", "ab"),
        ("日本", ""),
        ("  A  --  b ", "a-b"),
        ("---", ""),
        ("x" * 50, "x" * 50),
        ("Straße 7", "strae-7"),
        ("a\u2003b\ufeffc", "a-b-c"),
    ],
)
def test_slugs(text: str, expected: str) -> None:
    assert slug(text) == expected


@pytest.mark.parametrize(
    ("body", "blocks"),
    [
        ("", []),
        ("\n\n", []),
        ("text", [(None, "", 0, 1, 1)]),
        ("\ntext\n", [(None, "", 0, 1, 3)]),
        ("text\n# A\n", [(None, "", 0, 1, 1), ("a", "A", 1, 2, 3)]),
        ("\n \n# A", [("a", "A", 1, 3, 3)]),
        ("# A\n# A\n", [("a", "A", 1, 1, 1), ("a", "A", 1, 2, 3)]),
        ("é\u2028x\r\n\r\n# B\r\ny", [(None, "", 0, 1, 2), ("b", "B", 1, 3, 4)]),
        ("<!-- \n# In comment\n-->", [(None, "", 0, 1, 1), ("in-comment", "In comment", 1, 2, 3)]),
    ],
)
def test_blocks_of_a_body(body: str, blocks: list[tuple[str | None, str, int, int, int]]) -> None:
    assert outline(body) == blocks


@pytest.mark.parametrize(
    ("body", "headings"),
    [
        ("```\n# no\n```\n# yes", ["yes"]),
        ("````\n# no\n```\n# no\n````\n# yes", ["yes"]),
        ("```\n# no\n``````\n# yes", ["yes"]),
        ("```\n# no\n``` x\n# no\n```\n# yes", ["yes"]),
        ("```\n# no\n~~~\n# no\n```\n# yes", ["yes"]),
        ("~~~ `x`\n# no\n~~~\n# yes", ["yes"]),
        ("``` `x`\n# yes", ["yes"]),
        ("   ```\n# no\n   ```  \t\r\n# yes", ["yes"]),
        ("    ```\n# yes", ["yes"]),
        ("```\n# no\n    ```\n# no", []),
        ("``\n# yes\n``", ["yes"]),
        ("text\n```js\n# no\n", []),
        ("~~~\n```\n~~~\n# yes\n```\n# no", ["yes"]),
        ("    # indented code\n# yes", ["yes"]),
    ],
)
def test_headings_in_fenced_code_do_not_count(body: str, headings: list[str]) -> None:
    assert [block.heading for block in scan_blocks(body, 1) if block.level] == headings


def test_content_leaves_out_the_heading_and_the_neighbours() -> None:
    body = "intro\n\n# A\n\n a\n\n## Sub\ninner\n# B {#bee}\nlast"
    assert content(body, "a") == "a"
    assert content(body, "sub") == "inner"
    assert content(body, "bee") == "last"
    assert content(body, "_preamble") == "intro"


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("notes", "one"),
        ("NOTES", "one"),
        ("notes~1", "one"),
        ("notes~2", "two"),
        ("notes~3", None),
        ("notes~0", None),
        ("Open Points", "three"),
        ("open points", "three"),
        ("op", "three"),
        ("OP", None),
        ("_preamble", "zero"),
        ("", None),
        ("unknown", None),
    ],
)
def test_selectors(selector: str, found: str | None) -> None:
    body = "zero\n# Notes\none\n# Notes\ntwo\n# Open Points {#op}\nthree"
    assert content(body, selector) == found


def test_a_block_of_that_id_goes_before_the_preamble_and_counted_ids() -> None:
    assert content("zero\n# X {#_preamble}\none", "_preamble") == "one"
    assert content("# A\n0\n# A\n1\n# a~2\n2", "a~2") == "2"


def test_content_counts_from_the_first_line_of_the_body() -> None:
    blocks = scan_blocks("\n# A\nx\n", 7)
    assert blocks == (Block("a", "A", 1, 8, 10),)
    assert block_content(["", "# A", "x", ""], 7, blocks[0]) == "x"
