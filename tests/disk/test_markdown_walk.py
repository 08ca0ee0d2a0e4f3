"""Which files a scan sees, and when it admits to have seen too little (spec 01 §14.1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownWalk

Unprivileged = Callable[[], AbstractContextManager[None]]


def fill(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)


def paths(walk: MarkdownWalk) -> list[str]:
    return [file.path for file in walk.files]


def test_records_and_tombstones_sorted_by_path(root: ProjectRoot, project: Path) -> None:
    fill(project / "work", "b.md", "a.md", "a/z.md", "a/b/c.md", "é.md", ".hidden.md", "B.md")
    fill(project / "work", "_deleted_a.md", "a/_deleted_x.2.md")
    fill(project / "work", "a.MD", "a.txt", "a.md.maad-tmp-1-x", "md", ".git/x.md", "a/.x/y.md")
    fill(project, "outside.md")
    walk = root.walk_markdown("work/")
    assert paths(walk) == [
        *("work/.hidden.md", "work/B.md", "work/a.md", "work/a/b/c.md", "work/a/z.md"),
        *("work/b.md", "work/é.md"),
    ]
    assert [file.path for file in walk.tombstones] == [
        "work/_deleted_a.md",
        "work/a/_deleted_x.2.md",
    ]
    assert (walk.complete, walk.warnings) == (True, [])


def test_stamps_are_those_of_the_files(root: ProjectRoot, project: Path) -> None:
    fill(project, "work/a.md")
    status = (project / "work/a.md").stat()
    (file,) = root.walk_markdown("work").files
    assert (file.size, file.mtime_ns, file.inode) == (
        len("work/a.md"),
        status.st_mtime_ns,
        status.st_ino,
    )


def test_linked_directories_are_not_entered_and_escaping_files_dropped(
    root: ProjectRoot, project: Path
) -> None:
    fill(project / "work", "a.md")
    fill(project / "other", "b.md")
    fill(project.parent / "secret", "s.md")
    os.symlink(project / "other", project / "work" / "in")
    os.symlink(project.parent / "secret", project / "work" / "out")
    os.symlink("../other/b.md", project / "work" / "b.md")
    os.symlink("../../secret/s.md", project / "work" / "s.md")
    os.symlink("nowhere", project / "work" / "lost.md")
    os.symlink("../other", project / "work" / "folder.md")
    os.mkfifo(project / "work" / "pipe.md")
    walk = root.walk_markdown("work")
    assert paths(walk) == ["work/a.md", "work/b.md"]
    assert walk.files[1].size == len("b.md")
    assert walk.complete
    assert [warning.split(" ")[0] for warning in walk.warnings] == [
        *("work/folder.md", "work/lost.md", "work/pipe.md", "work/s.md"),
    ]


def test_names_that_are_no_utf8_are_named_and_dropped(root: ProjectRoot, project: Path) -> None:
    fill(project / "work", "a.md")
    with open(os.fsencode(project / "work") + b"/b\xff.md", "w"):
        pass
    walk = root.walk_markdown("work")
    assert paths(walk) == ["work/a.md"]
    assert len(walk.warnings) == 1
    assert walk.warnings[0].encode().isascii()


def test_a_missing_directory_is_incomplete(root: ProjectRoot, project: Path) -> None:
    walk = root.walk_markdown("work")
    assert (walk.files, walk.complete) == ((), False)
    assert "work" in walk.warnings[0]
    (project / "work").write_text("a file")
    assert not root.walk_markdown("work").complete


def test_an_empty_directory_is_complete(root: ProjectRoot, project: Path) -> None:
    (project / "work").mkdir()
    assert root.walk_markdown("work") == MarkdownWalk((), (), True, [])


def test_an_unreadable_directory_is_incomplete(
    root: ProjectRoot, project: Path, unprivileged: Unprivileged
) -> None:
    fill(project / "work", "a.md", "closed/b.md", "z.md")
    (project / "work" / "closed").chmod(0)
    with unprivileged():
        walk = root.walk_markdown("work")
    (project / "work" / "closed").chmod(0o755)
    assert paths(walk) == ["work/a.md", "work/z.md"]
    assert not walk.complete
    assert "work/closed" in walk.warnings[0]


def test_a_type_directory_that_leaves_the_project_is_incomplete(
    root: ProjectRoot, project: Path
) -> None:
    fill(project.parent / "secret", "s.md")
    fill(project / "real", "a.md")
    os.symlink(project.parent / "secret", project / "work")
    os.symlink("real", project / "alias")
    walk = root.walk_markdown("work")
    assert (walk.files, walk.complete) == ((), False)
    assert paths(root.walk_markdown("alias")) == ["alias/a.md"]


def test_a_deep_tree_needs_no_descriptor_per_level(root: ProjectRoot, project: Path) -> None:
    deep = "work/" + "d/" * 400
    fill(project, f"{deep}a.md")
    assert paths(root.walk_markdown("work")) == [f"{deep}a.md"]
