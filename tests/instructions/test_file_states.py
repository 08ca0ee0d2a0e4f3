"""What a managed file on disk counts as (spec 03 §11.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.instructions.files import MAX_BYTES, FileStatus, InstructionFiles
from maadd_worker.instructions.manifest import ENGINE, MANIFEST
from maadd_worker.instructions.plan import plan_refresh
from maadd_worker.instructions.stamp import stamped

GUIDE = "_skills/import-guide.md"


@pytest.fixture
def files(project: Path) -> Iterator[InstructionFiles]:
    root = ProjectRoot.open(str(project))
    yield InstructionFiles(root)
    root.close()


def status(files: InstructionFiles, path: str = GUIDE) -> FileStatus:
    [found] = [one for one in files.statuses() if one.rel_path == path]
    return found


def test_every_file_is_listed_in_the_order_of_the_manifest(files: InstructionFiles) -> None:
    found = files.statuses()
    assert [(one.name, one.rel_path) for one in found] == list(MANIFEST)
    assert {one.state for one in found} == {"current"}
    assert {one.stamped_engine for one in found} == {ENGINE}


@pytest.mark.parametrize(
    ("content", "state", "engine"),
    [
        (b"# My own guide\n", "unmanaged", None),
        (b"", "unmanaged", None),
        (stamped("import-guide", "0.18.5", b"older text\n"), "outdated", "0.18.5"),
        (stamped("import-guide", ENGINE, b"older text\n"), "outdated", ENGINE),
        (stamped("import-guide", "0.18.5", b"older text\n") + b"edit\n", "modified", "0.18.5"),
        (stamped("schema-guide", "0.18.5", b"older text\n"), "unmanaged", None),
    ],
    ids=["foreign", "empty", "outdated", "outdated, same version", "edited", "wrong name"],
)
def test_content_decides(
    project: Path, files: InstructionFiles, content: bytes, state: str, engine: str | None
) -> None:
    (project / GUIDE).write_bytes(content)
    assert status(files) == FileStatus("import-guide", GUIDE, state, engine)


def test_the_version_in_the_stamp_does_not_matter(project: Path, files: InstructionFiles) -> None:
    pristine = (project / GUIDE).read_bytes()
    (project / GUIDE).write_bytes(pristine.replace(ENGINE.encode(), b"0.18.5", 1))
    assert status(files) == FileStatus("import-guide", GUIDE, "current", "0.18.5")


@pytest.mark.parametrize(
    "rewrite",
    [lambda data: data.replace(b"\n", b"\r\n"), lambda data: b"\xef\xbb\xbf" + data],
    ids=["CRLF", "BOM"],
)
def test_a_checkout_of_another_kind_stays_current(
    project: Path, files: InstructionFiles, rewrite: object
) -> None:
    assert callable(rewrite)
    (project / GUIDE).write_bytes(rewrite((project / GUIDE).read_bytes()))
    assert status(files).state == "current"


def test_an_absent_file_and_an_absent_folder_are_missing(
    project: Path, files: InstructionFiles
) -> None:
    (project / GUIDE).unlink()
    assert status(files) == FileStatus("import-guide", GUIDE, "missing", None)
    for path in (project / "_skills").iterdir():
        path.unlink()
    (project / "_skills").rmdir()
    assert status(files).state == "missing"


def make_folder(path: Path) -> None:
    path.mkdir()


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere.md")


def make_link_outside(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def make_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)


def make_secret(path: Path) -> None:
    path.write_bytes(b"secret")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: a FIFO nobody can
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize(
    "make", [make_folder, make_dangling_link, make_link_outside, make_too_large, make_secret]
)
def test_what_cannot_be_read_is_unmanaged_and_says_why(
    project: Path, files: InstructionFiles, make: object
) -> None:
    assert callable(make)
    (project / GUIDE).unlink()
    make(project / GUIDE)
    found = status(files)
    assert found.state == "unmanaged"
    assert found.error is not None
    assert GUIDE in found.error or "outside" in found.error
    assert str(project) not in found.error


def test_a_change_is_seen_at_once(project: Path, files: InstructionFiles) -> None:
    old = project.stat().st_mtime_ns - 10_000_000_000
    os.utime(project / GUIDE, ns=(old, old))
    assert status(files).state == "current"
    (project / GUIDE).write_bytes((project / GUIDE).read_bytes() + b"edit\n")
    assert status(files).state == "modified"
    (project / GUIDE).unlink()
    assert status(files).state == "missing"


STATES = ("missing", "unmanaged", "modified", "outdated", "current")


@pytest.mark.parametrize(
    ("force", "refreshed", "skipped_modified", "skipped_unmanaged"),
    [
        (False, ["missing", "outdated"], ["modified"], ["unmanaged"]),
        (True, ["missing", "unmanaged", "modified", "outdated"], [], []),
    ],
)
def test_what_a_refresh_would_write(
    force: bool,
    refreshed: list[str],
    skipped_modified: list[str],
    skipped_unmanaged: list[str],
) -> None:
    plan = plan_refresh([FileStatus(s, f"{s}.md", s, None) for s in STATES], force=force)
    assert [one.state for one in plan.refresh] == refreshed
    assert [one.state for one in plan.skipped_modified] == skipped_modified
    assert [one.state for one in plan.skipped_unmanaged] == skipped_unmanaged
    assert [one.state for one in plan.current] == ["current"]
