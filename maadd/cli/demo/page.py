"""How the demo looks: numbered steps, the calls made, and their results, for a person to read."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_INDENT = 3


class StepFailed(Exception):
    """A step that did not go as it should; `step` is its title, the cause says why."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step


class Page:
    """Prints the demo as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps = 0

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One numbered step; whatever goes wrong inside becomes a StepFailed."""
        self._steps += 1
        self._console.print()
        self._console.print(Text(f"{self._steps:>2} {title}", style="bold cyan"))
        try:
            yield
        except Exception as error:
            raise StepFailed(title, _reason(error)) from error

    def command(self, line: str) -> None:
        """A command as a person would type it."""
        self._put(Text(f"$ {line}", style="green"))

    def call(self, tool: str, args: Mapping[str, Any], elapsed_ms: float) -> None:
        """A tool call and how long its answer took."""
        shown = {name: _shortened(value) for name, value in args.items()}
        given = json.dumps(shown, ensure_ascii=False) if args else ""
        self._put(Text.assemble((f"{tool} ", "green"), given, (f"  {elapsed_ms:.0f} ms", "dim")))

    def say(self, text: str) -> None:
        """A sentence."""
        self._put(Text(" ".join(text.split())))

    def close(self, text: str) -> None:
        """The last sentence."""
        self._console.print()
        self._put(Text(text, style="bold"))

    def quote(self, text: str) -> None:
        """Text out of a record, a file or a program."""
        self._put(Text(textwrap.dedent(text).strip("\n"), style="dim"), indent=_INDENT + 2)

    def refusal(self, code: str, message: str) -> None:
        """An answer that says no."""
        self._put(Text.assemble((code, "yellow"), f"  {message}"), indent=_INDENT + 2)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows of a result."""
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self._put(table, indent=_INDENT + 2)

    def _put(self, content: Text | Table, indent: int = _INDENT) -> None:
        self._console.print(Padding(content, (0, 0, 0, indent), expand=False))


def _shortened(value: Any) -> Any:
    """A long text by its first line."""
    if isinstance(value, str) and "\n" in value:
        return f"{value.splitlines()[0]} …"
    return value


def failure_in(error: BaseException) -> StepFailed:
    """The failed step in what came out of the demo: task groups wrap what went wrong in them."""
    return _step_in(error) or StepFailed("closing the connections", _reason(error))


def _step_in(error: BaseException) -> StepFailed | None:
    if isinstance(error, StepFailed):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_step_in, error.exceptions)), None)
    return None


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
