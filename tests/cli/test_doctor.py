"""`maad doctor`: what it sees, and that it changes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from maadd.cli.doctor import disk, installation, runtime, watching
from maadd.cli.doctor.locks import lock_holders
from maadd_worker.disk.owner_lock import OwnerLock

QUICK = {"MAADD_FSYNC": "0"}


def checks(done: Any) -> dict[str, list[tuple[str, str]]]:
    """State and text of the checks by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for group in done.json["groups"]:
        for check in group["checks"]:
            assert check["state"] == "ok" or check["advice"]
            found.setdefault(check["name"], []).append((check["state"], check["text"]))
    return found


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


def state_of_tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time of change."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in root.rglob("*")
        if not path.is_dir()
    }


@pytest.fixture
def project(maad_here: Any, tmp_path: Path) -> Path:
    """A project with two indexed notes."""
    root = tmp_path / "p"
    assert maad_here("init", "p", env=QUICK).code == 0
    (root / "_registry/object_types.yaml").write_text(
        "types:\n  note: {path: notes, id_prefix: nt, schema: note.v1}\n"
    )
    (root / "_schema/note.v1.yaml").write_text(
        "type: note\nrequired: [doc_id, title]\nfields:\n  title: {type: string, index: true}\n"
    )
    for number in (1, 2):
        created = maad_here(
            "--project", "p", "create", "note", "--field", f"title=T{number}", env=QUICK
        )
        assert created.code == 0
    return root


@pytest.fixture
def doctor(maad_here: Any, project: Path) -> Any:
    return lambda *more, **env: maad_here(
        "doctor", "--project", str(project), *more, "--json", env=QUICK | env
    )


def test_a_sound_project_has_no_problem_and_is_not_touched(doctor: Any, project: Path) -> None:
    before = state_of_tree(project)
    done = doctor()
    found = checks(done)
    assert done.code == 0
    assert done.json["ok"] is True
    assert found["sqlite"][0][0] == found["vectors"][0][0] == found["full text"][0][0] == "ok"
    assert found["index"] == [("ok", "sound, 2 records")]
    assert found["files"] == [("ok", "the index is up to date with them")]
    assert found["journal"] == [("ok", "empty")]
    assert found["owner"] == [("ok", "no process has the project open")]
    assert state_of_tree(project) == before


def test_people_read_it_with_the_next_step(maad_here: Any, terminal: Any, project: Path) -> None:
    (project / "notes/nt-t1.md").unlink()
    done = terminal("doctor", "--project", str(project))
    assert done.code == 0
    assert "1 file indexed and gone: notes/nt-t1.md" in done.out
    assert "-> maad reindex" in done.out
    assert "warnings, 0 problems" in done.out


def test_files_that_differ_from_the_index_are_named(doctor: Any, project: Path) -> None:
    (project / "notes/nt-t1.md").unlink()
    (project / "notes/new.md").write_text("x")
    found = checks(doctor())
    assert found["files"] == [
        ("warning", "1 file not indexed as now: notes/new.md"),
        ("warning", "1 file indexed and gone: notes/nt-t1.md"),
    ]
    assert found["uncommitted"][0][0] == "warning"
    assert "set external_edits" in doctor().out
    assert "set external_edits" not in doctor(MAADD_EXTERNAL_EDITS="commit").out


def test_a_project_that_is_open_elsewhere_is_looked_at_all_the_same(
    doctor: Any, project: Path
) -> None:
    lock = OwnerLock.acquire(str(project), str(project / "gone.sock"))
    try:
        done = doctor()
        found = checks(done)
        assert done.code == 0
        assert found["owner"][0][0] == "warning"
        assert f"process {os.getpid()}" in found["owner"][0][1]
        assert found["index"] == [("ok", "sound, 2 records")]
        assert lock_holders(str(project / "_backend/lock")) == [os.getpid()]
    finally:
        lock.release()


def test_broken_schemas_and_registries_are_problems(doctor: Any, project: Path) -> None:
    (project / "_schema/note.v1.yaml").write_text("type: note\nfields: {a: {type: nope}}\n")
    done = doctor()
    assert done.code == 1
    assert "SCHEMA_INVALID" in checks(done)["registry and schemas"][0][1]
    (project / "_registry/object_types.yaml").write_text("types: [")
    assert "PARSE_ERROR" in checks(doctor())["registry and schemas"][0][1]


