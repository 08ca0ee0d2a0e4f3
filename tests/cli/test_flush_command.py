"""`maad flush`: the history boundary of a project without a server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.invalid")
    done = subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.fixture
def run(maad_here: Any, project: Path) -> Any:
    """`maad` on the indexed project, from inside it."""
    assert maad_here("reindex", cwd=project).code == 0

    def inside(*arguments: str, **more: Any) -> Any:
        return maad_here(*arguments, cwd=project, **more)

    return inside


@pytest.fixture
def repository(project: Path) -> Path:
    """The project with its notes committed."""
    (project / ".gitignore").write_text("_backend/\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "fixture")
    return project


def test_without_a_repository_there_is_nothing_to_do(run: Any) -> None:
    done = run("flush")
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "effectiveMode": "feed",
        "trigger": "explicit",
        "status": "noop",
        "pendingWrites": 0,
        "flushed": False,
    }


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_the_mode_of_the_environment(run: Any, repository: Path, mode: str) -> None:
    done = run("flush", "--json", env={"MAAD_HISTORY_MODE_DEFAULT": mode})
    assert (done.code, done.json["effectiveMode"], done.json["status"]) == (0, mode, "noop")


def test_what_stays_pending_is_a_failure(run: Any, repository: Path) -> None:
    lock = repository / ".git/index.lock"
    lock.touch()
    created = run("create", "note", "--field=title=Rain")
    assert created.code == 0
    assert created.json["writeDurable"] is False
    assert "not committed yet" in created.err
    done = run("flush")
    assert done.code == 1
    assert "maad flush failed\n  GIT_ERROR: another Git process holds" in done.err
    lock.unlink()
    assert run("flush").json["pendingWrites"] == 0
    assert git(repository, "log", "-1", "--format=%s").startswith("maad:create nt-rain [note]")
