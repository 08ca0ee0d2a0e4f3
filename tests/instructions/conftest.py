"""A project with the managed files of this version, and engines on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from guided_project import Served, git

from maadd_worker.instructions.manifest import load_templates


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project with every managed file current, in a repository of one commit."""
    root = tmp_path / "yard"
    for template in load_templates():
        file = root / template.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(template.content)
    (root / "_registry").mkdir()
    (root / "_schema").mkdir()
    (root / "_registry/object_types.yaml").write_text("types: {}\n")
    (root / ".gitignore").write_text("_backend/\n_import/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "fixture")
    return root


Open = Callable[..., Served]


@pytest.fixture
def served(project: Path) -> Iterator[Open]:
    """Opens engines on the project; they are closed at the end of the test."""
    opened: list[Served] = []

    def opener(mode: str = "audit", **settings: Any) -> Served:
        opened.append(Served(project, mode, **settings))
        return opened[-1]

    yield opener
    for one in opened:
        one.close()
