"""An empty index over existing files is never served as empty (spec 01 §14.6)."""

from __future__ import annotations

import pytest

from maadd_worker.index.empty_guard import IndexState, index_state, unindexed_files


def test_a_project_without_files_starts(project, reader):
    assert unindexed_files(reader, project.model, project.root) is None


def test_files_without_records_are_counted(project, reader):
    project.task("tsk-a")
    project.task("tsk-b", path="work/tasks/deep/tsk-b.md")
    project.member("mbr-x")
    project.task("tsk-c", path="work/tasks/_deleted_tsk-c.md")
    project.write("other/x.md", "text")
    assert unindexed_files(reader, project.model, project.root) == 3


def test_one_live_record_is_enough(project, reader):
    project.index_file(project.task("tsk-a"))
    project.task("tsk-b")
    assert unindexed_files(reader, project.model, project.root) is None
    assert index_state(reader, project.model, project.root) == IndexState(1, 2)


def test_an_index_with_tombstones_only_is_empty(project, reader):
    project.index_file(project.task("tsk-a"))
    with project.writer.transaction():
        project.writer.tombstone("tsk-a", "work/tasks/_deleted_tsk-a.md")
    assert unindexed_files(reader, project.model, project.root) == 1


@pytest.mark.parametrize(
    ("documents", "files", "incomplete"),
    [(100, 110, False), (100, 111, True), (100, 50, False), (0, 0, False), (0, 1, True)],
)
def test_a_tenth_more_files_than_records_means_lost_records(documents, files, incomplete):
    assert IndexState(documents, files).incomplete is incomplete
