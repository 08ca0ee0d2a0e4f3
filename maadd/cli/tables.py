"""What people read: tables, facts, dates, and where the next page is."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

RELATED_COLUMNS = {"direction": "direction", "field": "field", "id": "docId", "type": "docType"}
VALUE_COLUMNS = {
    "name": "subtype",
    "primitive": "primitive",
    "value": "value",
    "line": "sourceLine",
}
"""Headings of what several commands list, and the members below them."""

_WIDEST = 60
_NARROWEST = 6
"""Characters of a cell, but of the first, which names the row."""

_GAP = 2


def cell_text(value: Any) -> str:
    """A value on one line; lists with commas, nothing for what is absent.

    Records may hold anything: what would move the cursor becomes a blank.
    """
    if isinstance(value, list):
        text = ", ".join(map(cell_text, value))
    elif isinstance(value, bool | dict):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def moment_text(timestamp: str | None) -> str:
    """A timestamp of an answer to the minute, in the local time zone."""
    if timestamp is None:
        return ""
    try:
        moment = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return timestamp
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table as wide as the terminal; cells that do not fit end in an ellipsis.

    The first column is never cut. Numbers stand to the right.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    body = [list(row) for row in rows]
    # Records hold square brackets, which rich would read as markup.
    texts = [[Text(cell_text(cell)) for cell in row] for row in body]
    widths = [
        max([cell_len(column), *(row[place].cell_len for row in texts)])
        for place, column in enumerate(columns)
    ]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, (column, width) in enumerate(
        zip(columns, _fitted(widths, console.width), strict=True)
    ):
        cells = [row[place] for row in body if row[place] is not None]
        numbers = bool(cells) and all(type(cell) in (int, float) for cell in cells)
        table.add_column(
            column,
            justify="right" if numbers else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=width,
            max_width=width,
        )
    for row in texts:
        table.add_row(*row)
    # A first column that is wider than the terminal makes the lines wrap there.
    console.print(table, width=max(console.width, widths[0]), no_wrap=True, crop=False)


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths of columns that fit side by side, taken from the widest but the first."""
    first, *others = widths
    others = [min(width, _WIDEST) for width in others]
    room -= first + _GAP * len(others)
    while sum(others) > room and max(others, default=0) > _NARROWEST:
        widest = max(others)
        over = sum(others) - room
        second = max([width for width in others if width < widest] or [0])
        count = others.count(widest)
        step = max(1, min(widest - max(second, _NARROWEST), -(-over // count)))
        others = [width - step if width == widest else width for width in others]
    return [first, *others]


def print_list(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, moments: Sequence[str] = ()
) -> None:
    """A table with, under each heading of `columns`, a member of each row.

    Members in `moments` are timestamps.
    """
    if not rows:
        click.echo("none")
        return
    print_table(
        list(columns),
        (
            [
                moment_text(row.get(name)) if name in moments else row.get(name)
                for name in columns.values()
            ]
            for row in rows
        ),
    )


def print_facts(facts: Mapping[str, Any]) -> None:
    """A name and a value a line; facts that are None are left out."""
    shown = {name: cell_text(value) for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        click.echo(f"{name:<{width}}  {text}".rstrip())


def print_heading(text: str) -> None:
    """A line over the part that follows."""
    click.echo()
    click.echo(click.style(text, bold=True))


def print_page_end(offset: int, shown: int, total: int) -> None:
    """Which rows these were, of how many, and how to get the next."""
    if not shown:
        click.echo(f"none of {total}")
        return
    last = offset + shown
    more = f"; next page: --offset {last}" if last < total else ""
    click.echo(f"\n{offset + 1} to {last} of {total}{more}")


def counted(number: int, noun: str) -> str:
    """`1 record`, `3 records`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
