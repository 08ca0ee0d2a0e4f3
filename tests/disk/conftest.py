from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from maadd_worker.disk.root import ProjectRoot

NOBODY = 65534


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def root(project: Path) -> Iterator[ProjectRoot]:
    opened = ProjectRoot.open(str(project))
    yield opened
    opened.close()


@pytest.fixture
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """Without the rights of the superuser for a while, whom no mode bits stop."""

    @contextmanager
    def dropped() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)

    return dropped
