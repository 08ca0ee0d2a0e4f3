"""The whole-project pass (spec 01 §14.2, §20 items 1, 4, 5, 7, 8)."""

from __future__ import annotations

import os

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index.full_pass import index_all

TABLES = ("documents", "objects", "relationships", "blocks", "field_values", "subtype_counts")


def fill(project, number: int = 3) -> None:
    for place in range(number):
        project.task(
            f"tsk-{place}",
            owner="mbr-x",
            reviewers="[mbr-x, mbr-none]",
            labels="[b, a]",
            points=str(place),
            body=f"# Log\n\n[[person:Ana {place}|Ana]] met [[person:mbr-x|X]].\n",
        )
    project.member("mbr-x")


def content(project) -> dict[str, list[object]]:
    found = {
        table: project.writer.connection.execute(f"SELECT * FROM {table}").fetchall()
        for table in TABLES[1:]
    }
    found["documents"] = project.writer.connection.execute(
        "SELECT doc_id, doc_type, file_path, file_hash, version, valid FROM documents"
    ).fetchall()
    return found


def test_first_pass_indexes_and_the_second_skips(project):
    fill(project)
    report = project.run()
    assert (report.scanned, report.indexed, report.skipped) == (4, 4, 0)
    assert report.rebuilt_types == ("member", "task")
    assert report.view() == {
        "scanned": 4,
        "indexed": 4,
        "skipped": 0,
        "errors": [],
        "rebuiltTypes": ["member", "task"],
    }
    again = project.run()
    assert again.view() == {"scanned": 4, "indexed": 0, "skipped": 4, "errors": []}


def test_deleting_the_backend_and_rebuilding_gives_identical_rows(project):
    fill(project)
    project.run()
    before = content(project)
    project.index.close()
    os.unlink(project.index_path)
    project.index = project.open_index()
    project.run()
    assert content(project) == before


def test_a_forced_pass_makes_rows_anew_and_changes_no_version(project, clock):
    fill(project)
    project.run()
    before = content(project)
    project.writer.connection.execute("DELETE FROM objects WHERE doc_id = 'tsk-1'")
    project.writer.connection.execute(
        "UPDATE field_values SET field_value = 'x' WHERE doc_id = 'tsk-2'"
    )
    clock.advance()
    report = project.run(force=True)
    assert (report.indexed, report.skipped) == (4, 0)
    after = content(project)
    for table in ("objects", "field_values", "documents", "relationships", "blocks"):
        assert after[table] == before[table]


def test_unchanged_files_are_not_read(project, monkeypatch):
    fill(project)
    project.run()
    read: list[str] = []
    monkeypatch.setattr(type(project.root), "read", lambda self, rel, cap=None: read.append(rel))
    assert project.run().skipped == 4
    assert read == []


