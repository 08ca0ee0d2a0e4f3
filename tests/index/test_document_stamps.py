"""Versions, times and change numbers (spec 01 §12.1, 02 §4.10)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index.counters import read_counters


def test_first_index_is_version_one_with_equal_stamps(project):
    done = project.index_file(project.task("tsk-a"))
    assert done.action == "create"
    assert done.row.version == 1
    assert done.row.updated_at == done.row.created_at == "2031-02-03T04:05:06.789Z"


def test_changed_content_bumps_and_keeps_created_at(project, clock):
    first = project.index_file(project.task("tsk-a")).row
    clock.advance()
    second = project.index_file(project.task("tsk-a", state="done"))
    assert second.action == "update"
    assert (second.row.version, second.row.created_at) == (2, first.created_at)
    assert second.row.updated_at == "2031-02-03T04:05:07.789Z"
    assert second.row.change_seq > first.change_seq


def test_same_content_keeps_version_and_stamps_even_when_forced(project, clock):
    path = project.task("tsk-a")
    first = project.index_file(path).row
    clock.advance()
    again = project.index_file(path)
    assert (again.action, again.rows_made, again.row) == ("unchanged", False, first)
    forced = project.index_file(path, force=True)
    assert (forced.action, forced.rows_made) == ("unchanged", True)
    assert (forced.row.version, forced.row.updated_at) == (1, first.updated_at)
    assert forced.row.change_seq == first.change_seq
    assert forced.row.indexed_at == "2031-02-03T04:05:07.789Z"


def test_a_clock_that_steps_back_never_takes_stamps_back(project, clock):
    first = project.index_file(project.task("tsk-a")).row
    clock.advance(-3600)
    second = project.index_file(project.task("tsk-b")).row
    assert second.updated_at == first.updated_at
    assert second.change_seq > first.change_seq
    project.reopen()
    third = project.index_file(project.task("tsk-c")).row
    assert third.updated_at == first.updated_at
    assert third.change_seq > second.change_seq


def test_change_numbers_are_not_reused_after_a_hard_delete(project):
    project.index_file(project.task("tsk-a"))
    last = project.index_file(project.task("tsk-b")).row.change_seq
    with project.writer.transaction():
        project.writer.remove_document("tsk-b")
    project.reopen()
    assert project.index_file(project.task("tsk-c")).row.change_seq > last + 1


def test_tombstone_keeps_version_and_gets_a_new_number(project, clock):
    row = project.index_file(project.task("tsk-a")).row
    clock.advance()
    with project.writer.transaction():
        dead = project.writer.tombstone("tsk-a", "work/tasks/_deleted_tsk-a.md")
    assert (dead.deleted, dead.version) == (True, 1)
    assert dead.indexed_at == dead.updated_at == "2031-02-03T04:05:07.789Z"
    assert dead.change_seq > row.change_seq
    assert project.writer.find("tsk-a") is None
    assert project.writer.find("tsk-a", include_deleted=True) == dead


def test_revival_continues_the_version_and_keeps_created_at(project, clock):
    path = project.task("tsk-a")
    first = project.index_file(path).row
    with project.writer.transaction():
        project.writer.tombstone("tsk-a", "work/tasks/_deleted_tsk-a.md")
    clock.advance()
    revived = project.index_file(path)
    assert revived.action == "create"
    assert (revived.row.version, revived.row.created_at) == (2, first.created_at)


def test_a_failed_transaction_leaves_nothing(project):
    project.index_file(project.task("tsk-a"))
    before = read_counters(project.writer.connection)
    with pytest.raises(RuntimeError), project.writer.transaction():
        project.writer.remove_document("tsk-a")
        raise RuntimeError
    assert project.ids() == ["tsk-a"]
    assert read_counters(project.writer.connection) == before


def test_a_failed_savepoint_is_undone_alone(project):
    project.index_file(project.task("tsk-a"))
    with project.writer.transaction():
        with pytest.raises(RuntimeError), project.writer.savepoint():
            project.writer.remove_document("tsk-a")
            raise RuntimeError
        project.writer.meta_set("key", "value")
    assert project.ids() == ["tsk-a"]
    assert project.writer.meta_get("key") == "value"
    assert read_counters(project.writer.connection).documents == 1


def test_ids_with_prefix_include_tombstones(project):
    for doc_id in ("tsk-2031-001", "tsk-2031-010", "tsk-2032-001"):
        project.index_file(project.task(doc_id))
    with project.writer.transaction():
        project.writer.tombstone("tsk-2031-010", "work/tasks/_deleted_tsk-2031-010.md")
    assert project.writer.ids_with_prefix("tsk-2031-") == ["tsk-2031-001", "tsk-2031-010"]


def test_two_rows_of_one_path_are_refused_and_not_replaced(project):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.task("tsk-b"))
    with pytest.raises(Exception, match="file_path"), project.writer.transaction():
        project.writer.tombstone("tsk-b", "work/tasks/tsk-a.md")
    assert project.ids() == ["tsk-a", "tsk-b"]


class TestOneFile:
    """Spec 01 §14.3."""

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("", "PARSE_ERROR"),
            ("---\na: [\n---\n", "PARSE_ERROR"),
            ("# no frontmatter\n", "UNKNOWN_TYPE"),
            ("---\ndoc_id: x-1\n---\n", "UNKNOWN_TYPE"),
            ("---\ndoc_id: x-1\ndoc_type: 7\n---\n", "UNKNOWN_TYPE"),
            ("---\ndoc_id: x-1\ndoc_type: nothing\n---\n", "UNKNOWN_TYPE"),
            ("---\ndoc_type: task\n---\n", "INVALID_DOC_ID"),
            ("---\ndoc_type: task\ndoc_id: 7\n---\n", "INVALID_DOC_ID"),
            ('---\ndoc_type: task\ndoc_id: ""\n---\n', "INVALID_DOC_ID"),
        ],
    )
    def test_refused_files_change_nothing(self, project, text, code):
        with pytest.raises(MaadError) as caught:
            project.index_file(project.write("work/tasks/x.md", text))
        assert caught.value.code == code
        assert project.ids() == []

    def test_a_record_that_breaks_its_schema_is_indexed_as_invalid(self, project):
        assert project.index_file(project.task("tsk-a", state="never")).row.valid is False

    def test_an_id_that_breaks_the_grammar_is_indexed_as_invalid(self, project):
        row = project.index_file(project.task("tsk a", path="work/tasks/x.md")).row
        assert (row.doc_id, row.valid) == ("tsk a", False)

    def test_the_row_keeps_the_schema_that_the_file_names(self, project):
        text = "---\ndoc_id: tsk-a\ndoc_type: task\nschema: task.v0\ntitle: T\n---\n"
        row = project.index_file(project.write("work/tasks/tsk-a.md", text)).row
        assert row.schema_ref == "task.v0"

    def test_a_second_file_with_an_id_is_refused_and_the_first_stays(self, project):
        first = project.index_file(project.task("tsk-a")).row
        with pytest.raises(MaadError) as caught:
            project.index_file(project.task("tsk-a", state="done", path="work/tasks/copy.md"))
        assert caught.value.code == "DUPLICATE_DOC_ID"
        assert caught.value.details == {
            "indexedPath": "work/tasks/tsk-a.md",
            "conflictingPath": "work/tasks/copy.md",
        }
        assert project.writer.find("tsk-a") == first

    def test_a_moved_file_keeps_its_version(self, project):
        project.index_file(project.task("tsk-a"))
        (project.path / "work/tasks/old").mkdir()
        (project.path / "work/tasks/tsk-a.md").rename(project.path / "work/tasks/old/a.md")
        done = project.index_file("work/tasks/old/a.md")
        assert (done.action, done.row.version) == ("update", 1)
        assert project.writer.find_by_path("work/tasks/old/a.md") == done.row
        assert project.writer.find_by_path("work/tasks/tsk-a.md") is None

    def test_an_id_changed_in_place_removes_the_old_row(self, project):
        old = project.index_file(project.task("tsk-a")).row
        done = project.index_file(project.task("tsk-b", path="work/tasks/tsk-a.md"))
        assert done.replaced == old
        assert project.ids() == ["tsk-b"]

    def test_a_type_changed_in_place_moves_the_record(self, project, reader):
        project.index_file(project.task("tsk-a"))
        text = "---\ndoc_id: tsk-a\ndoc_type: member\nname: Ana\n---\n"
        project.index_file(project.write("work/tasks/tsk-a.md", text))
        assert reader.counters().documents_by_type == {"member": 1}
        assert reader.connection.execute("SELECT DISTINCT doc_type FROM field_index").get == (
            "member"
        )

    def test_capped_annotations_mark_the_record_partial(self, project):
        body = "".join(f"[[person:P {number}|p]]\n" for number in range(21))
        path = project.task("tsk-a", body=body)
        assert project.index_file(path).row.partial is True
        project.task("tsk-a", body="[[person:P|p]]\n")
        assert project.index_file(path).row.partial is False
