"""The part of a text that a hit shows (spec 02 §5.2)."""

from __future__ import annotations

import pytest

from maadd_worker.semantic.snippet import around_match
from maadd_worker.semantic.words import indexed_form, query_words, wanted_forms

FILLER = " ".join(f"w{number}" for number in range(50))


def shown(text: str, query: str) -> str:
    return around_match(indexed_form(text), wanted_forms(query_words(query)))


@pytest.mark.parametrize("text", ["", "...", "The VALVE is open.\nNothing else."])
def test_a_short_text_is_shown_whole(text: str) -> None:
    assert shown(text, "valve") == text


def test_sixteen_words_stand_around_the_match() -> None:
    snippet = shown(f"{FILLER} Valve, {FILLER}", "valve")
    assert snippet == ("…w43 w44 w45 w46 w47 w48 w49 Valve, w0 w1 w2 w3 w4 w5 w6 w7…")


def test_the_beginning_and_the_end_are_not_cut() -> None:
    assert shown(f"> valve {FILLER}", "valve").startswith("> valve w0")
    assert shown(f"{FILLER} valve!", "valve").endswith("w49 valve!")


def test_the_place_with_the_most_different_words_is_shown() -> None:
    text = f"valve valve valve {FILLER} valve of the pump {FILLER}"
    assert "valve of the pump" in shown(text, "pump valve")


def test_without_a_match_the_beginning_is_shown() -> None:
    assert shown(FILLER, "heading") == " ".join(FILLER.split()[:16]) + "…"


@pytest.mark.parametrize("query", ["cafe", "CAFÉ", "Ärger"])
def test_case_and_accents_do_not_matter(query: str) -> None:
    assert "Café arger" in shown(f"{FILLER} Café arger {FILLER}", query)


@pytest.mark.parametrize("query", ["日", "日本語", "本語"])
def test_texts_without_spaces(query: str) -> None:
    text = "あいうえおかきくけこ" * 5 + "この船は日本語です" + "さしすせそ" * 9
    snippet = shown(text, query)
    assert query in snippet
    assert snippet.startswith("…")
    assert snippet.strip("…") in text


def test_a_letter_finds_no_longer_words() -> None:
    assert shown(f"apple {FILLER} a {FILLER}", "a").startswith("…")
