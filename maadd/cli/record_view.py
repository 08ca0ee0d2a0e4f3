"""A record for people: its fields, then what the depth adds (spec 02 §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from maadd.cli.tables import (
    RELATED_COLUMNS,
    VALUE_COLUMNS,
    cell_text,
    moment_text,
    print_facts,
    print_heading,
    print_list,
)

_IDENTITY = ("doc_id", "doc_type", "schema")


def print_record(record: Mapping[str, Any]) -> None:
    """The answer of `maad_get` at any depth."""
    created = record.get("createdAt")
    print_facts(
        {
            "id": record["docId"],
            "type": record["docType"],
            "version": record["version"],
            "updated": moment_text(record["updatedAt"]),
            "created": None if created is None else moment_text(created),
        }
    )
    named = record.get("resolvedRefs", {})
    fields = {
        name: "null" if value is None else _with_name(value, named.get(name))
        for name, value in record["frontmatter"].items()
        if name not in _IDENTITY
    }
    if fields:
        click.echo()
        print_facts(fields)
    if block := record.get("block"):
        print_heading(block["heading"] or "text before the first heading")
        click.echo(_body(block["content"]))
    if body := record.get("body"):
        click.echo(f"\n{_body(body)}")
    if related := record.get("related"):
        _print_related(related)
    if note := record.get("latestNote"):
        print_heading("latest note")
        print_facts(
            {
                "id": note["docId"],
                "summary": note["summary"],
                "written": moment_text(note["timestamp"]),
            }
        )
    if objects := record.get("objects"):
        print_heading("values")
        print_list(objects, VALUE_COLUMNS)
        total = record.get("objectsTotal", len(objects))
        if total > len(objects):
            click.echo(f"\nthe first {len(objects)} of {total}; maad search --doc finds all")


def _print_related(related: Mapping[str, Any]) -> None:
    rows = [
        {"direction": side} | link for side in ("outgoing", "incoming") for link in related[side]
    ]
    if rows:
        print_heading("related")
        print_list(rows, RELATED_COLUMNS)


def _with_name(value: object, target: Mapping[str, Any] | None) -> str:
    """A value, and the name of the record it refers to."""
    text = cell_text(value)
    if target is None or target["name"] == target["docId"]:
        return text
    return f"{text} ({cell_text(target['name'])})"


def _body(text: str) -> str:
    """Markdown with its lines, without what would move the cursor otherwise."""
    return "".join(one if one.isprintable() or one in "\n\t" else " " for one in text)
