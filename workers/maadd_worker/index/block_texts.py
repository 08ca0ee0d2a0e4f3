"""The texts of a record's blocks, and who takes them (spec 02 §6.3).

Texts are made with the other rows of a record, where its body is at hand, and only while
somebody wants them.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from maadd_worker.markdown.blocks import block_content
from maadd_worker.markdown.document import ParsedDocument

MOST_BLOCKS = 1 << 24
"""Blocks of a record that can have a text."""


class BlockText(msgspec.Struct, frozen=True, array_like=True):
    """The text of one block without its heading line; `ordinal` is its place in the list of
    blocks, since ids repeat. `text_hash` is the half of a SHA-256 that tells texts apart."""

    ordinal: int
    block_id: str | None
    heading: str
    text: str
    text_hash: str


class DocumentTexts(msgspec.Struct, frozen=True, array_like=True):
    """The texts of one record with the hash of the file that they come from."""

    doc_id: str
    file_hash: str
    blocks: list[BlockText]


class TextSink(Protocol):
    """Takes part in every transaction of the index that changes records."""

    wanted: bool
    """Whether texts are to be made for it; otherwise it only hears of removals."""

    def add(self, documents: list[DocumentTexts]) -> None:
        """Records that it knows nothing of."""
        ...

    def replace(self, document: DocumentTexts) -> None:
        """A record that it may know in another form."""
        ...

    def remove(self, doc_id: str) -> None:
        """A record that is deleted, for good or not."""
        ...


def block_texts(parsed: ParsedDocument) -> list[BlockText]:
    """The texts of all blocks that have one, in file order."""
    lines = parsed.split.body.replace("\r\n", "\n").split("\n")
    start = parsed.split.body_start_line
    found: list[BlockText] = []
    for ordinal, block in enumerate(parsed.blocks[:MOST_BLOCKS]):
        text = block_content(lines, start, block)
        if text:
            found.append(
                BlockText(ordinal, block.block_id or None, block.heading, text, text_hash(text))
            )
    return found


def text_hash(text: str) -> str:
    """The first 32 hex digits of the SHA-256 of the text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
