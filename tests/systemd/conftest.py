"""The shipped units. What needs a program of systemd is collected only where it is installed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "system"))

NEEDS = {
    "test_unit_verification.py": shutil.which("systemd-analyze"),
    "test_socket_activate.py": shutil.which("systemd-socket-activate"),
}
collect_ignore = [name for name, found in NEEDS.items() if not found]


def pytest_report_header() -> list[str]:
    return [f"not collected, its programs are not here: {name}" for name in collect_ignore]
