"""Queries are words, never query syntax; what has no spaces is found in parts (spec 02 §5.2)."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maadd_worker.semantic.words import (
    MOST_WORDS,
    indexed_form,
    match_text,
    plain_form,
    query_words,
)


@pytest.mark.parametrize(
    ("query", "expression"),
    [
        ("vector search", '"vector" OR "search"'),
        ("a-b.c", '"a" OR "b" OR "c"'),
        ("  ", ""),
        ("?! --", ""),
        ('NEAR( "a AND *', '"NEAR" OR "a" OR "AND"'),
        ("@x", '"x"'),
        ("snake_case", '"snake" OR "case"'),
        ("日本語", '"日本 本語"'),
        ("日", '"日" *'),
        ("v2の仕様", '"v2" OR "の仕 仕様"'),
        ("한국어", '"한국 국어"'),
    ],
)
def test_any_word_of_the_query_is_looked_for(query: str, expression: str) -> None:
    assert match_text(query_words(query)) == expression


def finds(text: str, query: str) -> bool:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    connection.execute("INSERT INTO words VALUES (?)", (indexed_form(text),))
    sql = "SELECT count(*) FROM words WHERE words MATCH ?"
    return bool(connection.execute(sql, (match_text(query_words(query)),)).get)


SENTENCE = "これは日本語の文章です。ABC用語と東京。"


@pytest.mark.parametrize("part", ["これ", "日本語", "本語の文", "章", "す", "用", "東京", "abc"])
def test_every_part_of_a_run_is_found(part: str) -> None:
    assert finds(SENTENCE, part)


@pytest.mark.parametrize("other", ["日語", "英語", "京東", "文字"])
def test_characters_that_do_not_follow_each_other_are_not_found(other: str) -> None:
    assert not finds(SENTENCE, other)


@pytest.mark.parametrize("query", ["A-1", "@x", "a AND", '"', "NEAR(", "*", "^a", "text:b", "a'b"])
def test_what_looks_like_query_syntax_is_data(query: str) -> None:
    expression = match_text(query_words(query))
    if expression:
        assert not finds("nothing of the kind", query)
        assert finds(f"before {query} behind", query)


@given(st.text("ab1 。・日本語の한국어カナ\U00020000é\n", max_size=40))
def test_the_indexed_form_can_be_turned_back(text: str) -> None:
    assert plain_form(indexed_form(text)) == text


@given(st.text("日本語のabc 。1", max_size=20), st.data())
def test_any_part_of_any_text_is_found(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    part = text[start : data.draw(st.integers(start, len(text)))]
    if part and all(character in "日本語の" for character in part):
        assert finds(text, part)


def test_ascii_is_left_alone() -> None:
    text = "plain words, 12 of them"
    assert indexed_form(text) is text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("gas " * 200, ("gas",)),
        ("Gas gas GAS", ("Gas",)),
        ("a.b-" * 600, ("a", "b")),
        ("café CAFE", ("café",)),
        ("日本語 日本語", ("日本語",)),
    ],
)
def test_a_repeated_word_counts_once(query: str, words: tuple[str, ...]) -> None:
    assert query_words(query) == words


def test_the_longest_of_many_words_are_looked_for_in_their_order() -> None:
    short = " ".join(f"n{number}" for number in range(999))
    words = query_words(f"compressor {short} valve")
    assert (words[0], words[-1], len(words)) == ("compressor", "valve", MOST_WORDS)


def test_a_long_run_without_spaces_is_looked_for_by_its_beginning() -> None:
    run = "".join(chr(0x4E00 + number) for number in range(5000))
    assert match_text(query_words(run)).count(" ") == 63
    assert finds(run, run)