def test_a_fresh_file_is_read_again_because_its_stat_proves_nothing_yet(project):
    path = project.write(
        "people/mbr-f.md", "---\ndoc_id: mbr-f\ndoc_type: member\nname: A\n---\n", fresh=True
    )
    project.run()
    stat = os.stat(project.path / path)
    (project.path / path).write_text("---\ndoc_id: mbr-f\ndoc_type: member\nname: B\n---\n")
    os.utime(project.path / path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert project.run().indexed == 1
    assert project.writer.find("mbr-f").version == 2


def test_hand_edits_are_found_and_told(project):
    fill(project)
    project.run()
    project.task("tsk-0", state="done")
    project.task("tsk-9")
    os.unlink(project.path / "work/tasks/tsk-1.md")
    project.task("tsk-5", path="work/tasks/tsk-2.md")
    told = []
    index_all(project.writer, project.model, project.root, project.settings, changed=told.append)
    assert sorted((change.action, change.row.doc_id) for change in told) == [
        ("create", "tsk-5"),
        ("create", "tsk-9"),
        ("delete", "tsk-1"),
        ("delete", "tsk-2"),
        ("update", "tsk-0"),
    ]


def test_broken_files_are_diagnosed_one_by_one(project):
    fill(project, 20)
    project.write("work/tasks/colon.md", "---\ndoc_id: tsk-c\ntitle: a: b\n---\n")
    project.write("work/tasks/empty.md", "")
    project.write("work/tasks/none.md", "# text only\n")
    report = project.run()
    assert report.indexed == 21
    assert [(error.code, error.details["file"]) for error in report.errors] == [
        ("PARSE_ERROR", "work/tasks/colon.md"),
        ("PARSE_ERROR", "work/tasks/empty.md"),
        ("UNKNOWN_TYPE", "work/tasks/none.md"),
    ]
    assert report.view()["errors"][0]["location"]["file"] == "work/tasks/colon.md"


def test_one_broken_file_among_many_is_named_with_its_place(project):
    fill(project, 100)
    project.write(
        "work/tasks/tab.md", "---\ndoc_id: tsk-t\ndoc_type: task\ntitle: x\n\tnote: y\n---\n"
    )
    report = project.run()
    assert report.indexed == 101
    [error] = report.errors
    assert (error.location.file, error.location.line, error.location.col) == (
        "work/tasks/tab.md", 5, 1,
    )  # fmt: skip


def test_many_files_without_a_type_or_an_id_are_diagnosed_each(project):
    for number in range(150):
        project.write(f"work/tasks/t{number:03}.md", f"---\ndoc_id: tsk-{number}\ndoc_type:\n---\n")
        project.write(f"work/tasks/i{number:03}.md", "---\ndoc_id:\ndoc_type: task\ntitle:\n---\n")
    project.member("mbr-x")
    for _ in range(2):
        codes = [error.code for error in project.run().errors]
        assert codes == ["INVALID_DOC_ID"] * 150 + ["UNKNOWN_TYPE"] * 150
        assert project.ids() == ["mbr-x"]


def test_names_that_differ_by_case_or_normalization_only_are_different_records(project):
    names = ("note", "Note", "caf\u00e9", "cafe\u0301")
    for number, name in enumerate(names):
        project.task(f"tsk-{number}", path=f"work/tasks/{name}.md")
    for _ in range(2):
        assert project.run(force=True).errors == ()
        assert project.ids() == ["tsk-0", "tsk-1", "tsk-2", "tsk-3"]
    os.unlink(project.path / "work/tasks/cafe\u0301.md")
    assert project.run().pruned == 1
    assert project.ids() == ["tsk-0", "tsk-1", "tsk-2"]


def test_two_files_with_one_id_give_one_error_and_the_first_stays(project):
    project.task("tsk-a", path="work/tasks/a.md")
    project.task("tsk-a", path="work/tasks/b.md", state="done")
    for _ in range(2):
        report = project.run()
        assert [error.code for error in report.errors] == ["DUPLICATE_DOC_ID"]
        assert project.writer.find("tsk-a").file_path == "work/tasks/a.md"
        assert project.writer.find("tsk-a").version == 1


def test_a_renamed_file_is_the_same_record(project):
    fill(project)
    project.run()
    (project.path / "work/tasks/tsk-1.md").rename(project.path / "work/tasks/a-new-name.md")
    report = project.run()
    assert (report.indexed, report.pruned, report.errors) == (1, 0, ())
    row = project.writer.find("tsk-1")
    assert (row.file_path, row.version) == ("work/tasks/a-new-name.md", 1)


def test_an_id_changed_in_place_leaves_no_old_row_and_no_error(project):
    project.task("tsk-a", path="work/tasks/x.md")
    project.run()
    project.task("tsk-b", path="work/tasks/x.md")
    assert project.run().errors == ()
    assert project.ids() == ["tsk-b"]


class TestSchemaChange:
    def change(self, project, old: str, new: str) -> None:
        path = project.path / "_schema/task.v1.yaml"
        project.write("_schema/task.v1.yaml", path.read_text().replace(old, new))
        project.reload()

    def test_a_newly_indexed_field_rebuilds_its_type_alone(self, project, reader):
        fill(project)
        project.task("tsk-0", note="hello")
        project.run()
        self.change(project, "note: {type: string}", "note: {type: string, index: true}")
        report = project.run()
        assert report.rebuilt_types == ("task",)
        assert (report.indexed, report.skipped) == (3, 1)
        rows = reader.connection.execute(
            "SELECT field_value FROM field_index WHERE field_name = 'note'"
        )
        assert rows.fetchall() == [("hello",)]
        assert project.writer.find("tsk-0").version == 1
        assert project.run().rebuilt_types == ()

    def test_a_validation_rule_alone_judges_the_records_again(self, project):
        project.task("tsk-a", state="blocked")
        project.run()
        assert project.writer.find("tsk-a").valid is False
        self.change(project, "[todo, doing, done]", "[todo, doing, done, blocked]")
        assert project.run().indexed == 1
        assert project.writer.find("tsk-a").valid is True

    def test_a_broken_file_keeps_its_type_dirty_but_only_it_is_tried_again(self, project):
        fill(project)
        project.run()
        self.change(project, "note: {type: string}", "note: {type: string, index: true}")
        project.write("work/tasks/tsk-1.md", "---\nbroken: [\n---\n")
        first = project.run()
        assert (first.indexed, len(first.errors)) == (2, 1)
        fingerprint = "schema_index_fp:task"
        stale = project.writer.meta_get(fingerprint)
        second = project.run()
        assert (second.indexed, second.skipped, len(second.errors)) == (0, 3, 1)
        assert second.rebuilt_types == ("task",)
        assert project.writer.meta_get(fingerprint) == stale
        project.task("tsk-1")
        third = project.run()
        assert (third.indexed, third.errors) == (1, ())
        assert project.writer.meta_get(fingerprint) != stale
        assert project.run().rebuilt_types == ()

    def test_the_stored_fingerprint_is_the_one_of_the_spec(self, project):
        project.write(
            "_schema/member.v1.yaml",
            "type: member\nrequired: []\nfields:\n  title: {type: string, index: true}\n",
        )
        project.reload()
        project.run()
        assert project.writer.meta_get("schema_index_fp:member") == "57dc7eb1c9baf600"


class TestSizeGuard:
    def test_a_file_that_outgrows_the_cap_keeps_its_rows_and_comes_back(self, project):
        fill(project)
        path = project.path / "work/tasks/tsk-1.md"
        small = path.read_text()
        project.run()
        project.write("work/tasks/tsk-1.md", small + "x" * 100_001)
        for _ in range(2):
            report = project.run()
            assert [error.code for error in report.errors] == ["DOC_TOO_LARGE"]
            assert report.errors[0].details == {
                "sizeBytes": len(small) + 100_001,
                "capBytes": 100_000,
            }
            row = project.writer.find("tsk-1")
            assert (row.partial, row.file_hash, row.version) == (True, "", 1)
            assert project.index.reader().counters().partial == 1
        project.write("work/tasks/tsk-1.md", small)
        assert project.run().indexed == 1
        row = project.writer.find("tsk-1")
        assert (row.partial, row.file_hash != "") == (False, True)
        assert project.index.reader().counters().partial == 0

    def test_a_cap_of_zero_is_no_cap(self, project):
        project.settings = type(project.settings)(max_doc_bytes=0)
        project.task("tsk-a", body="x" * 200_000)
        assert project.run().indexed == 1


class TestRowsWithoutFiles:
    def test_a_deleted_file_among_others_is_pruned(self, project):
        fill(project)
        project.run()
        os.unlink(project.path / "work/tasks/tsk-1.md")
        report = project.run()
        assert (report.pruned, report.warnings) == (1, ())
        assert project.ids() == ["mbr-x", "tsk-0", "tsk-2"]
        assert project.writer.connection.execute("SELECT doc_id FROM deletions").get == "tsk-1"

    def test_a_typing_error_in_the_registry_prunes_nothing_and_warns_twice(self, project):
        fill(project)
        project.run()
        registry = (project.path / "_registry/object_types.yaml").read_text()
        project.write("_registry/object_types.yaml", registry.replace("work/tasks", "work-tasks"))
        project.reload()
        report = project.run(force=True)
        assert report.pruned == 0
        assert len(report.warnings) == 2
        assert "work-tasks" in report.warnings[0]
        assert all(part in report.warnings[1] for part in ("3", "task", "not pruned", "work-tasks"))
        assert len(project.ids()) == 4

    @pytest.mark.parametrize("prune", [False, True])
    @pytest.mark.parametrize("loss", ["emptied", "removed"])
    def test_an_empty_or_missing_folder_prunes_only_when_told_to(self, project, loss, prune):
        fill(project)
        project.run()
        for path in (project.path / "work/tasks").iterdir():
            path.unlink()
        if loss == "removed":
            (project.path / "work/tasks").rmdir()
        report = project.run(prune=prune)
        assert report.pruned == (3 if prune else 0)
        assert (report.prunable, report.prunable_ids) == (
            (0, ()) if prune else (3, ("tsk-0", "tsk-1", "tsk-2"))
        )
        if not prune:
            first, second = report.warnings
            assert "contains no markdown files" in first or "does not exist" in first
            assert "not pruned" in second
        assert len(project.ids()) == (1 if prune else 4)

    @pytest.mark.parametrize("prune", [False, True])
    def test_a_walk_that_fails_half_way_never_prunes(self, project, monkeypatch, prune):
        fill(project)
        project.task("tsk-deep", path="work/tasks/deep/tsk-deep.md")
        project.run()
        os.unlink(project.path / "work/tasks/tsk-1.md")
        os.unlink(project.path / "work/tasks/deep/tsk-deep.md")
        real = type(project.root).open_directory

        def refuse(self, rel, **options):
            if rel.endswith("deep"):
                raise PermissionError(13, "Permission denied")
            return real(self, rel, **options)

        monkeypatch.setattr(type(project.root), "open_directory", refuse)
        report = project.run(prune=prune)
        assert (report.pruned, report.complete) == (0, False)
        assert any("deep" in warning for warning in report.warnings)
        assert any("2 records" in w and "not pruned" in w for w in report.warnings)
        assert len(project.ids()) == 5

    def test_a_lost_project_root_prunes_nothing(self, project, tmp_path):
        fill(project)
        project.run()
        for name in ("work", "people"):
            (project.path / name).rename(tmp_path / f"gone-{name}")
        report = project.run(force=True)
        assert report.pruned == 0
        assert len(project.ids()) == 4

    def test_a_record_made_while_the_pass_runs_stays(self, project):
        fill(project)
        project.run()
        made: list[str] = []

        def write_between() -> None:
            if not made:
                made.append("tsk-new")
                project.index_file(project.task("tsk-new", path="work/tasks/later/tsk-new.md"))
                project.index_file(project.task("tsk-outside", path="outside/tsk-outside.md"))

        report = index_all(
            project.writer,
            project.model,
            project.root,
            project.settings,
            between_chunks=write_between,
        )
        assert (report.pruned, report.warnings) == (0, ())
        assert {"tsk-new", "tsk-outside"} <= set(project.ids())

    def test_a_file_outside_every_registered_path_keeps_its_row(self, project):
        fill(project)
        project.index_file(project.task("tsk-out", path="elsewhere/tsk-out.md"))
        project.index_file(project.task("tsk-other", path="elsewhere/tsk-other.md"))
        report = project.run()
        assert report.pruned == 0
        assert "2 records" in report.warnings[0]
        assert "not pruned" in report.warnings[0]
        os.unlink(project.path / "elsewhere/tsk-out.md")
        assert project.run().pruned == 1


class TestTombstoneFiles:
    def test_lost_tombstones_are_registered_again(self, project):
        fill(project)
        (project.path / "work/tasks/tsk-1.md").rename(project.path / "work/tasks/_deleted_tsk-1.md")
        report = project.run()
        assert report.scanned == 3
        row = project.writer.find("tsk-1", include_deleted=True)
        assert (row.deleted, row.file_path, row.version) == (
            True,
            "work/tasks/_deleted_tsk-1.md",
            1,
        )
        assert project.run().warnings == ()

    def test_a_tombstone_file_that_was_renamed_is_followed(self, project):
        fill(project)
        deleted = project.path / "work/tasks/_deleted_tsk-1.md"
        (project.path / "work/tasks/tsk-1.md").rename(deleted)
        project.run()
        deleted.rename(project.path / "work/tasks/_deleted_tsk-1.2.md")
        project.run()
        row = project.writer.find("tsk-1", include_deleted=True)
        assert row.file_path == "work/tasks/_deleted_tsk-1.2.md"

    def test_an_old_copy_beside_a_live_record_is_left_alone(self, project):
        fill(project)
        project.task("tsk-1", path="work/tasks/_deleted_tsk-1.md")
        project.run()
        assert project.writer.find("tsk-1").deleted is False

    def test_a_tombstone_file_without_an_id_is_reported(self, project):
        fill(project)
        project.write("work/tasks/_deleted_x.md", "---\n[\n---\n")
        project.write("work/tasks/_deleted_y.md", "text\n")
        warnings = project.run().warnings
        assert ["_deleted_x.md" in warnings[0], "_deleted_y.md" in warnings[1]] == [True, True]


def test_types_that_share_a_folder_scan_each_file_once(project):
    project.write(
        "_registry/object_types.yaml",
        "types:\n"
        "  task: {path: work, id_prefix: tsk, schema: task.v1}\n"
        "  member: {path: work/tasks, id_prefix: mbr, schema: member.v1}\n",
    )
    project.reload()
    fill(project)
    assert project.run().scanned == 3


def test_progress_is_told_chunk_by_chunk(project):
    fill(project)
    told = []
    index_all(project.writer, project.model, project.root, project.settings, progress=told.append)
    assert [(step.doc_type, step.scanned, step.indexed) for step in told] == [
        ("task", 3, 3),
        ("member", 4, 4),
    ]


def test_a_database_that_fails_for_one_file_does_not_take_the_others(project, monkeypatch):
    fill(project)
    project.run()
    for place in range(3):
        project.task(f"tsk-{place}", state="done")
    project.writer.connection.execute("""
        CREATE TRIGGER refuse BEFORE UPDATE ON documents WHEN new.doc_id = 'tsk-1'
        BEGIN SELECT raise(ABORT, 'no'); END
    """)
    report = project.run()
    assert [error.code for error in report.errors] == ["BACKEND_ERROR"]
    assert report.indexed == 2
    assert [project.writer.find(f"tsk-{place}").version for place in range(3)] == [2, 1, 2]


def test_a_pass_ended_between_chunks_keeps_what_it_committed(project):
    fill(project)

    def stop() -> None:
        raise MaadError("SHUTTING_DOWN", "the worker drains")

    with pytest.raises(MaadError, match="drains"):
        index_all(
            project.writer, project.model, project.root, project.settings, between_chunks=stop
        )
    assert project.ids() == ["tsk-0", "tsk-1", "tsk-2"]
    assert project.run().indexed == 1


def test_a_record_whose_file_now_holds_another_id_is_let_go(project):
    project.task("tsk-a")
    project.task("tsk-b", state="done")
    project.run()
    project.task("tsk-b", state="open")
    project.run()
    overwritten = project.path / "work/tasks/tsk-b.md"
    before = overwritten.read_bytes()
    overwritten.write_bytes((project.path / "work/tasks/tsk-a.md").read_bytes())
    told = []
    report = index_all(
        project.writer, project.model, project.root, project.settings, changed=told.append
    )
    assert [error.code for error in report.errors] == ["DUPLICATE_DOC_ID"]
    assert report.pruned == 1
    assert [(change.action, change.row.doc_id) for change in told] == [("delete", "tsk-b")]
    assert project.ids() == ["tsk-a"]
    assert (project.run().pruned, project.ids()) == (0, ["tsk-a"])
    overwritten.write_bytes(before)
    project.run()
    assert project.writer.find("tsk-b").version == 2
