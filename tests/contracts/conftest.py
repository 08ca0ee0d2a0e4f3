"""Projects, engines on them and the published values of the formats."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from contracts_project import Host, OpenHost, make_project

collect_ignore = [] if shutil.which("node") else ["test_canonical_json_node.py"]

_VALUES = Path(__file__).parents[1] / "vectors/values"


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], dict[str, Any]]:
    """Reads one file of published values by its name."""
    return lambda name: json.loads((_VALUES / f"{name}.json").read_text())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project with one type and a repository of one commit."""
    return make_project(tmp_path / "project")


@pytest.fixture
def open_host(project: Path) -> Iterator[OpenHost]:
    """Opens engines on the project; they are closed at the end of the test."""
    opened: list[Host] = []

    def opener(mode: str = "audit", **settings: Any) -> Host:
        host = Host(project, mode, **settings)
        opened.append(host)
        return host

    yield opener
    for host in opened:
        host.close()
