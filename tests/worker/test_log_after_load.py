"""A reindex into a new index leaves the write-back of its log to a quiet moment."""

from __future__ import annotations

from typing import Any

import pytest

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
