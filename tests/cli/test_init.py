"""`maad init`: what it makes, what it leaves alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from maadd import __version__
from maadd_worker.instructions.manifest import MANIFEST

GUIDES = [path for _, path in MANIFEST]
POINTERS = ["CLAUDE.md", "AGENTS.md"]


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_new_folder_becomes_a_project_with_one_commit(maad: Any, tmp_path: Path) -> None:
    done = maad("init", "log")
    root = tmp_path / "log"
    assert done.code == 0
    created = [line.split()[1] for line in done.out.splitlines() if line.startswith("created")]
    assert created == [
        "_schema/",
        "_backend/",
        "_import/",
        "_registry/object_types.yaml",
        ".gitignore",
        *GUIDES,
        *POINTERS,
        ".git/",
    ]
    assert (root / "_registry/object_types.yaml").read_text() == "types: {}\n"
    assert (root / ".gitignore").read_text() == "_backend/\n_import/\n"
    assert git(root, "log", "--format=%an %ae %s") == (
        "maadb-engine engine@maadb.local maad:init — Initialize MAAD project"
    )
    assert git(root, "ls-files").split() == sorted(
        [".gitignore", "_registry/object_types.yaml", *GUIDES, *POINTERS]
    )
    assert git(root, "status", "--porcelain") == ""


def test_the_pointers_lead_to_the_guides_and_say_nothing_of_a_version(
    maad: Any, tmp_path: Path
) -> None:
    maad("init", "log")
    texts = {(tmp_path / "log" / name).read_text() for name in POINTERS}
    [text] = texts
    assert "`MAAD.md`" in text
    assert "MCP tools" in text
    assert __version__ not in text


def test_pointers_and_guides_of_a_person_are_kept(maad: Any, tmp_path: Path) -> None:
    root = tmp_path / "log"
    root.mkdir()
    for name in ("CLAUDE.md", "MAAD.md"):
        (root / name).write_text("mine\n")
    assert maad("init", "log").code == 0
    assert (root / "CLAUDE.md").read_text() == (root / "MAAD.md").read_text() == "mine\n"
    assert git(root, "status", "--porcelain") == "?? CLAUDE.md"


def test_init_again_changes_nothing(maad: Any, tmp_path: Path) -> None:
    maad("init", "log")
    head = git(tmp_path / "log", "rev-parse", "HEAD")
    done = maad("init", "log", "--json")
    assert done.json == {"root": str(tmp_path / "log"), "created": [], "commit": None}
    assert git(tmp_path / "log", "rev-parse", "HEAD") == head


def test_init_takes_the_current_folder_or_the_given_project(maad: Any, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    assert maad("init", cwd=here).code == 0
    assert maad("--project=there", "init").code == 0
    assert (here / ".git").is_dir()
    assert (tmp_path / "there/.git").is_dir()


def test_what_exists_is_kept_and_only_the_scaffold_is_committed(maad: Any, project: Path) -> None:
    registry = (project / "_registry/object_types.yaml").read_bytes()
    (project / ".gitignore").write_text("*.bak\n")
    done = maad("init", str(project))
    assert done.code == 0
    assert (project / "_registry/object_types.yaml").read_bytes() == registry
    assert (project / ".gitignore").read_text() == "*.bak\n"
    assert ".gitignore does not name _backend/" in done.err
    assert git(project, "ls-files").split() == [
        ".gitignore",
        "AGENTS.md",
        "CLAUDE.md",
        "MAAD.md",
        "_registry/object_types.yaml",
        "_schema/note.v1.yaml",
        *sorted(name for name in GUIDES if name != "MAAD.md"),
    ]


def test_an_existing_repository_gets_no_commit(maad: Any, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "--quiet")
    done = maad("init", "repo", "--json")
    assert done.json["commit"] is None
    assert git(root, "rev-list", "--all") == ""


def test_a_folder_that_cannot_be_made_fails(maad: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = maad("init", "file/project")
    assert done.code == 1
    assert "WRITE_ERROR" in done.err


def test_without_git_the_scaffold_stands_and_the_failure_is_told(maad: Any, tmp_path: Path) -> None:
    done = maad("init", "log", env={"PATH": "/nonexistent"})
    assert done.code == 1
    assert "GIT_ERROR" in done.err
    assert (tmp_path / "log/_registry/object_types.yaml").is_file()
