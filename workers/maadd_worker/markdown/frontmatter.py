"""Where the frontmatter of a file ends and its body begins (spec 01 §4.1).

The one splitter of the product: parser, writer, receipts, scanner and diff all use it, so
they can never disagree about what is body.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from maadd_worker.markdown.diagnostics import parse_error
from maadd_worker.markdown.text import js_trim

BOM = "\ufeff"
_LANGUAGES = ("", "yaml", "yml")


class SplitFile(msgspec.Struct, frozen=True):
    """A decoded file in its parts: BOM + `opening` + `block` + `closing` + `body` is the text.

    `newline` is the file's own line end, judged by its first line. `opening` and `closing`
    are the fence lines with their line ends ("" without frontmatter; a BOM right behind the
    first is no content and counts to it). `block` is the raw YAML between them, `body`
    everything after, untouched. Lines are 1-based lines of the file.
    """

    bom: bool
    newline: Literal["\n", "\r\n"]
    has_frontmatter: bool
    block: str
    body: str
    body_start_line: int
    block_start_line: int
    opening: str = ""
    closing: str = ""


def split_file(data: bytes, file: str) -> SplitFile:
    """Split the bytes of a record; `file` is the project-relative path for messages.

    Raises PARSE_ERROR for invalid UTF-8, a language tag other than YAML (never evaluated)
    and a block without its closing line.
    """
    text = decode_text(data, file)
    bom = text.startswith(BOM)
    if bom:
        text = text[1:]
    first_end = text.find("\n")
    newline: Literal["\n", "\r\n"] = (
        "\r\n" if first_end > 0 and text[first_end - 1] == "\r" else "\n"
    )
    if not text.startswith("---") or text.startswith("----"):
        return SplitFile(bom, newline, False, "", text, 1, 1)

    opening = text[: first_end + 1] if first_end >= 0 else text
    language = js_trim(opening[3:])
    if language not in _LANGUAGES:
        raise parse_error(
            f"frontmatter language {language[:40]!r} is not supported; start the file with a bare "
            "--- line and write YAML",
            file,
            1,
            4,
        )
    block_end, body_start = _closing_fence(text, len(opening))
    if block_end < 0:
        raise parse_error(
            "frontmatter not closed; add a line with only --- after the last field", file, 1, 1
        )
    if text.startswith(BOM, len(opening)):
        opening += BOM
    block = text[len(opening) : block_end]
    body_start_line = block.count("\n") + 3
    closing = text[block_end:body_start]
    body = text[body_start:]
    return SplitFile(bom, newline, True, block, body, body_start_line, 2, opening, closing)


def decode_text(data: bytes, file: str) -> str:
    """The text of a file that must be valid UTF-8; PARSE_ERROR names the first bad byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        at = failure.start
        line_start = data.rfind(b"\n", 0, at) + 1
        col = len(data[line_start:at].decode()) + 1
        raise parse_error(
            f"invalid UTF-8 at byte {at}; save the file as UTF-8",
            file,
            data.count(b"\n", 0, at) + 1,
            col,
        ) from None


def content_hash(data: bytes) -> str:
    """Lower-case hex SHA-256 over the raw bytes of a file, BOM included (spec 01 §4.3)."""
    return hashlib.sha256(data).hexdigest()


def _closing_fence(text: str, block_start: int) -> tuple[int, int]:
    """Offsets where the block ends and the body starts; (-1, -1) when never closed."""
    at = text.find("\n---", block_start - 1)
    while at >= 0:
        line_end = text.find("\n", at + 4)
        rest = text[at + 4 :] if line_end < 0 else text[at + 4 : line_end]
        if not rest.removesuffix("\r").strip(" \t"):
            return at + 1, len(text) if line_end < 0 else line_end + 1
        at = text.find("\n---", at + 4)
    return -1, -1
