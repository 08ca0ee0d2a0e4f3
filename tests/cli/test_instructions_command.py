"""`maad instructions`: the state of the guides, and their refresh."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from maadd import __version__
from maadd_worker.instructions.manifest import ENGINE, load_templates
from maadd_worker.instructions.stamp import stamped

TEMPLATES = load_templates()
PATHS = [template.path for template in TEMPLATES]
GUIDE = "_skills/schema-guide.md"


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def guided(maad_here: Any, tmp_path: Path) -> Path:
    """A new project, as `maad init` makes it."""
    assert maad_here("init", "log").code == 0
    return tmp_path / "log"


def age(root: Path) -> None:
    """One guide as another version wrote it."""
    (root / GUIDE).write_bytes(stamped("schema-guide", "0.18.5", b"# Older\n"))


def test_a_new_project_is_current(maad_here: Any, guided: Path) -> None:
    done = maad_here("instructions", "check", cwd=guided)
    assert done.code == 0
    assert done.json["engineVersion"] == ENGINE
    assert {one["relPath"]: one["state"] for one in done.json["files"]} == dict.fromkeys(
        PATHS, "current"
    )


@pytest.mark.parametrize("change", [age, lambda root: (root / GUIDE).unlink()])
def test_check_fails_unless_all_are_current(maad_here: Any, guided: Path, change: Any) -> None:
    change(guided)
    done = maad_here("--project=log", "instructions", "check", "--json")
    assert done.code == 1
    [found] = [one for one in done.json["files"] if one["state"] != "current"]
    assert found["relPath"] == GUIDE


def test_check_needs_no_lock_and_leaves_no_trace(maad_here: Any, project: Path) -> None:
    before = sorted(project.rglob("*"))
    assert maad_here("instructions", "check", cwd=project).code == 1
    assert sorted(project.rglob("*")) == before


def test_refresh_is_a_dry_run_until_it_is_applied(maad: Any, guided: Path) -> None:
    age(guided)
    git(guided, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-aqm", "older")
    done = maad("instructions", "refresh", cwd=guided)
    assert done.code == 0
    assert [one["relPath"] for one in done.json["refresh"]] == [GUIDE]
    assert done.json["written"] == []
    assert maad("instructions", "check", cwd=guided).code == 1

    done = maad("instructions", "refresh", "--apply", cwd=guided)
    assert done.code == 0
    assert (done.json["written"], done.json["committed"]) == ([GUIDE], True)
    assert maad("instructions", "check", cwd=guided).code == 0
    assert git(guided, "log", "-1", "--format=%s") == (
        f"maad:instructions — refresh managed instructions to {__version__}"
    )
    assert git(guided, "status", "--porcelain") == ""


def test_an_edited_guide_is_replaced_by_force_only(maad_here: Any, guided: Path) -> None:
    (guided / "MAAD.md").write_text("# Ours\n")
    done = maad_here("instructions", "refresh", "--apply", cwd=guided)
    assert [one["relPath"] for one in done.json["skippedUnmanaged"]] == ["MAAD.md"]
    assert (guided / "MAAD.md").read_text() == "# Ours\n"
    done = maad_here("instructions", "refresh", "--apply", "--force", cwd=guided)
    assert done.json["written"] == ["MAAD.md"]
    assert (guided / "MAAD.md").read_bytes() == TEMPLATES[0].content


def test_a_clone_that_was_never_indexed_can_be_refreshed(maad_here: Any, project: Path) -> None:
    done = maad_here("instructions", "refresh", "--apply", cwd=project)
    assert (done.code, done.json["written"], done.json["committed"]) == (0, PATHS, False)


@pytest.mark.parametrize("command", ["check", "refresh"])
def test_a_folder_that_is_no_project_is_refused(
    maad_here: Any, tmp_path: Path, command: str
) -> None:
    done = maad_here("instructions", command)
    assert done.code == 1
    assert "REGISTRY_NOT_FOUND" in done.err
    assert list(tmp_path.iterdir()) == []


def test_without_a_subcommand_help_is_shown(maad_here: Any) -> None:
    done = maad_here("instructions")
    assert done.code == 0
    assert "refresh" in done.out


def test_reindex_tells_when_guides_are_behind_and_writes_none(maad_here: Any, guided: Path) -> None:
    assert "not current" not in maad_here("reindex", cwd=guided).err
    age(guided)
    done = maad_here("reindex", cwd=guided)
    assert done.code == 0
    assert f"not current: {GUIDE}; `maad instructions refresh --apply` writes them" in done.err
    assert maad_here("instructions", "check", cwd=guided).code == 1
