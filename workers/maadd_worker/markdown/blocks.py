"""Blocks of a body: a heading and the lines below it (spec 01 §5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from maadd_worker.markdown.text import JS_WHITESPACE, js_trim
from maadd_worker.markdown.verbatim import VerbatimZones

PREAMBLE = "_preamble"
"""Selector of the text before the first heading."""

_SPACE = f"[{JS_WHITESPACE}]"
_HEADING = re.compile(
    rf"\n#(#{{0,5}})[{JS_WHITESPACE.replace(chr(10), '')}]([^\n\r\u2028\u2029]+)\r?(?=\n|\Z)"
)
_ANCHOR = re.compile(rf"{_SPACE}*\{{#([A-Za-z0-9_-]+)\}}\Z")
_NO_SLUG = re.compile(rf"[^a-z0-9{JS_WHITESPACE}-]")
_SLUG_GAP = re.compile(rf"[{JS_WHITESPACE}-]+")
_REPEATED = re.compile(r"(.+)~([1-9][0-9]{0,8})", re.DOTALL)


class Block(msgspec.Struct, frozen=True):
    """A heading with the lines up to the next one; lines are 1-based lines of the file.

    The preamble has id None, heading "" and level 0. Ids may repeat and may be empty.
    """

    block_id: str | None
    heading: str
    level: int
    start_line: int
    end_line: int


def scan_blocks(
    body: str, body_start_line: int, zones: VerbatimZones | None = None
) -> tuple[Block, ...]:
    """The blocks of a body in file order; ATX headings without indentation only.

    `zones` are those of the body, for a caller who has them already.
    """
    if not body:
        return ()
    if zones is None:
        zones = VerbatimZones(body)
    last_line = body_start_line + body.count("\n")
    headings: list[tuple[int, str, str, int]] = []
    line = body_start_line
    counted = first_heading = 0
    # With a line feed in front, a match starts where its line starts in the body.
    for match in _HEADING.finditer("\n" + body):
        start = match.start()
        if zones.in_fence(start):
            continue
        if not headings:
            first_heading = start
        line += body.count("\n", counted, start)
        counted = start
        block_id, heading = _anchored(js_trim(match[2]))
        headings.append((line, block_id, heading, len(match[1]) + 1))
    blocks: list[Block] = []
    preamble = body[:first_heading] if headings else body
    if js_trim(preamble):
        end = headings[0][0] - 1 if headings else last_line
        blocks.append(Block(None, "", 0, body_start_line, end))
    for index, (start_line, block_id, heading, level) in enumerate(headings):
        end = headings[index + 1][0] - 1 if index + 1 < len(headings) else last_line
        blocks.append(Block(block_id, heading, level, start_line, end))
    return tuple(blocks)


def find_block(blocks: Sequence[Block], selector: str) -> Block | None:
    """The block a caller names, None when there is none.

    First the block whose id equals the selector or whose heading equals it ignoring case;
    else `_preamble`, or `<id>~<n>` for the nth block with that id. An empty selector names
    nothing.
    """
    if not selector:
        return None
    lowered = selector.lower()
    for block in blocks:
        if block.block_id == selector or (block.level and block.heading.lower() == lowered):
            return block
    if selector == PREAMBLE:
        return next((block for block in blocks if block.level == 0), None)
    repeated = _REPEATED.fullmatch(selector)
    if repeated is None:
        return None
    same_id = [block for block in blocks if block.block_id == repeated[1]]
    position = int(repeated[2])
    return same_id[position - 1] if position <= len(same_id) else None


def block_content(body_lines: Sequence[str], body_start_line: int, block: Block) -> str:
    """The text of a block without its heading line, trimmed; lines are split on LF."""
    first = block.start_line - body_start_line + (1 if block.level else 0)
    return js_trim("\n".join(body_lines[first : block.end_line - body_start_line + 1]))


def slug(text: str) -> str:
    """The id of a heading without an anchor: `Résumé & Co.` gives `rsum-co`; may be empty."""
    dashed = _SLUG_GAP.sub("-", _NO_SLUG.sub("", text.lower()))
    return dashed.removeprefix("-").removesuffix("-")


def _anchored(heading: str) -> tuple[str, str]:
    anchor = _ANCHOR.search(heading)
    if anchor is None:
        return slug(heading), heading
    return anchor[1], heading[: anchor.start()]
