"""For all tests: coroutines are tests, too, each on a loop of its own like the product's; and a
logger that keeps what it is told."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import structlog
import uvloop

# Hundreds of processes are started here; without bytecode each compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs coroutine tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    uvloop.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def log_into() -> Callable[[list[dict[str, Any]]], Any]:
    """`log_into(events)`: a logger whose lines from level info on go into that list."""
    return _log_into


def _log_into(events: list[dict[str, Any]]) -> Any:
    def keep(_logger: object, level: str, event: dict[str, Any]) -> Any:
        events.append({"level": level, **event})
        raise structlog.DropEvent

    return structlog.wrap_logger(
        None, processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )
