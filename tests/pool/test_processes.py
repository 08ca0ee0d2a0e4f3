"""What the front leaves behind, and what its workers inherit; with a front of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = str(Path(__file__).with_name("front_program.py"))


class Front:
    """A running front with one worker, which holds a write when `fifo` is given."""

    def __init__(self, runtime_dir: str, project: Path, fifo: Path | None = None) -> None:
        self.project = project
        arguments = [runtime_dir, str(project), *([str(fifo)] if fifo else [])]
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.answers: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.worker = self.answers["pid"]

    def watch_descendants(self) -> list[int]:
        """Handles of the fork server, the resource tracker and the worker."""
        found = descendants(self.process.pid)
        assert len(found) == 3
        assert self.worker in found
        return [os.pidfd_open(pid) for pid in found]


def descendants(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


def all_gone(pid_fds: list[int], seconds: float) -> bool:
    waiting = set(pid_fds)
    while waiting:
        ended, _, _ = select.select(list(waiting), [], [], seconds)
        if not ended:
            return False
        waiting -= set(ended)
    return True


@pytest.fixture
def front(short_dir: str, tmp_path: Path) -> Iterator[Front]:
    front = Front(short_dir, tmp_path)
    yield front
    front.process.kill()
    front.process.communicate()


def test_workers_do_not_run_the_fronts_program_again(front: Front) -> None:
    assert (front.project / "main_runs").read_text() == "__main__ click\n"
    main_file, has_click = front.answers["modules"]
    assert main_file is None
    assert not has_click


def test_workers_have_neither_standard_input_nor_output_of_the_front(front: Front) -> None:
    stdin, stdout, stderr, null = front.answers["stdio"]
    assert stdin == null
    assert stdout == stderr
    out, err = front.process.communicate(b"\n")
    assert out == b""
    assert b"printed by a library" in err


def test_a_front_that_ends_leaves_no_process(front: Front) -> None:
    handles = front.watch_descendants()
    front.process.communicate(b"\n")
    assert front.process.returncode == 0
    assert all_gone(handles, 10)
    assert (front.project / "closed").read_text() == f"{front.worker}\n"


def test_a_killed_front_takes_everything_with_it(front: Front) -> None:
    handles = front.watch_descendants()
    front.process.kill()
    front.process.wait()
    assert all_gone(handles, 2)
    assert (front.project / "closed").read_text() == f"{front.worker}\n"


@pytest.fixture
def busy_front(short_dir: str, tmp_path: Path) -> Iterator[Front]:
    project, fifo = tmp_path / "project", tmp_path / "fifo"
    project.mkdir()
    os.mkfifo(fifo)
    front = Front(short_dir, project, fifo)
    yield front
    front.process.kill()
    front.process.communicate()


def test_the_write_in_hand_is_finished_when_the_front_is_killed(busy_front: Front) -> None:
    handles = busy_front.watch_descendants()
    busy_front.process.kill()
    (busy_front.project.parent / "fifo").open("wb").close()
    assert all_gone(handles, 10)
    assert (busy_front.project / "closed").read_text() == f"{busy_front.worker}\n"


def test_a_write_that_never_ends_does_not_keep_the_worker(busy_front: Front) -> None:
    handles = busy_front.watch_descendants()
    busy_front.process.kill()
    assert all_gone(handles, 2)
    assert not (busy_front.project / "closed").exists()
