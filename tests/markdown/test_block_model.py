"""Blocks against a model that reads line by line and keeps no positions (spec 01 §5.1)."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from maadd_worker.markdown.blocks import block_content, find_block, scan_blocks

LINES = [
    "# A", "# A", "## B {#b}", "### ", "#", "#x", " # indented", "# 日本", "# Ünï\tx", "> # quote",
    "# {#top}", "## C ##", "text", "", "", "  ", "---", "===", "\u2028# no line", "🙂",
    "```", "```js", "````", "``` `", "~~~", "~~~~ x", "   ```", "    ```", "```  ",
]  # fmt: skip

bodies = st.lists(
    st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\n", "\r\n"])), max_size=14
).map(lambda parts: "".join(line + end for line, end in parts))
tails = st.sampled_from(["", "end", "# End", "```", "\r"])


def model(body: str, start: int) -> list[tuple[str, int, int, int, str]]:
    """Heading text with its anchor, level, first line, last line and content of each block."""
    lines = body.split("\n")
    heads: list[tuple[int, str, int]] = []
    fence = ""
    for number, line in enumerate(lines):
        mark = re.fullmatch(r" {0,3}(`{3,}|~{3,})(.*)", line, re.DOTALL)
        if fence:
            if mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) \
                    and not mark[2].strip():  # fmt: skip
                fence = ""
            continue
        if mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            continue
        text = line.removesuffix("\r")
        depth = len(text) - len(text.lstrip("#"))
        rest = text[depth:]
        if 1 <= depth <= 6 and len(rest) > 1 and rest[0].isspace():
            heads.append((number, rest.strip(), depth))
    found = []
    first = heads[0][0] if heads else len(lines)
    preamble = "\n".join(lines[:first])
    if preamble.strip():
        found.append(("", 0, start, start + first - 1, preamble.strip()))
    for place, (number, text, depth) in enumerate(heads):
        end = heads[place + 1][0] if place + 1 < len(heads) else len(lines)
        content = "\n".join(lines[number + 1 : end]).strip()
        found.append((text, depth, start + number, start + end - 1, content))
    return found


@settings(max_examples=150, deadline=None)
@given(bodies, tails, st.integers(1, 9))
def test_blocks_are_those_of_the_model(head: str, tail: str, start: int) -> None:
    body = head + tail
    wanted = model(body, start) if body else []
    blocks = scan_blocks(body, start)
    lines = body.split("\n")
    assert [
        (block.level, block.start_line, block.end_line, block_content(lines, start, block))
        for block in blocks
    ] == [one[1:] for one in wanted]
    for block, (text, *_) in zip(blocks, wanted, strict=True):
        anchor = re.search(r"\{#([\w-]+)\}$", text, re.ASCII)
        assert block.heading == (text[: anchor.start()].strip() if anchor else text)
        if anchor:
            assert block.block_id == anchor[1]


@settings(max_examples=100, deadline=None)
@given(bodies, tails)
def test_every_block_can_be_addressed(head: str, tail: str) -> None:
    blocks = scan_blocks(head + tail, 1)
    for place, block in enumerate(blocks):
        if block.block_id is None:
            assert find_block(blocks, "_preamble") is block
        elif block.block_id:
            before = [other for other in blocks[:place] if other.block_id == block.block_id]
            found = find_block(blocks, f"{block.block_id}~{len(before) + 1}")
            # A heading may be spelled like the selector; here none is.
            assert found is block
