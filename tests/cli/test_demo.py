"""`maad demo`: the whole product at work, from the outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TITLES = [
    "Make a project of a folder of Markdown files",
    "Declare an instance and issue a token for an agent",
    "Start the daemon",
    "Connect with the SDK's client and bind the project",
    "Ask what there is",
    "Find the serious incidents since 2022",
    "Read one section of one record",
    "Add a record",
    "Two agents change the same record",
    "What is not allowed is refused, and nothing is written",
    "The Git log tells what happened",
    "Kill the project's worker; the next call works",
    "Stop the daemon",
]


def running_under(folder: Path) -> list[str]:
    """Processes that were started with this temporary folder."""
    marked = f"TMPDIR={folder}".encode()
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{entry}/environ").read_bytes()
            command = Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if marked in environ.split(b"\0"):
            found.append(command)
    return found


def test_the_demo_shows_everything_and_leaves_nothing(maad: Any, environment: Any) -> None:
    folder = Path(environment["MAADD_RUNTIME_DIR"]).parent
    done = maad("demo", env={"TMPDIR": str(folder), "COLUMNS": "160"})
    assert done.code == 0, done.out + done.err
    steps = re.findall(r"^ *\d+ (.+?) *$", done.out, re.MULTILINE)
    assert [title for title in steps if title in TITLES] == TITLES
    for shown in ("VERSION_CONFLICT", "INSUFFICIENT_ROLE", "maad:create inc-", "exit code 0"):
        assert shown in done.out
    assert not re.search(r"maad_pat_[0-9a-f]{32}", done.out + done.err)
    assert os.listdir(folder) == []
    assert running_under(folder) == []


def test_a_step_that_fails_is_named(maad: Any, environment: Any) -> None:
    folder = Path(environment["MAADD_RUNTIME_DIR"]).parent
    done = maad("demo", env={"TMPDIR": str(folder), "PATH": "/nonexistent"})
    assert done.code == 1
    assert f"maad demo failed at: {TITLES[0]}" in done.err
    assert "GIT_ERROR" in done.err
    assert os.listdir(folder) == []


def test_an_ended_demo_cleans_up(environment: Any) -> None:
    folder = Path(environment["MAADD_RUNTIME_DIR"]).parent
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "maadd.cli", "demo"],
        env=environment | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if TITLES[4] in line:
                demo.send_signal(signal.SIGTERM)
                break
        demo.communicate(timeout=30)
    assert demo.returncode == 143
    assert os.listdir(folder) == []
    assert running_under(folder) == []
