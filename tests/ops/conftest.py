"""Reading back what a log channel wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from maadd.ops.lines import open_sink


class LogFile:
    """A descriptor to log to, and its lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.sink = open_sink(self.descriptor)

    def text(self) -> str:
        return self.path.read_text()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[LogFile]:
    file = LogFile(tmp_path / "ops.log")
    yield file
    os.close(file.descriptor)


@pytest.fixture
def read_lines() -> Callable[[Path], list[dict[str, Any]]]:
    return lambda path: [json.loads(line) for line in path.read_text().splitlines()]
