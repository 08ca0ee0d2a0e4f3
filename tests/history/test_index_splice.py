"""A spliced index is byte for byte what a walk over all entries makes of it."""

import hashlib
import random

import pytest

from maadd_worker.history import index_splice
from maadd_worker.history.index_format import DamagedIndex, IndexEntry, edit_index, new_index
from maadd_worker.history.index_splice import Landmarks, splice_index

OID = hashlib.sha1(b"blob 0\0").digest()


def entry(number: int = 0) -> IndexEntry:
    return IndexEntry(0o100644, OID, size=number)


def index_of(paths: list[bytes]) -> bytes:
    return edit_index(new_index(), dict.fromkeys(paths, entry()))


def spliced(data: bytes, updates: dict[bytes, IndexEntry | None], known: Landmarks | None) -> bytes:
    done = splice_index(data, updates, known)
    assert done is not None
    edited = b"".join(done.parts)
    assert edited == edit_index(data, updates)
    return edited


@pytest.mark.parametrize("seed", range(6))
def test_any_row_of_edits_gives_what_a_walk_gives(seed: int, monkeypatch) -> None:
    monkeypatch.setattr(index_splice, "_FARTHEST", 90)
    rng = random.Random(seed)
    names = [b"d%d/f-%04d.md" % (number % 7, number) for number in range(600)] + [b"a", b"z/z"]
    data = index_of(rng.sample(names, 300))
    known: Landmarks | None = None
    for step in range(120):
        updates = {
            path: entry(step) if rng.random() < 0.7 else None
            for path in rng.sample(names, rng.choice((1, 1, 2, 9, 40)))
        }
        done = splice_index(data, updates, known)
        assert done is not None
        edited = b"".join(done.parts)
        assert edited == edit_index(data, updates)
        data, known = edited, done.landmarks


def test_many_files_put_in_one_place_are_found_again() -> None:
    data, known = index_of([b"a", b"z"]), None
    for number in range(700):
        done = splice_index(data, {b"m/%05d" % number: entry(number)}, known)
        assert done is not None
        data, known = b"".join(done.parts), done.landmarks
    assert data == edit_index(
        index_of([b"a", b"z"]), {b"m/%05d" % number: entry(number) for number in range(700)}
    )


@pytest.mark.parametrize(
    "updates",
    [
        {b"dir": entry()},
        {b"file/below": entry()},
        {b"file": None, b"file/below": entry()},
        {b"dir/one": None, b"dir": entry()},
    ],
)
def test_files_that_become_directories_are_left_to_the_walk(
    updates: dict[bytes, IndexEntry | None],
) -> None:
    data = index_of([b"dir-", b"dir.md", b"dir/one", b"dir0", b"file"])
    assert splice_index(data, updates, None) is None


def test_names_around_a_directory_are_no_reason_for_that() -> None:
    data = index_of([b"dir-", b"dir.md", b"dir0"])
    spliced(data, {b"dir": entry(), b"dir.m": entry()}, None)


def test_a_damaged_index_is_noticed_unless_it_is_known() -> None:
    data = bytearray(index_of([b"a", b"b"]))
    data[-1] ^= 1
    with pytest.raises(DamagedIndex):
        splice_index(bytes(data), {b"a": None}, None)
