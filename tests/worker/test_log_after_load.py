"""A reindex into a new index leaves the write-back of its log to a quiet moment."""

from __future__ import annotations

from typing import Any

import pytest

from maadd_worker import engine_aftercare
from maadd_worker.index import full_pass


def test_a_quiet_writer_writes_the_log_back(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_pass, "_WORTH_A_LOAD", 2)
    project = open_project()
    for name in ("Ada", "Bo", "Cy"):
        project.ok("maad_create", docType="ship", fields={"name": name})
    project.close()
    for path in (project.root / "_backend").glob("maad.db*"):
        path.unlink()
    project.engine = project.open()
    project._reader = project.engine.open_reader()
    project.ok("maad_reindex")
    writer = project.engine._index.writer()
    assert writer.log_held
    pause = project.engine.settle(False)
    assert writer.log_held
    assert pause is not None
    project.engine.settle(True)
    assert not writer.log_held
    assert project.ok("maad_summary")["totalDocuments"] == 3


def test_a_long_log_is_cut_off_in_quiet_and_not_before(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = open_project()
    index = project.engine._index
    monkeypatch.setattr(engine_aftercare, "_LONG_LOG_BYTES", 0)
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    pause = project.engine.settle(True)
    assert pause is not None
    assert pause <= engine_aftercare._QUIET_S
    assert index.log_bytes > 0
    monkeypatch.setattr(engine_aftercare, "_QUIET_S", 0.0)
    project.engine.settle(True)
    assert index.log_bytes == 0
