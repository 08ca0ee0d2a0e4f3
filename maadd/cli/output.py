"""What commands print: JSON for programs, failures on standard error; `tables` for people.

Results are JSON when `--json` is given or standard output is no terminal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
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
    return as_json or not on_terminal()


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


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
    """Pretty JSON, two spaces, on standard output; numbers that JSON has not are null."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), indent=2, ensure_ascii=False)
    click.echo(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
