"""Golden conversations, where a folder of them lies beside the repository.

Each scenario whose tools are all there is replayed against a real server on stdio. Without
the folder there is nothing to collect.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_bench import BIN, ENVIRONMENT, TRANSCRIPTS

from maadd.protocol.tools import TOOLS


def scenarios() -> list[str]:
    """The names of the scenarios that call nothing but tools that are available."""
    names = []
    for path in sorted((TRANSCRIPTS / "scenarios").glob("*.json")):
        steps = json.loads(path.read_text())["steps"]
        called = {step["tool"] for step in steps if "tool" in step}
        if all(name not in TOOLS or TOOLS[name].available for name in called):
            names.append(path.stem)
    return names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("scenario", scenarios())


def test_the_conversation_goes_as_recorded(scenario: str, tmp_path: Path) -> None:
    maad = shlex.quote(str(BIN / "maad"))
    done = subprocess.run(
        [
            sys.executable,
            str(TRANSCRIPTS / "replay.py"),
            "--project-cmd",
            f"{maad} --project {{project}} serve --role {{role}}",
            "--instance-cmd",
            f"{maad} --instance {{instance}} serve",
            "--only",
            scenario,
            "--timeout",
            "60",
        ],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(tmp_path / "run")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
