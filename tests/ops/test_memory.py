"""What the control group's files say (spec 04 §12.5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from maadd.ops.memory import (
    CgroupLevel,
    CgroupMemory,
    cgroup_levels,
    cgroup_memory,
    cgroup_reader,
    resident_bytes,
)


class Groups:
    """A mount of control groups and the file that names the one of this process."""

    def __init__(self, folder: Path) -> None:
        self._mount = folder / "mount"
        self._membership = folder / "cgroup"

    def member(self, *lines: str) -> None:
        self._membership.write_text("".join(f"{line}\n" for line in lines))

    def v2(self, path: str, current: object, limit: object) -> None:
        self._write(path, ("memory.current", current), ("memory.max", limit))

    def v1(self, path: str, current: object, limit: object) -> None:
        names = (("memory.usage_in_bytes", current), ("memory.limit_in_bytes", limit))
        self._write(f"memory/{path}", *names)

    def read(self) -> CgroupMemory | None:
        return cgroup_memory(self.levels())

    def levels(self) -> tuple[CgroupLevel, ...]:
        return cgroup_levels(str(self._membership), str(self._mount))

    def _write(self, path: str, *files: tuple[str, object]) -> None:
        folder = self._mount / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files:
            (folder / name).write_text(f"{value}\n")


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


def test_no_groups_at_all(groups: Groups) -> None:
    assert groups.read() is None


def test_version_2(groups: Groups) -> None:
    groups.member("0::/system.slice/maadd.service")
    groups.v2("system.slice/maadd.service", 100, 400)
    assert groups.read() == CgroupMemory(100, 400)


def test_a_limit_further_out_counts(groups: Groups) -> None:
    groups.member("0::/slice/unit")
    groups.v2("slice/unit", 100, "max")
    groups.v2("slice", 250, 300)
    assert groups.read() == CgroupMemory(250, 300)


def test_the_level_with_the_least_to_spare_counts(groups: Groups) -> None:
    groups.member("0::/slice/unit")
    groups.v2("slice/unit", 100, 120)
    groups.v2("slice", 250, 1000)
    assert groups.read() == CgroupMemory(100, 120)


def test_no_limit_anywhere(groups: Groups) -> None:
    groups.member("0::/unit")
    groups.v2("unit", 100, "max")
    assert groups.read() == CgroupMemory(100, None)


def test_a_namespace_shows_its_group_at_the_mount(groups: Groups) -> None:
    groups.member("0::/../../elsewhere")
    groups.v2("", 7, 9)
    assert groups.read() == CgroupMemory(7, 9)


def test_version_1(groups: Groups) -> None:
    groups.member("5:cpu,cpuacct:/x", "4:memory:/unit", "0::/ignored")
    groups.v1("unit", 100, 400)
    assert groups.read() == CgroupMemory(100, 400)


def test_an_absurd_limit_of_version_1_is_none(groups: Groups) -> None:
    groups.member("4:memory:/unit")
    groups.v1("unit", 100, 9_223_372_036_854_771_712)
    assert groups.read() == CgroupMemory(100, None)


@pytest.mark.parametrize("text", ["", "many", "-"])
def test_what_cannot_be_read_is_unknown(groups: Groups, text: str) -> None:
    groups.member("0::/unit")
    groups.v2("unit", text, 400)
    assert groups.read() is None


def test_this_process_lies_in_memory() -> None:
    resident = resident_bytes()
    assert resident is not None
    assert resident > 5_000_000


def test_who_asks_often_gets_a_figure_of_a_moment_ago(groups: Groups) -> None:
    groups.member("0::/a")
    groups.v2("a", 100, 400)
    now = 0.0
    read = cgroup_reader(groups.levels(), lambda: now)
    assert read() == CgroupMemory(100, 400)
    groups.v2("a", 300, 400)
    now = 0.05
    assert read() == CgroupMemory(100, 400)
    now = 0.2
    assert read() == CgroupMemory(300, 400)
