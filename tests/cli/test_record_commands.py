"""`maad get`, `query`, `create`, `update`: one engine for one command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maadd.cli.control_client import Unreachable
from maadd.cli.oneshot import _locked
from maadd.protocol.errors import MaadError
from maadd_worker.disk.owner_lock import OwnerLock

OWNER = """
import sys
from maadd_worker.disk.owner_lock import OwnerLock
lock = OwnerLock.acquire(sys.argv[1], None)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def owned(root: Path) -> Iterator[int]:
    """The project in the hands of another process; its id."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def run(maad_here: Any, project: Path) -> Any:
    """`maad` on the indexed project, from inside it."""
    assert maad_here("reindex", cwd=project).code == 0

    def inside(*arguments: str, **more: Any) -> Any:
        return maad_here(*arguments, cwd=project, **more)

    return inside


def test_get_at_every_depth(run: Any) -> None:
    hot = run("get", "nt-tide").json
    assert hot["frontmatter"]["tags"] == ["sea", "moon"]
    assert "body" not in hot
    assert run("get", "nt-tide", "cold").json["body"] == "# Note {#top}"
    section = run("get", "nt-tide", "warm", "top").json["block"]
    assert section["heading"] == "Note"
    assert run("get", "nt-tide", "full").json["related"] == {"outgoing": [], "incoming": []}


def test_get_of_an_unknown_record_fails(run: Any) -> None:
    done = run("get", "nt-none")
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("maad get failed\n  FILE_NOT_FOUND: ")


def test_a_section_is_read_at_depth_warm_only(run: Any) -> None:
    assert run("get", "nt-tide", "cold", "top").code == 2


def ids(done: Any) -> list[str]:
    assert done.code == 0, done.err
    return [row["docId"] for row in done.json]


def test_query_prints_the_rows(run: Any) -> None:
    assert ids(run("query", "note", "--sort=title")) == ["nt-fog", "nt-tide", "nt-wind"]
    assert ids(run("query", "note", "--filter=stage=draft", "--sort=pages", "--order=desc")) == [
        "nt-wind",
        "nt-fog",
    ]
    assert ids(run("query", "note", "--filter", "title=North wind = cold")) == ["nt-wind"]
    assert ids(run("query", "note", "--filter=stage=draft", "--filter=pages=1")) == ["nt-fog"]
    assert ids(run("query", "note", "--sort=title", "--limit=1", "--offset=1")) == ["nt-tide"]
    fields = run("query", "note", "--filter=pages=3", "--fields=title,tags").json[0]["fields"]
    assert fields == {"title": "High tide", "tags": ["sea", "moon"]}


def test_query_passes_on_whatever_the_tool_takes(run: Any) -> None:
    asked = ("query", "note", "--sort=title", "--fields=pages")
    table = run(*asked, "--limit=2", "--file-path", "--response-mode=columns").json
    assert table["columns"] == ["docId", "docType", "filePath", "pages"]
    assert table["rows"][0] == ["nt-fog", "note", "notes/nt-fog.md", "1"]
    rest = run(*asked, f"--cursor={table['nextCursor']}").json
    assert [one["docId"] for one in rest] == ["nt-wind"]
    filled = run(*asked, "--depth=cold", "--depth-max-results=1").json
    assert ["body" in one for one in filled] == [True, False, False]


def test_query_by_a_field_that_cannot_sort_fails(run: Any) -> None:
    done = run("query", "note", "--sort=colour")
    assert done.code == 1
    assert "UNSUPPORTED_SORT_FIELD" in done.err


def test_create_writes_a_file_and_prints_the_result(run: Any, project: Path) -> None:
    done = run(
        "create",
        "note",
        "--field=title=Rain = wet",
        "--field=tags=[sky, water]",
        "--json-field=pages=7",
        "--body=# Rain {#top}",
        "--id=nt-rain",
        "--idempotency-key=k",
    )
    assert done.code == 0, done.err
    assert done.json["docId"] == "nt-rain"
    again = run("create", "note", "--field=title=Other", "--idempotency-key=k")
    assert (again.code, "IDEMPOTENCY_KEY_REUSED" in again.err) == (1, True)
    text = (project / done.json["filePath"]).read_text()
    assert "title: Rain = wet\n" in text
    assert "pages: 7\n" in text
    assert text.endswith("# Rain {#top}\n")
    assert run("get", "nt-rain").json["frontmatter"]["tags"] == ["sky", "water"]


def test_create_tells_every_finding_and_writes_nothing(run: Any, project: Path) -> None:
    before = sorted(os.listdir(project / "notes"))
    done = run("create", "note", "--field=stage=lost", "--field=pages=many")
    assert done.code == 1
    assert done.err.count("  VALIDATION_FAILED: ") == 3
    assert sorted(os.listdir(project / "notes")) == before


def test_update_changes_what_it_names(run: Any, project: Path) -> None:
    path = project / "notes/nt-fog.md"
    before = path.read_text()
    done = run("update", "nt-fog", "--field=stage=done", "--expected-version=1")
    assert done.json["changedFields"] == ["stage"]
    assert done.json["version"] == 2
    assert path.read_text() == before.replace("stage: draft", "stage: done")
    conflict = run("update", "nt-fog", "--field=stage=draft", "--expected-version=1")
    assert conflict.code == 1
    assert "VERSION_CONFLICT" in conflict.err
    other = run("update", "nt-fog", "--field=stage=draft", f"--expected-hash={'0' * 64}")
    assert (other.code, "VERSION_CONFLICT" in other.err) == (1, True)
    assert run("update", "nt-fog", "--append=More.", "--unset=pages").code == 0
    assert path.read_text().endswith("# Note {#top}\n\nMore.\n")
    assert "pages:" not in path.read_text()


def test_edits_by_hand_are_taken_over_before_a_write(run: Any, project: Path) -> None:
    path = project / "notes/nt-fog.md"
    path.write_text(path.read_text().replace("title: Fog", "title: Thick fog"))
    (project / "notes/nt-snow.md").write_text(
        "---\ndoc_id: nt-snow\ndoc_type: note\nschema: note.v1\ntitle: Snow\n---\n"
    )
    assert run("update", "nt-snow", "--field=stage=done").code == 0
    assert ids(run("query", "note", "--filter=title=Thick fog")) == ["nt-fog"]


def test_a_write_is_a_commit_in_a_repository(maad: Any, project: Path) -> None:
    maad("init", cwd=project)
    assert maad("reindex", cwd=project).code == 0
    assert maad("update", "nt-fog", "--field=stage=done", cwd=project).json["writeDurable"]
    log = subprocess.run(
        ["git", "log", "-1", "--format=%s", "--name-only"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout.split("\n", 1)[0].startswith("maad:update nt-fog [note] fields:stage")
    assert log.stdout.rstrip().endswith("notes/nt-fog.md")


def test_a_folder_that_is_no_project_is_left_alone(maad: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments in (("get", "nt-a"), ("reindex",), ("create", "note")):
        done = maad(*arguments, cwd=empty)
        assert done.code == 1
        assert "REGISTRY_NOT_FOUND" in done.err
        assert f"maad init {empty}" in done.err
    assert os.listdir(empty) == []


def test_a_project_that_was_never_indexed_says_so(maad: Any, project: Path) -> None:
    done = maad("query", "note", f"--project={project}")
    assert done.code == 1
    assert "INDEX_EMPTY" in done.err
    assert "maad reindex" in done.err


def test_an_owner_elsewhere_is_named_with_the_next_step(run: Any, project: Path) -> None:
    with owned(project) as pid:
        done = run("get", "nt-tide")
    assert done.code == 1
    assert (
        f"PROJECT_LOCKED: the project is open in process {pid}; stop the server it belongs to, "
        "or send the request to that server (it takes no commands)"
    ) in " ".join(done.err.split())
    assert run("get", "nt-tide").code == 0


def test_what_stands_in_a_refusal_already_is_not_said_again(project: Path) -> None:
    stopped = "it is stopped: `kill -CONT 7` lets it go on"
    refusal = MaadError("PROJECT_LOCKED", f"open in the daemon of x; {stopped}", {"ownerPid": 7})
    assert _locked(str(project), refusal, Unreachable(stopped, final=True)).message == (
        refusal.message
    )


def test_a_project_that_servers_only_read_is_read_with_them(run: Any, project: Path) -> None:
    # Readers write nothing of themselves into the lock, so that their server is not found.
    reader = OwnerLock.acquire(str(project), None, read_only=True)
    done = run("get", "nt-tide", "--json")
    assert done.code == 0, done.err
    done = run("reindex")
    assert done.code == 1
    assert "PROJECT_READ_ONLY" in done.err
    reader.release()
    assert run("reindex").code == 0


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_project_that_cannot_be_written_is_read(
    run: Any, project: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)  # how an owner signs the lock
    found = run("get", "nt-tide", "--json")
    assert found.json["docId"] == "nt-tide"
    assert f"opened for reading only: cannot lock _backend/lock: {os.strerror(number)}" in found.err
    created = run("create", "note", "--field", "title=New")
    assert created.code == 1
    assert "PROJECT_READ_ONLY" in created.err
    checked = run("validate", "--json")
    assert (checked.code, checked.json["valid"]) == (0, 3)
    assert "the project is only read" in checked.err
    assert len(list((project / "notes").iterdir())) == 3


def test_a_full_disk_is_told_as_such(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    failed = run("get", "nt-tide")
    assert failed.code == 1
    assert "free some space" in failed.err


def test_a_broken_model_shows_where(run: Any, project: Path) -> None:
    (project / "_schema/note.v1.yaml").write_text("type: note\nfields: {title: [}\n")
    done = run("get", "nt-tide")
    assert done.code == 1
    assert "PARSE_ERROR" in done.err
    assert "    at _schema/note.v1.yaml:2:" in done.err


def test_bad_settings_only_warn(run: Any) -> None:
    done = run("get", "nt-tide", env={"MAAD_MAX_DOC_BYTES": "lots"})
    assert done.code == 0
    assert json.loads(done.out)["docId"] == "nt-tide"
    assert "warning: MAAD_MAX_DOC_BYTES='lots'" in done.err
