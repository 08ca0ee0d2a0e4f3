"""Fields and filters on the command line: `name=text`, and typed values as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click


def parse_fields(texts: Iterable[str], typed: Iterable[str]) -> dict[str, Any]:
    """The fields of a record: `texts` of `--field`, then `typed` of `--json-field`.

    `[a,b]` is a list of texts; every other value is a text. Raises click.BadParameter.
    """
    fields: dict[str, Any] = {}
    for given in texts:
        name, value = _split(given, "--field")
        fields[name] = plain_value(value)
    for given in typed:
        name, value = _split(given, "--json-field")
        try:
            fields[name] = json.loads(value)
        except json.JSONDecodeError as error:
            raise click.BadParameter(
                f"{name}: {value!r} is no JSON ({error.msg} at character {error.pos + 1})",
                param_hint="--json-field",
            ) from None
    return fields


def parse_filters(texts: Iterable[str]) -> dict[str, Any]:
    """Equality filters, all of which must hold; a field named twice must equal both."""
    filters: dict[str, list[str]] = {}
    for given in texts:
        name, value = _split(given, "--filter")
        filters.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in filters.items()}


def _split(given: str, flag: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{given!r} is not of the form NAME=VALUE", param_hint=flag)
    return name, value


def plain_value(text: str) -> str | list[str]:
    """A text, or with `[a,b]` a list of texts."""
    if text.startswith("[") and text.endswith("]") and not text.startswith("[["):
        inner = text[1:-1].strip()
        return [item.strip() for item in inner.split(",")] if inner else []
    return text
