"""Texts of the command line: bytes that are no UTF-8 are refused before a command begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from maadd.cli.output import fail

FILE_NAME = click.Path()
"""The type of arguments that may be any bytes, as names of files are."""


def refuse_broken_texts(ctx: click.Context) -> None:
    """End a command with INVALID_ARGS when an argument is no Unicode, and no `FILE_NAME`."""
    for param in ctx.command.params:
        if param.type is not FILE_NAME:
            refuse_broken(param, ctx.params.get(param.name or ""))


def refuse_broken(param: click.Parameter, value: Any) -> None:
    """End the command with INVALID_ARGS when a value of the parameter is no Unicode."""
    for text in _texts(value):
        if any("\ud800" <= character <= "\udfff" for character in text):
            _refuse(param, text)


def _refuse(param: click.Parameter, text: str) -> None:
    from maadd.protocol.errors import MaadError

    name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
    fail(
        MaadError(
            "INVALID_ARGS",
            f"{name.strip('[]')}: {text[:100]!a} is not valid UTF-8; write it in UTF-8",
        )
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
