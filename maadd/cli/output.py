"""What commands print: JSON for programs, tables for people, failures on standard error.

Results are JSON when `--json` is given or standard output is no terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from maadd.protocol.errors import MaadError, MaadErrors

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """`--json`, handed to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON also on a terminal.")(
        command
    )


def accept_json(command: _Command) -> _Command:
    """`--json` for a command that prints JSON anyway."""
    return click.option("--json", is_flag=True, expose_value=False, help="Print JSON, as always.")(
        command
    )


def wants_json(as_json: bool) -> bool:
    """Whether a program, rather than a person, reads the result."""
    return as_json or not sys.stdout.isatty()


def fail(failure: MaadError | MaadErrors) -> NoReturn:
    """Print a heading and one line an error on standard error, exit with 1."""
    from maadd.protocol.errors import errors_of

    click.echo(f"{click.get_current_context().command_path} failed", err=True)
    for error in errors_of(failure):
        click.echo(f"  {error.code}: {error.message}", err=True)
        if error.location is not None:
            where = error.location
            click.echo(f"    at {where.file}:{where.line}:{where.col}", err=True)
    sys.exit(1)


def warn(text: str) -> None:
    """One line of advice on standard error; the result stays as it is."""
    click.echo(f"warning: {text}", err=True)


def print_json(value: Any) -> None:
    """Pretty JSON, two spaces, on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def cell_text(value: Any) -> str:
    """A value in a table; lists with commas, nothing for what is absent."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Records hold square brackets, which rich would read as markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
