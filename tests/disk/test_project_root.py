"""Reading through the project's descriptor: nothing outside is ever touched (spec 01 §16)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot

Unprivileged = Callable[[], AbstractContextManager[None]]


def refused(root: ProjectRoot, rel: str) -> MaadError:
    with pytest.raises(MaadError) as caught:
        root.read(rel)
    return caught.value


def test_content_comes_with_its_stamp(root: ProjectRoot, project: Path) -> None:
    (project / "notes").mkdir()
    path = project / "notes" / "a.md"
    path.write_bytes(b"text \xff")
    content = root.read("notes/a.md")
    status = path.stat()
    assert content.data == b"text \xff"
    assert (content.mtime_ns, content.size, content.inode) == (
        status.st_mtime_ns,
        6,
        status.st_ino,
    )
    assert root.stat("notes/a.md").st_ino == content.inode
    assert root.read("./notes//a.md") == content


def test_an_empty_and_a_large_file(root: ProjectRoot, project: Path) -> None:
    (project / "empty.md").touch()
    (project / "large.md").write_bytes(b"x" * 3_000_000)
    assert root.read("empty.md").data == b""
    assert len(root.read("large.md").data) == 3_000_000


def test_a_file_over_the_cap_is_not_read(root: ProjectRoot, project: Path) -> None:
    (project / "a.md").write_bytes(b"x" * 11)
    assert root.read("a.md", 11).size == 11
    assert root.read("a.md", 0).size == 11
    with pytest.raises(MaadError) as caught:
        root.read("a.md", 10)
    assert caught.value.code == "DOC_TOO_LARGE"
    assert caught.value.details == {"sizeBytes": 11, "capBytes": 10}


@pytest.mark.parametrize(
    ("rel", "errno"),
    [
        ("missing.md", "ENOENT"),
        ("missing/a.md", "ENOENT"),
        ("file.md/a.md", "ENOTDIR"),
        ("folder", "EINVAL"),
        ("", "EINVAL"),
        ("pipe.md", "EINVAL"),
        ("n" * 300 + ".md", "ENAMETOOLONG"),
    ],
)
def test_what_is_no_readable_file(root: ProjectRoot, project: Path, rel: str, errno: str) -> None:
    (project / "file.md").touch()
    (project / "folder").mkdir()
    os.mkfifo(project / "pipe.md")
    error = refused(root, rel)
    assert error.code == "FILE_READ_ERROR"
    assert error.details == {"file": rel, "errno": errno}


def test_a_file_without_permission(
    root: ProjectRoot, project: Path, unprivileged: Unprivileged
) -> None:
    (project / "a.md").write_text("secret")
    (project / "a.md").chmod(0)
    with unprivileged():
        error = refused(root, "a.md")
    assert error.details == {"file": "a.md", "errno": "EACCES"}


@pytest.fixture
def linked(project: Path) -> Path:
    """The project with links of all kinds, and a secret beside it."""
    outside = project.parent / "project2"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (project / "real").mkdir()
    (project / "real" / "a.md").write_text("inside")
    os.symlink(outside, project / "out")
    os.symlink("../project2", project / "out-relative")
    os.symlink(outside / "secret.md", project / "out.md")
    os.symlink("/etc/passwd", project / "passwd.md")
    os.symlink("real", project / "in")
    os.symlink(project / "real", project / "in-absolute")
    os.symlink("in/a.md", project / "in.md")
    os.symlink("in.md", project / "twice.md")
    os.symlink("loop.md", project / "loop.md")
    os.symlink("nowhere.md", project / "dangling.md")
    return project


@pytest.mark.parametrize("rel", ["in/a.md", "in-absolute/a.md", "in.md", "twice.md"])
def test_links_that_stay_inside_are_followed(root: ProjectRoot, linked: Path, rel: str) -> None:
    assert root.read(rel).data == b"inside"
    assert root.resolve(rel) == "real/a.md"


def test_what_is_missing_behind_an_inner_link_is_just_missing(
    root: ProjectRoot, linked: Path
) -> None:
    assert refused(root, "in/missing.md").details == {"file": "in/missing.md", "errno": "ENOENT"}
    assert not root.exists("in/missing.md")


@pytest.mark.parametrize(
    "rel",
    [
        *("out/secret.md", "out-relative/secret.md", "out.md", "passwd.md", "loop.md"),
        *("dangling.md", "../project2/secret.md", "/etc/passwd", "a/../../project2/secret.md"),
    ],
)
def test_nothing_outside_is_read(root: ProjectRoot, linked: Path, rel: str) -> None:
    error = refused(root, rel)
    assert error.code == "PATH_OUTSIDE_PROJECT"
    assert str(linked.parent) not in error.message
    with pytest.raises(MaadError):
        root.resolve(rel)


def test_existence_is_that_of_the_name(root: ProjectRoot, linked: Path) -> None:
    taken = ("real", "real/a.md", "in/a.md", "dangling.md", "out", "out.md", "loop.md")
    assert all(root.exists(rel) for rel in taken)
    assert not any(root.exists(rel) for rel in ("n" * 300, "x", "real/x", "x/y", "real/a.md/y"))
    for rel in ("out/secret.md", "../project2", "/etc", ""):
        with pytest.raises(MaadError) as caught:
            root.exists(rel)
        assert caught.value.code == "PATH_OUTSIDE_PROJECT"


def test_stat_is_plain_and_follows_links(root: ProjectRoot, linked: Path) -> None:
    assert root.stat("in.md").st_ino == (linked / "real" / "a.md").stat().st_ino
    with pytest.raises(FileNotFoundError):
        root.stat("missing.md")


def test_a_project_reached_by_a_link_has_its_real_path(project: Path) -> None:
    os.symlink(project, project.parent / "alias")
    (project / "a.md").write_text("x")
    opened = ProjectRoot.open(str(project.parent / "alias"))
    assert opened.path == str(project)
    assert opened.read("a.md").data == b"x"
    opened.close()
    opened.close()


def test_a_root_keeps_its_directory_when_it_is_renamed(root: ProjectRoot, project: Path) -> None:
    (project / "a.md").write_text("mine")
    project.rename(project.parent / "moved")
    project.mkdir()
    (project / "a.md").write_text("another")
    assert root.read("a.md").data == b"mine"


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_root_that_is_no_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MaadError) as caught:
        ProjectRoot.open(str(tmp_path / name))
    assert caught.value.code == "FILE_READ_ERROR"
    assert str(tmp_path) not in caught.value.message


def test_no_descriptor_is_left_open(root: ProjectRoot, linked: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for rel in ("in.md", "real/a.md", "out/secret.md", "missing/x.md", "real", "loop.md"):
        try:
            root.read(rel)
        except MaadError:
            root.exists("real/a.md")
    root.walk_markdown("")
    assert len(os.listdir("/proc/self/fd")) == before
