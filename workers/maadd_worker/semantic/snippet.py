"""The part of a text around the words of a query (spec 02 §5.2).

FTS5 has a function for this, whose time grows with the words of the query times their places in
the text; here every word of the text is looked at once.
"""

from __future__ import annotations

from collections import deque

from maadd_worker.semantic.words import PREFIX, folded, plain_form, words_of

_TOKENS = 16


def around_match(indexed: str, wanted: frozenset[str]) -> str:
    """The `_TOKENS` words of a text in indexed form with the most different `wanted` words,
    which stand in their middle; its beginning without any. Cuts are shown by `…`."""
    spans: list[tuple[int, int]] = []
    known: dict[str, bool] = {}
    inside: deque[tuple[int, str]] = deque()
    counts: dict[str, int] = {}
    most, first, last = 0, 0, 0
    for place, word in enumerate(words_of(indexed)):
        spans.append(word.span())
        text = word[0]
        found = known.get(text)
        if found is None:
            form = folded(text)
            found = known[text] = form in wanted or f"{form[:1]}{PREFIX}" in wanted
        if not found:
            continue
        inside.append((place, text))
        counts[text] = counts.get(text, 0) + 1
        while inside[0][0] <= place - _TOKENS:
            _, gone = inside.popleft()
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
        if len(counts) > most:
            most, first, last = len(counts), inside[0][0], place
    if len(spans) <= _TOKENS:
        return plain_form(indexed)
    start = first - (_TOKENS - 1 - (last - first)) // 2
    start = max(0, min(start, len(spans) - _TOKENS))
    end = start + _TOKENS
    left = spans[start][0] if start else 0
    right = spans[end - 1][1] if end < len(spans) else len(indexed)
    shown = plain_form(indexed[left:right])
    return f"{'…' if start else ''}{shown}{'…' if end < len(spans) else ''}"
