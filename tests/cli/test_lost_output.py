"""Commands whose output has nowhere to go: a full disk, a reader that has left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

FULL = "maad: cannot write the output: No space left on device\n"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(yard: Path, environment: dict[str, str]) -> Run:
    """Runs `maad` in the yard with the given standard streams."""

    def start(*arguments: str, out: Any = subprocess.PIPE, err: Any = subprocess.PIPE) -> Any:
        command = [sys.executable, "-m", "maadd.cli", *arguments]
        if arguments[:1] == ("-c",):
            command[1:3] = []
        return subprocess.run(
            command, stdout=out, stderr=err, text=True, cwd=yard, env=environment, check=False
        )

    return start


@pytest.fixture
def full() -> Iterator[IO[str]]:
    """A file on a full disk."""
    with open("/dev/full", "w") as file:
        yield file


# What a person gets on a terminal is written by another library.
TABLE = """
import sys, maadd.cli.output as output
from maadd.cli.main import main
output.on_terminal = lambda: True
sys.exit(main(["query", "asset"]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("query", "--help"),
        ("version",),
        ("completion", "bash"),
        ("parse", "assets/ast-1.md"),
        ("-c", TABLE),
    ],
    ids=["help", "help of a command", "version", "completion", "json", "table"],
)
def test_a_full_disk_is_one_line_and_exit_code_1(
    run: Run, full: IO[str], arguments: tuple[str, ...]
) -> None:
    done = run(*arguments, out=full)
    assert (done.returncode, done.stderr) == (1, FULL)


def test_a_reader_that_has_left_is_no_message(run: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for arguments in (("--help",), ("-c", TABLE)):
        done = run(*arguments, out=writing)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writing)


def test_messages_that_cannot_be_told_change_nothing(
    run: Run, full: IO[str], instance: Path
) -> None:
    on = f"--instance={instance}"
    told = run("auth", "issue-token", "--role=reader", "--projects=*", on, err=full)
    assert (told.returncode, told.stdout.count("maad_pat_")) == (0, 1)
    assert run("auth", "show-token", "--id=none", on, err=full).returncode == 1


def test_a_token_that_nobody_saw_is_named_with_the_way_out(
    run: Run, full: IO[str], instance: Path
) -> None:
    flags = ("--role=reader", "--projects=*", "--agent=a", f"--instance={instance}")
    done = run("auth", "issue-token", *flags, out=full)
    assert done.returncode == 1
    assert done.stderr.endswith(FULL)
    assert "nobody has seen it" in done.stderr
    assert "maad auth rotate-token --id tok-" in done.stderr
    assert "maad_pat_" not in done.stderr
