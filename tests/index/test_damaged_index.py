"""A damaged index is no loss: it is set aside and built again (design §6)."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from maadd_worker.index.connection import backend_error
from maadd_worker.index.store import Index

PAGE = 4096


@pytest.mark.parametrize("from_page", [1, 2, 5])
def test_a_file_with_damaged_pages_is_replaced_at_the_start(tmp_path: Path, from_page: int) -> None:
    path = tmp_path / "maad.db"
    Index.open(str(path), read_only=False).close()
    content = bytearray(path.read_bytes())
    for page in range(from_page, len(content) // PAGE, 3):
        content[page * PAGE : page * PAGE + 200] = b"\xff" * 200
    path.write_bytes(content)
    index = Index.open(str(path), read_only=False)
    try:
        assert index.writer().find("x") is None
    finally:
        index.close()


def test_damage_that_is_met_later_names_the_way_out() -> None:
    error = backend_error(apsw.CorruptError("database disk image is malformed"), "read")
    assert "delete _backend/maad.db" in error.message


def test_a_full_disk_is_told_with_its_number() -> None:
    error = backend_error(apsw.FullError("database or disk is full"), "written")
    assert (error.code, error.details) == ("BACKEND_ERROR", {"errno": "ENOSPC"})
    assert "free some space" in error.message