def test_a_damaged_index_and_journal_are_problems(doctor: Any, project: Path) -> None:
    for name in ("maad.db", "journal.db"):
        (project / "_backend" / name).write_bytes(b"no database at all" * 100)
    done = doctor()
    found = checks(done)
    assert done.code == 1
    assert found["index"][0][0] == "problem"
    assert found["journal"][0][0] == "problem"


def test_a_project_without_index_or_history(doctor: Any, project: Path) -> None:
    for path in (project / "_backend").iterdir():
        path.unlink()
    (project / ".git").rename(project / "no.git")
    found = checks(doctor())
    assert found["index"] == [("warning", "there is none yet")]
    assert found["repository"][0][0] == "ok"
    needed = doctor(MAAD_HISTORY_MODE_DEFAULT="audit")
    assert checks(needed)["repository"] == [("problem", "history mode audit needs one")]


def test_git_states_that_matter(doctor: Any, project: Path) -> None:
    git(project, "checkout", "-q", "--detach")
    (project / ".git/MERGE_HEAD").write_text("x")
    lock = project / ".git/index.lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    (project / ".gitignore").write_text("")
    done = doctor()
    found = checks(done)
    assert done.code == 1
    assert found["branch"][0][0] == "warning"
    assert "a merge is under way" in found["work in hand"][0][1]
    assert found["git locks"] == [("problem", f"{lock} is there, and no process has it open")]
    assert found["ignored files"][0][0] == "warning"
    os.utime(lock)
    assert checks(doctor())["git locks"] == [("warning", f"{lock} was made a moment ago")]


def test_unfinished_writes_are_told(doctor: Any, project: Path) -> None:
    import apsw

    journal = apsw.Connection(str(project / "_backend/journal.db"))
    journal.execute(
        "INSERT INTO entry (id, op, doc_id, doc_type, path, status, created_at, seq) "
        "VALUES ('1', 'create', 'nt-x', 'note', 'notes/nt-x.md', 'indexed', '', 99)"
    )
    journal.close()
    assert checks(doctor())["journal"] == [("warning", "unfinished: 1 indexed")]


def test_settings_that_are_unknown_or_refused(doctor: Any) -> None:
    done = doctor(MAAD_PROJCT="x", MAAD_HTTP_PORT="many")
    found = checks(done)
    assert done.code == 1
    assert found["MAAD_PROJCT"] == [("warning", "is no setting of this version")]
    assert found["settings"] == [("problem", "MAAD_HTTP_PORT='many' is not accepted")]


def test_a_folder_that_is_no_project(maad_here: Any, tmp_path: Path) -> None:
    named = maad_here("doctor", "--project", str(tmp_path), "--json")
    missing = maad_here("doctor", "--project", str(tmp_path / "none"), "--json")
    unnamed = maad_here("doctor", "--json")
    assert (named.code, missing.code, unnamed.code) == (1, 1, 0)
    assert "cannot be opened: No such file" in checks(missing)["project"][0][1]


def test_an_instance_with_its_tokens_and_projects(
    maad_here: Any, project: Path, tmp_path: Path
) -> None:
    file = tmp_path / "instance.yaml"
    file.write_text("name: house\nprojects:\n  - {name: p, path: p, role: admin}\n")
    done = maad_here("doctor", "--instance", str(file), "--json", env=QUICK)
    found = checks(done)
    assert done.code == 0
    assert found["instance file"][0] == ("ok", "house: 1 project")
    assert found["tokens"] == [("warning", "there is no token registry yet")]
    assert found["index"] == [("ok", "sound, 2 records")]
    issue = ("auth", "issue-token", "--role=reader", "--projects=*", "--instance", str(file))
    assert maad_here(*issue).code == 0
    os.chmod(tmp_path / "_auth/tokens.yaml", 0o644)
    done = maad_here("doctor", "--instance", str(file), "--json", env=QUICK)
    found = checks(done)
    assert done.code == 1
    assert found["tokens file"] == [("problem", "_auth/tokens.yaml is open to others (mode 644)")]
    assert found["tokens"] == [("ok", "1 active, 0 expired, 0 revoked")]
    file.write_text("name: [")
    assert maad_here("doctor", "--instance", str(file)).code == 1


