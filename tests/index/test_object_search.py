"""Looking objects up by kind and value (spec 02 §4.3)."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maadd_worker.index import object_search, short_texts, text_lookup
from maadd_worker.index.object_search import ObjectQuery, object_page

EVERYTHING = 10_000


def fold(text: str) -> str:
    """Lower case of ASCII letters alone."""
    return text.translate(str.maketrans(string.ascii_uppercase, string.ascii_lowercase))


def naive(project, wanted: ObjectQuery) -> list[tuple[str, int]]:
    rows = project.writer.connection.execute(
        "SELECT doc_id, id, primitive, subtype, value FROM objects ORDER BY doc_id, id"
    )
    return [
        (doc_id, number)
        for doc_id, number, primitive, subtype, value in rows
        if primitive == wanted.primitive
        and wanted.subtype in (None, subtype)
        and wanted.value in (None, value)
        and wanted.doc_id in (None, doc_id)
        and (wanted.contains is None or fold(wanted.contains) in fold(value))
    ]


def quoted(text: str) -> str:
    escaped = "".join(
        character if character.isalnum() or character in " .-" else f"\\U{ord(character):08x}"
        for character in text
    )
    return f'"{escaped}"'


def values(reader, needle: str) -> list[str]:
    """The values that contain a text."""
    page = object_page(
        reader, ObjectQuery("entity", "title", contains=needle), limit=EVERYTHING, offset=0
    )
    found = reader.connection.executemany(
        "SELECT value FROM objects WHERE doc_id = ? AND id = ?", page.keys
    )
    assert page.total == len(page.keys)
    return [value for (value,) in found]


TITLES = (
    *("Pump of hall A-1", "pump OFF", "ÄRMEL", "冷却水ポンプの点検報告書", "检查冷却水泵"),
    *('say "hi" *now*', "a AND b NEAR(c)", "50% off_road", "\u212aelvin", "ok\u200dok", "a\0bcd"),
)


@pytest.fixture
def titled(project):
    for number, title in enumerate(TITLES):
        project.task(f"tsk-{number:02}", title=quoted(title))
    project.run()
    return project


@pytest.mark.parametrize(
    ("needle", "hits"),
    [
        ("é", set()),
        ("Är", {2}),
        ("är", set()),
        ("Ä", {2}),
        ("ä", set()),
        ("水", {3, 4}),
        ("報告", {3}),
        ("書", {3}),
        ("\u212ae", {8}),
        ("\u212a", {8}),
        ("n", {5, 6, 8}),
        ("in", {8}),
        ("k", {9}),
        ("PUMP", {0, 1}),
        ("mp", {0, 1}),
        ("p", {0, 1}),
        ("hall a-1", {0}),
        ("ÄRM", {2}),
        ("ärm", set()),
        ("Ärmel", {2}),
        ("ポンプ", {3}),
        ("点検報告", {3}),
        ("冷却水", {3, 4}),
        ("水泵", {4}),
        ("泵", {4}),
        ('"hi"', {5}),
        ('"', {5}),
        ("*now*", {5}),
        ("AND", {6}),
        ("NEAR(", {6}),
        ("@x", set()),
        ("50%", {7}),
        ("f_r", {7}),
        ("kelvin", set()),
        ("\u212aelv", {8}),
        ("elvin", {8}),
        ("k\u200do", {9}),
        ("a\0b", {10}),
        ("\0", {10}),
        ("bcd", {10}),
        ("nowhere at all", set()),
    ],
)
def test_a_substring_is_data_and_folds_ascii_letters_only(titled, reader, needle, hits):
    assert values(reader, needle) == [TITLES[number] for number in sorted(hits)]


def test_a_long_needle_is_compared_whole(project, reader):
    start = "".join(f"{number:03}-" for number in range(40))
    project.task("tsk-a", title=quoted(start + "x"))
    project.task("tsk-b", title=quoted(start + "y"))
    project.run()
    assert values(reader, start + "y") == [start + "y"]


@pytest.mark.parametrize("sample", [1, 3, 64])
def test_frequent_runs_of_characters_change_no_answer(titled, reader, monkeypatch, sample):
    monkeypatch.setattr(text_lookup, "_SAMPLE", sample)
    for number in range(20):
        titled.task(f"tsk-x{number:02}", title=f"Common text {number % 7}")
    titled.run()
    assert len(values(reader, "common text")) == 20
    assert values(reader, "common text 3") == ["Common text 3"] * 3


def test_an_answer_follows_changes_and_deletions(titled, reader):
    assert values(reader, "pump") == ["Pump of hall A-1", "pump OFF"]
    titled.index_file(titled.task("tsk-00", title="Valve"))
    with titled.writer.transaction():
        titled.writer.remove_document("tsk-01")
    assert values(reader, "pump") == []
    assert values(reader, "valv") == ["Valve"]


def check_pages(project, reader, wanted: ObjectQuery) -> None:
    expected = naive(project, wanted)
    for offset in range(0, len(expected) + 3, 2):
        page = object_page(reader, wanted, limit=2, offset=offset)
        assert page.total == len(expected)
        assert list(page.keys) == expected[offset : offset + 2]


_characters = st.sampled_from(
    [*"abAB1éÉſsSµβϐ点検 -\"'%*\x01\0\ufffe\ufffd\U0010fffd", "ab", "点検"]
)
_texts = st.lists(_characters, min_size=1, max_size=6).map("".join)


@settings(max_examples=40, deadline=None)
@given(
    titles=st.lists(_texts, min_size=1, max_size=8),
    needle=st.one_of(st.none(), _texts),
    value=st.one_of(st.none(), _texts),
    subtype=st.sampled_from([None, "title", "person", "none"]),
    doc_id=st.sampled_from([None, "tsk-0", "tsk-none"]),
    listed=st.sampled_from([0, 2, 1000]),
    probed=st.sampled_from([0, 2, 300]),
    short_walk=st.sampled_from([0, 20_000]),
    changes_until_fold=st.sampled_from([0, 3, 1000]),
)
def test_every_page_is_what_a_look_at_each_object_finds(
    make_project,
    titles,
    needle,
    value,
    subtype,
    doc_id,
    listed,
    probed,
    short_walk,
    changes_until_fold,
):
    wanted = ObjectQuery("entity", subtype, value, needle, doc_id)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(object_search, "_LISTED", listed)
        patched.setattr(object_search, "_PROBED", probed)
        patched.setattr(object_search, "_SHORT_WALK", short_walk)
        patched.setattr(short_texts, "_MOST_CHANGES", changes_until_fold)
        project = make_project(Path(folder))
        reader = project.index.reader()
        try:
            for number, title in enumerate(titles):
                body = f"[[person:{title.replace('|', '')}|p]]\n"
                project.task(f"tsk-{number}", title=quoted(title), body=body)
            project.run()
            check_pages(project, reader, wanted)
            project.index_file(project.task("tsk-1", title=quoted(titles[0])))
            with project.writer.transaction():
                project.writer.remove_document("tsk-0")
            check_pages(project, reader, wanted)
        finally:
            reader.close()
            project.index.close()
            project.root.close()
