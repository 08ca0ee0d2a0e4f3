"""Words as the text index sees them (spec 02 §5.2).

The tokenizer of FTS5 takes a whole run of Han, Kana or Hangul for one word. So that any part
of such a run is found, it is indexed as overlapping pairs of characters and its last character;
everything else is indexed as it stands, and what is indexed can be turned back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MOST_WORDS = 64
"""Different words of a query that are looked for; the time of a search grows with them."""

PREFIX = "*"
"""Behind a wanted word: it is the beginning of others."""

_MOST_PAIRS = 64
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


def query_words(query: str) -> tuple[str, ...]:
    """The different words of a query, in order; the longest `MOST_WORDS` of more, which tend to
    be the rare ones. A run without spaces is one word."""
    pieces = (piece for word in _WORD.findall(query) for piece in _PIECE.findall(word))
    different: dict[str, str] = {}
    for piece in pieces:
        different.setdefault(folded(piece), piece)
    words = tuple(different.values())
    if len(words) <= MOST_WORDS:
        return words
    longest = sorted(range(len(words)), key=lambda place: -len(words[place]))[:MOST_WORDS]
    return tuple(words[place] for place in sorted(longest))


def match_text(words: tuple[str, ...]) -> str:
    """An FTS5 expression for any of the words of a query; empty without a word."""
    return " OR ".join(map(_quoted, words))


def wanted_forms(words: tuple[str, ...]) -> frozenset[str]:
    """What the words of a query are in the indexed form of a text, folded."""
    forms: set[str] = set()
    for word in words:
        if _RUN.match(word) is None:
            forms.add(folded(word))
        elif len(word) == 1:
            forms |= {folded(word), f"{folded(word)}{PREFIX}"}
        else:
            forms.update(map(folded, _pair_list(word)))
    return frozenset(forms)


def words_of(indexed: str) -> Iterator[re.Match[str]]:
    """The words of a text in indexed form."""
    return _WORD.finditer(indexed)


def folded(word: str) -> str:
    """The word without case and accents, as the tokenizer compares it."""
    if word.isascii():
        return word.lower()
    if _RUN.match(word) is not None:
        return word
    parts = unicodedata.normalize("NFD", word.lower())
    return "".join(part for part in parts if not unicodedata.combining(part))


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
    return '"' + " ".join(_pair_list(piece)[:_MOST_PAIRS]) + '"'


def _pair_list(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]


def _pairs(run: str) -> str:
    return _MARK.join(run[place : place + 2] for place in range(len(run)))
