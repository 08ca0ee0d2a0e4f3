"""Cutting a byte stream into lines of bounded length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maadd.transport.lines import LineSplitter


def lines_of(splitter: LineSplitter, *chunks: bytes) -> list[bytes | None]:
    return [line for chunk in chunks for line in splitter.feed(chunk)]


def test_lines_come_whole_however_they_are_cut():
    splitter = LineSplitter(10)
    assert lines_of(splitter, b"ab", b"c\nde", b"\n\nf") == [b"abc", b"de", b""]
    assert splitter.rest() == b"f"
    assert splitter.rest() == b""


def test_a_line_at_the_cap_passes_and_one_above_is_none():
    splitter = LineSplitter(4)
    assert lines_of(splitter, b"1234\n12345\n", b"123", b"45", b"678\nok\n") == [
        b"1234",
        None,
        None,
        b"ok",
    ]
    assert lines_of(splitter, b"12345") == []
    assert splitter.rest() is None


def test_nothing_of_a_line_above_the_cap_is_kept():
    splitter = LineSplitter(100)
    for _ in range(1000):
        assert lines_of(splitter, b"x" * 1000) == []
    assert splitter._parts == []


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(0, 12))
def test_the_cut_into_chunks_never_matters(chunks, cap):
    splitter = LineSplitter(cap)
    got = [*lines_of(splitter, *chunks), splitter.rest()]
    expected = b"".join(chunks).split(b"\n")
    assert got == [line if len(line) <= cap else None for line in expected]
