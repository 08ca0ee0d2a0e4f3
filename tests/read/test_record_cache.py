"""Parsed records are reused for exactly as long as their file is the same."""

from __future__ import annotations

import os
import time

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.read.record_cache import SETTLED_NS, RecordCache


@pytest.fixture
def folder(tmp_path):
    root = ProjectRoot.open(str(tmp_path))
    yield tmp_path, root
    root.close()


def later() -> int:
    """A clock by which every file has settled."""
    return time.time_ns() + 10 * SETTLED_NS


def record(folder, name="a.md", title="x"):
    (folder[0] / name).write_text(f"---\ntitle: {title}\n---\nbody\n")
    return name


def test_an_unchanged_file_is_parsed_once(folder):
    cache = RecordCache(folder[1], 1 << 20, 0, later)
    path = record(folder)

    assert cache.load(path) is cache.load(path)
    assert bytes(cache.load(path).frontmatter_json) == b'{"title":"x"}'


@pytest.mark.parametrize("change", ["rewrite", "replace", "touch"])
def test_a_changed_file_is_read_again(folder, change):
    cache = RecordCache(folder[1], 1 << 20, 0, later)
    path = record(folder)
    before = cache.load(path)

    if change == "rewrite":
        record(folder, title="longer")
    elif change == "replace":
        record(folder, "b.md", title="y")
        (folder[0] / "b.md").rename(folder[0] / path)
    else:
        os.utime(folder[0] / path, ns=(1, 1))

    assert cache.load(path) is not before


def test_a_file_changed_a_moment_ago_is_not_kept(folder):
    path = record(folder)
    changed_at = (folder[0] / path).stat().st_mtime_ns
    cache = RecordCache(folder[1], 1 << 20, 0, lambda: changed_at + SETTLED_NS)

    assert cache.load(path) is not cache.load(path)


def test_a_sweep_keeps_nothing(folder):
    cache = RecordCache(folder[1], 1 << 20, 0, later)
    path = record(folder)

    assert cache.load(path, keep=False) is not cache.load(path, keep=False)


def test_a_forgotten_record_is_read_again(folder):
    cache = RecordCache(folder[1], 1 << 20, 0, later)
    path = record(folder)
    before = cache.load(path)

    cache.forget(path)
    cache.forget("never.md")

    assert cache.load(path) is not before


def test_the_records_used_longest_ago_make_room(folder):
    paths = [record(folder, f"{number}.md") for number in range(3)]
    cost = RecordCache(folder[1], 1 << 20, 0, later).load(paths[0]).cost
    cache = RecordCache(folder[1], 2 * cost, 0, later)
    first, second = cache.load(paths[0]), cache.load(paths[1])

    assert cache.load(paths[0]) is first
    cache.load(paths[2])

    assert cache.load(paths[0]) is first
    assert cache.load(paths[1]) is not second


def test_a_record_larger_than_the_cache_is_served_all_the_same(folder):
    cache = RecordCache(folder[1], 10, 0, later)
    path = record(folder)
    assert cache.load(path).frontmatter == cache.load(path).frontmatter


def test_a_file_that_is_gone_is_an_error_not_a_memory(folder):
    cache = RecordCache(folder[1], 1 << 20, 0, later)
    path = record(folder)
    cache.load(path)
    (folder[0] / path).unlink()

    with pytest.raises(MaadError, match="FILE_READ_ERROR"):
        cache.load(path)
