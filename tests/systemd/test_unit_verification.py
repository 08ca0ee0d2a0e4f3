"""systemd's own judgement of the units."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from units import copy_units


def analyze(*words: str, folder: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_systemd_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    copy_units(tmp_path)
    units = [f"./{path.name}" for path in sorted(tmp_path.iterdir())]
    assert len(units) == 4
    assert analyze("verify", *units, folder=tmp_path) == ""


def test_the_service_is_hardened(tmp_path: Path) -> None:
    copy_units(tmp_path)
    told = analyze("security", "--offline=true", "./maadd.service", folder=tmp_path)
    exposure = re.search(r"exposure level for maadd.service: ([0-9.]+)", told)
    assert exposure is not None
    assert float(exposure[1]) <= 2.0
