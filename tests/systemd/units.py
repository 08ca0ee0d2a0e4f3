"""Reading the shipped units."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "systemd"
INSTALLED = "/opt/maadd/bin/"
"""Where the units expect the programs."""
BIN = Path(sys.executable).parent
UNITS = sorted(
    path for path in FOLDER.rglob("*") if path.suffix in (".service", ".socket", ".slice", ".conf")
    and path.parent.name not in ("sysusers.d", "tmpfiles.d")
)  # fmt: skip


def assignments(path: Path) -> list[tuple[str, str, str]]:
    """Section, key and value of every line that is no comment."""
    found = []
    section = ""
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        key, separator, value = line.partition("=")
        assert separator, f"{path.name}: {line}"
        found.append((section, key, value))
    return found


def values(path: Path, key: str) -> list[str]:
    return [value for _, found, value in assignments(path) if found == key]


def environment(path: Path) -> dict[str, str]:
    """What the `Environment=` lines of a unit set."""
    words = [word for value in values(path, "Environment") for word in shlex.split(value)]
    return dict(word.split("=", 1) for word in words)


def copy_units(target: Path) -> Path:
    """The units in a folder of their own, with the programs of this environment."""
    for path in FOLDER.glob("maadd*.s*"):
        text = path.read_text().replace(INSTALLED, f"{BIN}/")
        (target / path.name).write_text(text)
    return target / "maadd.service"
