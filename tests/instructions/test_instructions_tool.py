"""`maad_instructions`: check for everybody, refresh for admins (spec 03 §6.5)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from guided_project import OLD, PATHS, git, stamps, subjects

from maadd import __version__
from maadd.protocol.messages import Identity
from maadd.protocol.roles import Role
from maadd_worker.instructions import refresh as refresh_module
from maadd_worker.instructions.manifest import ENGINE, load_templates

SCHEMA_GUIDE = "_skills/schema-guide.md"
IMPORT_GUIDE = "_skills/import-guide.md"
SUBJECT = f"maad:instructions — refresh managed instructions to {__version__}"
CONTENT = {template.path: template.content for template in load_templates()}


@pytest.fixture
def mixed(project: Path) -> Path:
    """One file outdated, one missing, one edited, one foreign; two current."""
    (project / SCHEMA_GUIDE).write_bytes(OLD)
    (project / IMPORT_GUIDE).unlink()
    with (project / "_skills/graph-ontology.md").open("ab") as file:
        file.write(b"edit\n")
    (project / "MAAD.md").write_bytes(b"# Ours\n")
    git(project, "commit", "-aqm", "mixed")
    return project


def states(data: Any) -> dict[str, str]:
    return {one["relPath"]: one["state"] for one in data["files"]}


class TestCheck:
    def test_it_names_every_file_with_its_state(self, mixed: Path, served: Any) -> None:
        data = served().ok(role=Role.READER)
        assert data["engineVersion"] == ENGINE
        assert data["canRefresh"] is True
        assert data["files"][0] == {
            "name": "maad-md",
            "relPath": "MAAD.md",
            "state": "unmanaged",
            "stampedEngine": None,
        }
        assert states(data) == {
            "MAAD.md": "unmanaged",
            "_skills/architect-core.md": "current",
            SCHEMA_GUIDE: "outdated",
            IMPORT_GUIDE: "missing",
            "_skills/graph-ontology.md": "modified",
            "_skills/corpus-explorer.md": "current",
        }

    def test_it_changes_nothing(self, mixed: Path, served: Any) -> None:
        engine = served()
        before = stamps(mixed)
        engine.ok()
        assert stamps(mixed) == before

    def test_an_unreadable_file_carries_its_error(self, project: Path, served: Any) -> None:
        (project / IMPORT_GUIDE).unlink()
        (project / IMPORT_GUIDE).mkdir()
        [found] = [one for one in served().ok()["files"] if one["name"] == "import-guide"]
        assert found["state"] == "unmanaged"
        assert IMPORT_GUIDE in found["error"]

    def test_a_read_only_project_says_that_it_cannot_be_refreshed(
        self, project: Path, served: Any
    ) -> None:
        served().close()
        assert served("read").ok()["canRefresh"] is False


class TestSummary:
    def test_nothing_is_said_while_all_is_well(self, served: Any) -> None:
        data = served().ok("maad_summary")
        assert "instructionsStale" not in data
        assert "canRefresh" not in data

    def test_outdated_and_missing_files_are_named(self, mixed: Path, served: Any) -> None:
        assert served().ok("maad_summary")["instructionsStale"] == [
            {"path": SCHEMA_GUIDE, "state": "outdated"},
            {"path": IMPORT_GUIDE, "state": "missing"},
        ]

    def test_a_read_only_project_leaves_out_what_it_cannot_get(
        self, mixed: Path, served: Any
    ) -> None:
        served().close()
        data = served("read").ok("maad_summary")
        assert data["instructionsStale"] == [{"path": SCHEMA_GUIDE, "state": "outdated"}]
        assert data["canRefresh"] is False

    def test_a_read_only_project_that_lacks_files_only_says_so(
        self, project: Path, served: Any
    ) -> None:
        served().close()
        (project / IMPORT_GUIDE).unlink()
        data = served("read").ok("maad_summary")
        assert "instructionsStale" not in data
        assert data["canRefresh"] is False


class TestWhoMayRefresh:
    @pytest.mark.parametrize("role", [Role.READER, Role.WRITER])
    @pytest.mark.parametrize("dry_run", [True, False])
    @pytest.mark.parametrize("mode", ["audit", "read"])
    def test_below_admin_nobody_may(
        self, served: Any, role: Role, dry_run: bool, mode: str
    ) -> None:
        served().close()
        reply = served(mode).reply(role=role, action="refresh", dryRun=dry_run)
        [error] = msgspec.json.decode(reply.body)
        assert error["code"] == "INSUFFICIENT_ROLE"
        assert error["details"] == {"project": "yard"}

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_a_read_only_project_refuses_with_a_code_of_its_own(
        self, served: Any, dry_run: bool
    ) -> None:
        served().close()
        assert served("read").code(action="refresh", dryRun=dry_run) == "READ_ONLY"


class TestRefresh:
    def test_a_dry_run_is_the_default_and_writes_nothing(self, mixed: Path, served: Any) -> None:
        engine = served()
        before = stamps(mixed)
        data = engine.ok(action="refresh")
        assert data == {
            "engineVersion": ENGINE,
            "refresh": [
                {
                    "name": "schema-guide",
                    "relPath": SCHEMA_GUIDE,
                    "state": "outdated",
                    "stampedEngine": "0.18.5",
                },
                {
                    "name": "import-guide",
                    "relPath": IMPORT_GUIDE,
                    "state": "missing",
                    "stampedEngine": None,
                },
            ],
            "skippedModified": [
                {
                    "name": "graph-ontology",
                    "relPath": "_skills/graph-ontology.md",
                    "state": "modified",
                    "stampedEngine": ENGINE,
                }
            ],
            "skippedUnmanaged": [
                {
                    "name": "maad-md",
                    "relPath": "MAAD.md",
                    "state": "unmanaged",
                    "stampedEngine": None,
                }
            ],
            "current": ["_skills/architect-core.md", "_skills/corpus-explorer.md"],
            "dryRun": True,
            "written": [],
        }
        assert stamps(mixed) == before
        assert subjects(mixed) == ["mixed"]

    def test_it_writes_what_is_outdated_or_missing_and_nothing_else(
        self, mixed: Path, served: Any
    ) -> None:
        engine = served()
        before = stamps(mixed)
        data = engine.refresh()
        after = stamps(mixed)
        assert data["written"] == [SCHEMA_GUIDE, IMPORT_GUIDE]
        assert data["committed"] is True
        for path in (SCHEMA_GUIDE, IMPORT_GUIDE):
            assert after.pop(path)[0] == CONTENT[path]
            before.pop(path, None)
        assert after == before

    def test_force_replaces_edited_and_foreign_files_too(self, mixed: Path, served: Any) -> None:
        engine = served()
        current = {path: stamps(mixed)[path] for path in engine.ok(action="refresh")["current"]}
        data = engine.refresh(force=True)
        after = stamps(mixed)
        assert data["skippedModified"] == data["skippedUnmanaged"] == []
        assert set(data["written"]) == set(PATHS) - set(current)
        assert {path: after[path][0] for path in PATHS} == CONTENT
        assert {path: after[path] for path in current} == current

    def test_again_there_is_nothing_to_do(self, mixed: Path, served: Any) -> None:
        engine = served()
        engine.refresh(force=True)
        before, commits = stamps(mixed), subjects(mixed)
        data = engine.refresh(force=True)
        assert (data["written"], data["committed"], data["current"]) == ([], False, PATHS)
        assert stamps(mixed) == before
        assert subjects(mixed) == commits

    def test_a_server_in_dry_run_mode_writes_nothing(self, mixed: Path, served: Any) -> None:
        engine = served()
        before = stamps(mixed)
        reply = engine.reply(action="refresh", dryRun=False, dry_run_server=True)
        assert (reply.ok, reply.body) == (True, b"")
        assert stamps(mixed) == before

    def test_a_name_that_is_taken_by_a_folder_stops_the_whole_refresh(
        self, mixed: Path, served: Any
    ) -> None:
        (mixed / "MAAD.md").unlink()
        (mixed / "MAAD.md").mkdir()
        engine = served()
        before = stamps(mixed)
        assert engine.code(action="refresh", dryRun=False, force=True) == "WRITE_ERROR"
        assert stamps(mixed) == before
        assert subjects(mixed) == ["mixed"]

    def test_an_edit_in_the_last_moment_wins(
        self, mixed: Path, served: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = refresh_module.stage_replacement

        def stage_while_a_person_saves(*arguments: Any, fsync: bool) -> Any:
            staged = stage(*arguments, fsync=fsync)
            (mixed / SCHEMA_GUIDE).write_bytes(OLD + b"edit\n")
            return staged

        monkeypatch.setattr(refresh_module, "stage_replacement", stage_while_a_person_saves)
        assert served().refresh()["written"] == [IMPORT_GUIDE]
        assert (mixed / SCHEMA_GUIDE).read_bytes() == OLD + b"edit\n"
        assert not list(mixed.rglob("*.maad-tmp-*"))

    def test_no_temporary_file_is_left(self, mixed: Path, served: Any) -> None:
        served().refresh(force=True)
        assert not list(mixed.rglob("*.maad-tmp-*"))

    def test_a_reader_at_the_same_time_sees_whole_files(self, mixed: Path, served: Any) -> None:
        engine = served()
        seen: set[bytes] = set()
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                seen.add((mixed / SCHEMA_GUIDE).read_bytes())

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(20):
            (mixed / "_skills/other.md").write_bytes(OLD)
            (mixed / "_skills/other.md").rename(mixed / SCHEMA_GUIDE)
            engine.refresh()
        done.set()
        reader.join()
        assert seen <= {OLD, CONTENT[SCHEMA_GUIDE]}


class TestCommit:
    def test_it_is_one_commit_of_the_written_files_by_the_engine(
        self, mixed: Path, served: Any
    ) -> None:
        (mixed / "mine.txt").write_text("staged by a person")
        git(mixed, "add", "mine.txt")
        engine = served()
        engine.refresh()
        engine.settle()
        assert subjects(mixed) == ["mixed", SUBJECT]
        names = git(mixed, "show", "--format=%an <%ae>%n%b", "--name-only", "HEAD").split()
        assert names == ["maadb-engine", "<engine@maadb.local>", IMPORT_GUIDE, SCHEMA_GUIDE]
        assert git(mixed, "status", "--porcelain") == "A  mine.txt\n"

    def test_a_token_is_named_in_its_body(self, mixed: Path, served: Any) -> None:
        who = Identity("tok-1", agent_id="agt-care", user_id=None)
        reply = served().reply(identity=who, action="refresh", dryRun=False)
        assert git(mixed, "log", "-1", "--format=%b").split("\n")[:3] == [
            "role: admin",
            "token: tok-1",
            "agent: agt-care",
        ]
        assert reply.audit is not None
        assert reply.audit["files"] == [SCHEMA_GUIDE, IMPORT_GUIDE]
        assert reply.audit["git_commit"] == git(mixed, "rev-parse", "HEAD").strip()

    @pytest.mark.parametrize("mode", ["batch", "snapshot"])
    def test_it_does_not_share_a_commit_with_records(
        self, mixed: Path, served: Any, mode: str
    ) -> None:
        add_type(mixed)
        engine = served(mode, max_writes=50)
        engine.ok("maad_create", docType="ship", fields={"name": "Ann"})
        data = engine.refresh()
        assert data["committed"] is True
        engine.ok("maad_create", docType="ship", fields={"name": "Bea"})
        engine.close()
        made = subjects(mixed)[1:]
        assert [made[0], made[2]] == [
            "maad:create shp-ann [ship] — Ann",
            "maad:create shp-bea [ship] — Bea",
        ]
        assert made[1] == SUBJECT
        assert git(mixed, "show", "--format=", "--name-only", "HEAD~1").split() == [
            IMPORT_GUIDE,
            SCHEMA_GUIDE,
        ]

    def test_history_mode_feed_commits_nothing(self, mixed: Path, served: Any) -> None:
        data = served("feed").refresh()
        assert (data["written"], data["committed"]) == ([SCHEMA_GUIDE, IMPORT_GUIDE], False)
        assert subjects(mixed) == ["mixed"]

    @pytest.mark.parametrize("mode", ["audit", "batch"])
    def test_a_held_lock_leaves_the_files_in_place_and_the_commit_follows(
        self, mixed: Path, served: Any, mode: str
    ) -> None:
        engine = served(mode)
        lock = mixed / ".git/index.lock"
        lock.touch()
        data = engine.refresh()
        assert (data["written"], data["committed"]) == ([SCHEMA_GUIDE, IMPORT_GUIDE], False)
        assert data["writeDurable"] is False
        assert data["commitFailure"]["code"] == "GIT_COMMIT_FAILED"
        assert data["commitFailure"]["details"]["reason"] == "index-lock"
        assert subjects(mixed) == ["mixed"]
        lock.unlink()
        engine.ok("maad_flush")
        assert subjects(mixed) == ["mixed", SUBJECT]

    def test_a_batch_that_had_to_take_it_names_its_records_only(
        self, mixed: Path, served: Any
    ) -> None:
        add_type(mixed)
        engine = served("batch")
        engine.ok("maad_create", docType="ship", fields={"name": "Ann"})
        (mixed / ".git/index.lock").touch()
        engine.refresh()
        (mixed / ".git/index.lock").unlink()
        engine.ok("maad_flush")
        message = git(mixed, "log", "-1", "--format=%B")
        assert message.splitlines()[0] == "maad:create shp-ann [ship] batch:1 — Flushed 1 writes"
        assert message.count("Maad-Write:") == 1
        assert git(mixed, "status", "--porcelain") == ""


def add_type(root: Path) -> None:
    (root / "_schema/ship.v1.yaml").write_text(
        "type: ship\nrequired: [doc_id, name]\nfields:\n  name: {type: string, index: true}\n"
    )
    (root / "_registry/object_types.yaml").write_text(
        "types:\n  ship: {path: ships, id_prefix: shp, schema: ship.v1}\n"
    )
    git(root, "add", "_schema", "_registry")
    git(root, "commit", "-q", "--amend", "-m", "mixed")
