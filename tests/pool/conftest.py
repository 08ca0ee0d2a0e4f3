"""A short runtime directory; a pool for the length of a block."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

# Worker processes find the test engine by the path they inherit.
sys.path.insert(0, str(Path(__file__).parent))

from pool_bench import Bench, opened_bench


@pytest.fixture
def short_dir() -> Iterator[str]:
    """A private directory whose path leaves room for socket names."""
    path = tempfile.mkdtemp(prefix="maadd-test-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def open_bench(
    short_dir: str, tmp_path: Path
) -> Callable[..., contextlib.AbstractAsyncContextManager[Bench]]:
    """`async with open_bench(policy, settings) as bench`."""
    return partial(opened_bench, short_dir, tmp_path)
