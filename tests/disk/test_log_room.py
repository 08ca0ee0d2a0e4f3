"""How long the logs of SQLite get on disks of several sizes (spec 01 §15.2)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from maadd_worker.disk import log_room as subject
from maadd_worker.disk.journal import JOURNAL_PATH, Journal, JournalEntry

MIB = 1024 * 1024


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(subject, "_free", lambda _path: free)


@pytest.mark.parametrize(("free", "pages"), [(1 << 40, 4000), (16 * MIB, 512), (0, 16)])
def test_a_log_gets_a_part_of_the_free_space_and_a_few_pages_on_any_disk(
    monkeypatch: pytest.MonkeyPatch, free: int, pages: int
) -> None:
    with_free(monkeypatch, free)
    assert subject.log_room("maad.db", 4000) == pages


def test_a_log_is_cramped_when_the_disk_may_not_take_it_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "maad.db")
    with_free(monkeypatch, 0)
    assert not subject.is_cramped(path)
    (tmp_path / "maad.db-wal").write_bytes(bytes(2 * MIB))
    assert subject.is_cramped(path)
    with_free(monkeypatch, 6 * MIB)
    assert not subject.is_cramped(path)


def test_the_free_space_is_that_of_the_folder_and_plenty_without_one(tmp_path: Path) -> None:
    path = str(tmp_path / "gone/maad.db")
    assert subject.log_room(path, 7) == 7
    assert subject.log_bytes(path) == 0


def entry(number: int) -> JournalEntry:
    return JournalEntry(
        str(number), "create", "shp-a", "ship", "ships/shp-a.md", None, None, None, "h", "pending",
        "2031-02-03T04:05:06.007Z", None,
    )  # fmt: skip


def test_the_log_of_the_journal_does_not_grow_with_the_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 2 * MIB)
    journal = Journal.open(str(tmp_path), fsync=False)
    log = f"{tmp_path / JOURNAL_PATH}-wal"
    sizes = []
    for number in range(200):
        journal.begin([entry(number)])
        journal.complete([str(number)])
        sizes.append(os.stat(log).st_size)
    assert max(sizes) < 100 * 4096
    with_free(monkeypatch, 0)
    journal.begin([entry(1)])
    assert os.stat(log).st_size < 8 * 4096
    assert [one.id for one in journal.pending()] == ["1"]
    journal.close()
