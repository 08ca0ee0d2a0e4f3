"""Words as the text index sees them (spec 02 §5.2).

The tokenizer of FTS5 takes a whole run of Han, Kana or Hangul for one word. So that any part
of such a run is found, it is indexed as overlapping pairs of characters and its last character;
everything else is indexed as it stands, and what is indexed can be turned back.
"""

from __future__ import annotations

import re

_MARK = "\x1f"
"""Parts the pairs of a run: a control character that no text needs, and no part of a word."""

_UNSPACED = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3131-\u318e"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U000323af"
)
_RUN = re.compile(f"[{_UNSPACED}]+")
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_DOUBLED = re.compile(f"(.){_MARK}\\1", re.DOTALL)


MOST_WORDS = 64
"""Different words of a query that count: each costs a walk through its occurrences."""


def match_text(query: str) -> str:
    """The query as an FTS5 expression: any of its words; empty without a word.

    Of a very long query the longest words count, which tell most.
    """
    words: dict[str, str] = {}
    for word in _WORD.findall(query):
        for piece in _PIECE.findall(word):
            words.setdefault(piece.lower(), piece)
    kept = list(words.values())
    if len(kept) > MOST_WORDS:
        longest = set(sorted(kept, key=len, reverse=True)[:MOST_WORDS])
        kept = [word for word in kept if word in longest]
    return " OR ".join(map(_quoted, kept))


def indexed_form(text: str) -> str:
    """The text as it is given to the tokenizer."""
    if text.isascii() or _RUN.search(text) is None:
        return text
    return _RUN.sub(lambda run: f"{_MARK}{_pairs(run[0])}{_MARK}", text.replace(_MARK, ""))


def plain_form(indexed: str) -> str:
    """The text, or a part of it that ends between words, behind its indexed form."""
    if _MARK not in indexed:
        return indexed
    return _DOUBLED.sub(r"\1", indexed).replace(_MARK, "")


def _quoted(piece: str) -> str:
    if _RUN.match(piece) is None:
        return f'"{piece}"'
    if len(piece) == 1:
        return f'"{piece}" *'
    return '"' + " ".join(piece[place : place + 2] for place in range(len(piece) - 1)) + '"'


def _pairs(run: str) -> str:
    return _MARK.join(run[place : place + 2] for place in range(len(run)))