def test_a_socket_path_that_is_too_long(doctor: Any, tmp_path: Path) -> None:
    found = checks(doctor(MAADD_RUNTIME_DIR=str(tmp_path / ("x" * 120))))
    assert found["socket path"][0][0] == "problem"


def test_a_runtime_directory_that_others_can_enter(doctor: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    os.chmod(run, 0o755)
    found = checks(doctor(MAADD_RUNTIME_DIR=str(run)))
    assert found["runtime directory"] == [("problem", f"{run} is open to other users (mode 0755)")]


def test_a_runtime_directory_on_a_full_disk(
    doctor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_LEAST_BYTES", 10**18)
    found = checks(doctor(MAADD_RUNTIME_DIR=str(tmp_path / "run")))
    text = f"the file system of {tmp_path} is full"
    assert found["runtime directory"] == [("problem", text)]


def test_too_few_watches_and_too_little_room(doctor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_limit", lambda name: 1)
    monkeypatch.setattr(disk, "_TOO_LITTLE_MB", 10**9)
    monkeypatch.setattr(disk, "file_system", lambda path: "nfs4")
    done = doctor()
    found = checks(done)
    assert found["inotify"][0][0] == "warning"
    assert found["room"][0][0] == "problem"
    assert "nfs4 is a network file system" in found["file system"][0][1]


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    assert disk.file_system("/proc/self/status") == "proc"
    assert disk.file_system("/") is not None


def test_an_old_git_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\necho git version 2.1.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    old = [check for check in installation.checks() if check.name == "git"]
    assert [check.state for check in old] == ["warning"]
    program.write_text("#!/bin/sh\nexit 1\n")
    broken = [check for check in installation.checks() if check.name == "git"]
    assert [check.state for check in broken] == ["problem"]


def test_the_provider_of_embeddings_is_made_but_not_asked(doctor: Any) -> None:
    assert checks(doctor())["embeddings"][0][0] == "ok"
    words = doctor(MAAD_SEMANTIC_ENABLE="1")
    assert checks(words)["embeddings"][0][0] == "warning"
    fake = doctor(MAAD_SEMANTIC_ENABLE="1", MAAD_EMBED_PROVIDER="fake", MAAD_EMBED_DIM="8")
    assert "8 dimensions" in checks(fake)["embeddings"][0][1]
    broken = doctor(MAAD_SEMANTIC_ENABLE="1", MAAD_EMBED_PROVIDER="openai")
    assert (broken.code, checks(broken)["embeddings"][0][0]) == (1, "problem")


def test_a_journal_that_keeps_the_project_from_opening_is_the_same_problem(
    doctor: Any, maad_here: Any, project: Path
) -> None:
    import apsw

    def both(start: str) -> None:
        opened = maad_here("--project", str(project), "query", "note", env=QUICK)
        assert opened.code == 1
        [line] = [one.strip() for one in opened.err.splitlines() if "BACKEND_ERROR" in one]
        done = doctor()
        assert done.code == 1
        [(state, text)] = checks(done)["journal"]
        assert state == "problem"
        # The words behind the last colon are SQLite's, and other where the file may be written.
        assert text.rpartition(": ")[0] == line.rpartition(": ")[0]
        assert line.startswith(f"BACKEND_ERROR: {start}")

    reference = project / "_backend/journal.json"
    reference.write_text("[{")
    both("_backend/journal.json cannot be taken over")
    entry = (
        '[{"id": "1-a", "op": "create", "docId": "nt-x", "filePath": "notes/nt-x.md", '
        '"timestamp": "", "status": "pending"}]'
    )
    reference.write_text(entry)
    assert checks(doctor())["journal"] == [("warning", "unfinished: 1 pending")]
    reference.unlink()
    journal = apsw.Connection(str(project / "_backend/journal.db"))
    journal.pragma("user_version", 99)
    journal.close()
    both("_backend/journal.db is not a journal this version can read")
    for path in (project / "_backend").glob("journal.db*"):
        path.unlink()
    (project / "_backend/journal.db").mkdir()
    both("_backend/journal.db cannot be opened")


def test_a_registry_that_is_lost_is_a_problem_wherever_it_is_looked_for(
    maad_here: Any, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = project / "_registry/object_types.yaml"
    text = registry.read_text()

    def told() -> str:
        found = []
        for flags, env in ((("--project", str(project)), {}), ((), {"MAAD_PROJECT": str(project)})):
            done = maad_here("doctor", *flags, "--json", env=QUICK | env)
            assert done.code == 1
            [problem] = [
                f"{check['text']} -> {check['advice']}"
                for group in done.json["groups"]
                for check in group["checks"]
                if check["name"] in ("project", "registry and schemas")
            ]
            assert "maad init" not in problem
            found.append(problem)
        assert found[0] == found[1]
        return found[0]

    registry.unlink()
    assert "although _registry, _schema, _backend lie there" in told()
    refused = maad_here("--project", str(project), "query", "note", env=QUICK)
    assert "put the file back" in refused.err
    registry.symlink_to("nowhere")
    assert "is a link that leads out of the project or nowhere" in told()
    registry.unlink()
    registry.mkdir()
    assert "not a regular file" in told()
    registry.rmdir()
    registry.write_text(text)
    opening = os.open

    def closed(path: Any, *more: Any, **named: Any) -> int:
        if os.fsdecode(path) == shut:
            raise PermissionError(13, "Permission denied")
        return opening(path, *more, **named)

    # A user without rights, which the user of the tests may not be.
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", closed)
        shut = "object_types.yaml"
        assert "Permission denied" in told()
        shut = str(project)
        assert told() == (
            f"{project} cannot be opened: Permission denied -> give it to the user that runs this "
            "(chown, chmod)"
        )


def test_a_folder_with_what_is_left_of_a_project_is_no_mere_folder(
    maad_here: Any, tmp_path: Path
) -> None:
    (tmp_path / "_schema").mkdir()
    done = maad_here("doctor", "--json", env=QUICK)
    assert done.code == 1
    assert "although _schema lie there" in checks(done)["project"][0][1]


def test_what_git_says_of_a_damaged_index_is_told(doctor: Any, project: Path) -> None:
    assert doctor(MAAD_HISTORY_MODE_DEFAULT="audit").code == 0
    (project / ".git/index").write_bytes(b"no index at all, but long enough to be one")
    done = doctor()
    assert done.code == 1
    [(state, text)] = checks(done)["uncommitted"]
    assert state == "problem"
    assert "fatal: " in text
    assert "in time" not in text


def test_names_that_are_something_else_are_problems(doctor: Any, project: Path) -> None:
    for path in sorted((project / "_backend").iterdir()):
        path.unlink()
    (project / "_backend/lock").mkdir()
    assert ("problem", "_backend/lock is no regular file") in checks(doctor())["places"]
    (project / "_backend/lock").rmdir()
    (project / "_backend").rmdir()
    (project / "_backend").write_text("x")
    assert ("problem", "_backend is there and is no folder") in checks(doctor())["places"]


@pytest.mark.parametrize(("place", "named"), [(".", "the project"), ("_backend", "_backend")])
def test_a_file_system_that_is_mounted_read_only_is_named(
    maad_here: Any, project: Path, monkeypatch: pytest.MonkeyPatch, place: str, named: str
) -> None:
    looked, allowed, below = os.statvfs, os.access, os.path.normpath(project / place)

    class Mounted:
        """What the system tells of a file system, mounted read-only from `below`."""

        def __init__(self, path: str) -> None:
            self._told = looked(path)
            inside = os.path.normpath(path).startswith(below)
            self.f_flag = self._told.f_flag | (os.ST_RDONLY if inside else 0)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._told, name)

    def may(path: Any, mode: int) -> bool:
        inside = os.path.normpath(path).startswith(below)
        return allowed(path, mode) and not (inside and mode & os.W_OK)

    (project / "_backend").mkdir(exist_ok=True)
    monkeypatch.setattr(os, "statvfs", Mounted)
    monkeypatch.setattr(os, "access", may)
    groups = maad_here("doctor", f"--project={project}").json["groups"]
    (found,) = [one for group in groups for one in group["checks"] if one["name"] == "permissions"]
    assert found["text"] == f"the file system of {named} is mounted read-only"
    assert "chown" not in found["advice"]
