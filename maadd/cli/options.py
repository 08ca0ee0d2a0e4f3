"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def filter_option(command: _Command) -> _Command:
    """`--filter K=V`, handed on as `filters`; see `parse_filters`."""
    return click.option(
        "--filter", "filters", multiple=True, metavar="K=V", help="Field K is V. Repeatable."
    )(command)


def limit_option(default: int) -> Callable[[_Command], _Command]:
    """`--limit N`: the length of a page."""
    return click.option(
        "--limit", type=click.IntRange(min=1), default=default, show_default=True, metavar="N"
    )


def offset_option(command: _Command) -> _Command:
    """`--offset N`: how many rows the pages before had."""
    return click.option(
        "--offset", type=click.IntRange(min=0), default=0, show_default=True, metavar="N"
    )(command)


def sort_options(command: _Command) -> _Command:
    """`--sort FIELD` and `--order`."""
    sort = click.option("--sort", metavar="FIELD", help="An indexed field, or e.g. updatedAt.")
    order = click.option(
        "--order", type=click.Choice(("asc", "desc")), default="asc", show_default=True
    )
    return sort(order(command))


def sort_arguments(sort: str | None, order: str) -> dict[str, str]:
    """The arguments of a tool for these options."""
    return {"sortBy": sort, "sortOrder": order} if sort else {}


def idempotency_option(command: _Command) -> _Command:
    """`--idempotency-key TEXT` (spec 03 §8)."""
    return click.option(
        "--idempotency-key",
        metavar="TEXT",
        help="Given again, it repeats the first answer and writes nothing.",
    )(command)


def comma_list(text: str | None) -> list[str]:
    """The names of a list with commas between."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
