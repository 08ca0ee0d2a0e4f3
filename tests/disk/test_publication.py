"""Files appear whole, never over another one, and leave nothing behind (spec 01 §15.2)."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk import publish
from maadd_worker.disk.root import ProjectRoot

Unprivileged = Callable[[], AbstractContextManager[None]]


def everything(project: Path) -> list[str]:
    return sorted(str(path.relative_to(project)) for path in project.rglob("*"))


@pytest.mark.parametrize("fsync", [True, False])
def test_a_new_file_with_its_directories(root: ProjectRoot, project: Path, fsync: bool) -> None:
    publish.create_exclusive(root, "work/ab/a.md", b"text", fsync=fsync)
    publish.fsync_dirs(root, ["work/ab/a.md", "work/ab/b.md", "c.md"])
    assert (project / "work/ab/a.md").read_bytes() == b"text"
    assert everything(project) == ["work", "work/ab", "work/ab/a.md"]


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link", "link outside"])
def test_a_name_that_is_taken_is_left_alone(root: ProjectRoot, project: Path, kind: str) -> None:
    target = project / "a.md"
    if kind == "file":
        target.write_bytes(b"old")
    elif kind == "directory":
        target.mkdir()
    else:
        os.symlink("/nowhere" if kind == "dangling link" else project.parent / "x.md", target)
    with pytest.raises(MaadError) as caught:
        publish.create_exclusive(root, "a.md", b"new", fsync=False)
    assert caught.value.code == "DUPLICATE_DOC_ID"
    assert everything(project) == ["a.md"]
    assert not (project.parent / "x.md").exists()
    if kind == "file":
        assert target.read_bytes() == b"old"


def test_one_of_many_racing_creators_wins(root: ProjectRoot, project: Path) -> None:
    barrier = threading.Barrier(8)
    won: list[int] = []
    lost: list[str] = []

    def create(number: int) -> None:
        barrier.wait()
        try:
            publish.create_exclusive(root, "a.md", b"%d" % number * 1000, fsync=False)
            won.append(number)
        except MaadError as error:
            lost.append(error.code)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), lost) == (1, ["DUPLICATE_DOC_ID"] * 7)
    assert (project / "a.md").read_bytes() == b"%d" % won[0] * 1000
    assert everything(project) == ["a.md"]


def test_a_replaced_file_keeps_its_mode(root: ProjectRoot, project: Path) -> None:
    target = project / "a.md"
    target.write_bytes(b"old")
    target.chmod(0o640)
    publish.replace(root, "a.md", b"new", fsync=True)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o7777 == 0o640
    assert everything(project) == ["a.md"]


def test_a_reader_of_the_old_file_keeps_it(root: ProjectRoot, project: Path) -> None:
    (project / "a.md").write_bytes(b"old content")
    with open(project / "a.md", "rb") as reader:
        publish.replace(root, "a.md", b"new", fsync=False)
        assert reader.read() == b"old content"


def test_a_link_inside_is_written_through(root: ProjectRoot, project: Path) -> None:
    (project / "real").mkdir()
    (project / "real/a.md").write_bytes(b"old")
    os.symlink("real/a.md", project / "a.md")
    publish.replace(root, "a.md", b"new", fsync=False)
    assert (project / "a.md").is_symlink()
    assert (project / "real/a.md").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("rel", "errno"), [("missing.md", "ENOENT"), ("no/a.md", "ENOENT"), ("folder", "EINVAL")]
)
def test_only_existing_files_are_replaced(
    root: ProjectRoot, project: Path, rel: str, errno: str
) -> None:
    (project / "folder").mkdir()
    with pytest.raises(MaadError) as caught:
        publish.replace(root, rel, b"x", fsync=False)
    assert caught.value.code == "WRITE_ERROR"
    assert caught.value.details == {"file": rel, "errno": errno}
    assert everything(project) == ["folder"]


def test_nothing_outside_is_written(root: ProjectRoot, project: Path) -> None:
    outside = project.parent / "project2"
    outside.mkdir()
    (outside / "a.md").write_bytes(b"theirs")
    os.symlink(outside, project / "out")
    os.symlink(outside / "a.md", project / "a.md")
    actions: list[Callable[[], object]] = [
        lambda: publish.create_exclusive(root, "out/b.md", b"x", fsync=False),
        lambda: publish.create_exclusive(root, "../project2/b.md", b"x", fsync=False),
        lambda: publish.create_exclusive(root, "/tmp/b.md", b"x", fsync=False),
        lambda: publish.write_temp(root, "out/b.md", b"x", fsync=False),
        lambda: publish.replace(root, "a.md", b"x", fsync=False),
        lambda: publish.replace(root, "out/a.md", b"x", fsync=False),
        lambda: publish.unlink(root, "out/a.md"),
        lambda: publish.rename_no_replace(root, "out/a.md", "b.md"),
        lambda: publish.rename_no_replace(root, "a.md", "out/b.md"),
        lambda: publish.ensure_dir(root, "out/new"),
        lambda: publish.ensure_dir(root, "../project2/new"),
    ]
    for action in actions:
        with pytest.raises(MaadError) as caught:
            action()
        assert caught.value.code == "PATH_OUTSIDE_PROJECT"
    assert everything(outside) == ["a.md"]
    assert (outside / "a.md").read_bytes() == b"theirs"


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files of this process end at 4 KiB, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_takes_no_more_leaves_everything_as_it_was(
    root: ProjectRoot, project: Path
) -> None:
    (project / "a.md").write_bytes(b"old")
    for action in (publish.replace, publish.create_exclusive, publish.write_temp):
        rel = "a.md" if action is publish.replace else "b.md"
        with pytest.raises(MaadError) as caught:
            action(root, rel, b"x" * 100_000, fsync=True)
        assert caught.value.code == "WRITE_ERROR"
        assert caught.value.details == {"file": rel, "errno": "EFBIG"}
    assert everything(project) == ["a.md"]
    assert (project / "a.md").read_bytes() == b"old"


def test_a_directory_without_permission(
    root: ProjectRoot, project: Path, unprivileged: Unprivileged
) -> None:
    (project / "work").mkdir()
    (project / "work/a.md").write_bytes(b"old")
    (project / "work").chmod(0o555)
    with unprivileged():
        for action in (
            lambda: publish.create_exclusive(root, "work/b.md", b"x", fsync=False),
            lambda: publish.replace(root, "work/a.md", b"x", fsync=False),
            lambda: publish.ensure_dir(root, "work/sub"),
        ):
            with pytest.raises(MaadError) as caught:
                action()
            assert caught.value.code == "WRITE_ERROR"
            assert caught.value.details is not None
            assert caught.value.details["errno"] == "EACCES"
        for removal in (
            lambda: publish.unlink(root, "work/a.md"),
            lambda: publish.rename_no_replace(root, "work/a.md", "work/b.md"),
        ):
            with pytest.raises(MaadError) as caught:
                removal()
            assert caught.value.code == "DELETE_ERROR"
    (project / "work").chmod(0o755)
    assert everything(project) == ["work", "work/a.md"]


def test_renaming_and_removing(root: ProjectRoot, project: Path) -> None:
    (project / "work").mkdir()
    (project / "a.md").write_bytes(b"a")
    (project / "b.md").write_bytes(b"b")
    publish.rename_no_replace(root, "a.md", "work/_deleted_a.md")
    with pytest.raises(MaadError) as caught:
        publish.rename_no_replace(root, "b.md", "work/_deleted_a.md")
    assert caught.value.details == {"file": "b.md", "errno": "EEXIST"}
    assert (project / "work/_deleted_a.md").read_bytes() == b"a"
    publish.unlink(root, "b.md")
    with pytest.raises(MaadError) as caught:
        publish.unlink(root, "b.md")
    assert caught.value.details == {"file": "b.md", "errno": "ENOENT"}
    os.symlink("work/_deleted_a.md", project / "link.md")
    publish.unlink(root, "link.md")
    assert everything(project) == ["work", "work/_deleted_a.md"]


@pytest.mark.parametrize(
    "rename",
    [publish._rename_atomically, publish._link_and_unlink, publish._reserve_and_rename],
    ids=lambda rename: rename.__name__,
)
def test_every_way_to_publish_refuses_a_name_that_is_taken(
    project: Path, rename: Callable[[int, str, int, str], bool]
) -> None:
    (project / "new").write_bytes(b"new")
    (project / "taken").write_bytes(b"old")
    directory = os.open(project, os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            rename(directory, "new", directory, "taken")
        assert everything(project) == ["new", "taken"]
        assert rename(directory, "new", directory, "free")
        assert everything(project) == ["free", "taken"]
        with pytest.raises(FileNotFoundError):
            rename(directory, "new", directory, "other")
        assert everything(project) == ["free", "taken"]
    finally:
        os.close(directory)
    assert (project / "free").read_bytes() == b"new"
    assert (project / "taken").read_bytes() == b"old"


def test_directories_are_made_once(root: ProjectRoot, project: Path) -> None:
    publish.ensure_dir(root, "a/b/c")
    publish.ensure_dir(root, "a/b/c/")
    publish.ensure_dir(root, "")
    os.symlink("a/b", project / "inside")
    publish.ensure_dir(root, "inside/d", fsync=False)
    (project / "file").touch()
    with pytest.raises(MaadError) as caught:
        publish.ensure_dir(root, "file/x")
    assert caught.value.details == {"file": "file/x", "errno": "ENOTDIR"}
    assert everything(project) == ["a", "a/b", "a/b/c", "a/b/d", "file", "inside"]


def test_temporary_files_are_beside_their_target_and_no_markdown(root: ProjectRoot) -> None:
    temp = publish.write_temp(root, "a.md", b"x", fsync=False)
    assert temp.startswith(f"a.md.maad-tmp-{os.getpid()}-")
    assert root.read(temp).data == b"x"
    assert root.walk_markdown("").files == ()


def test_only_what_dead_processes_left_is_swept(root: ProjectRoot, project: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    publish.ensure_dir(root, "work/deep")
    own = publish.write_temp(root, "work/a.md", b"x", fsync=False)
    suffix = own.rpartition(f"-{os.getpid()}-")[2]
    left = f"work/deep/b.md.maad-tmp-{dead.pid}-{suffix}"
    kept = [
        f"work/c.md.maad-tmp-{os.getppid()}-{suffix}",
        f"work/d.md.maad-tmp-{dead.pid}-notes",
        f"work/maad-tmp-{dead.pid}-{suffix}",
        "work/e.md",
    ]
    for name in (left, *kept):
        (project / name).write_text("x")
    outside = project.parent / f"x.md.maad-tmp-{dead.pid}-{suffix}"
    outside.write_text("x")
    os.symlink("..", project / "work" / "up")
    assert publish.sweep_temp_files(root, ["work/", "missing"]) == sorted([own, left])
    assert sorted(kept) == sorted(
        str(path.relative_to(project)) for path in (project / "work").iterdir() if path.is_file()
    )
    assert outside.exists()


def test_staged_files_are_synced_together_and_then_put_in_place(root: ProjectRoot) -> None:
    staged = [
        publish.stage_new(root, f"many/{number}.md", b"%d" % number, fsync=True)
        for number in range(20)
    ]
    folder = Path(root.path, "many")
    assert not list(folder.glob("*.md"))
    assert publish.sync_staged(root, staged) == [None] * 20
    for one in staged:
        publish.put_in_place(root, one)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        f"{number}.md": b"%d" % number for number in range(20)
    }


def test_a_staged_file_that_cannot_be_synced_fails_alone(root: ProjectRoot) -> None:
    staged = [publish.stage_new(root, f"{name}.md", b"x", fsync=True) for name in "xyz"]
    publish.discard(root, staged[1])
    read_end, write_end = os.pipe()
    os.close(read_end)
    # A pipe is no file that a disk could hold.
    staged[1] = msgspec.structs.replace(staged[1], file=io.FileIO(write_end, "wb"))
    first, second, third = publish.sync_staged(root, staged)
    assert (first, third) == (None, None)
    assert second is not None
    assert second.code == "WRITE_ERROR"
    assert second.details == {"file": "y.md", "errno": "EINVAL"}


def test_staged_files_leave_no_descriptor_open(root: ProjectRoot) -> None:
    before = set(os.listdir("/proc/self/fd"))
    staged = [publish.stage_new(root, f"{name}.md", b"x", fsync=True) for name in "xyz"]
    publish.discard(root, staged.pop())
    publish.sync_staged(root, staged)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_staged_replacement_keeps_the_mode_and_nobody_sees_half_of_it(root: ProjectRoot) -> None:
    path = Path(root.path, "kept.md")
    path.write_bytes(b"old")
    path.chmod(0o640)
    staged = publish.stage_replacement(root, "kept.md", b"new", fsync=False)
    assert path.read_bytes() == b"old"
    publish.put_in_place(root, staged)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert not list(path.parent.glob("*.maad-tmp-*"))
