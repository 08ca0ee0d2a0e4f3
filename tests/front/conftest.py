"""Coroutine tests and a front for the length of a block."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

# Worker processes find the test engine by the path they inherit.
sys.path.insert(0, str(Path(__file__).parent))

from front_bench import opened_front


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs coroutine tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    uvloop.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def open_front(
    tmp_path: Path,
) -> Iterator[Callable[[], contextlib.AbstractAsyncContextManager[Any]]]:
    """`async with open_front() as bench`."""
    runtime = tempfile.mkdtemp(prefix="maadd-test-")
    yield partial(opened_front, tmp_path, runtime)
    shutil.rmtree(runtime)
