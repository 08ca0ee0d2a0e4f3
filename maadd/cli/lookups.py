"""`maad summary`, `describe`, `schema` and `search`: what a project holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from maadd.cli.options import limit_option, offset_option
from maadd.cli.output import json_option, print_json, wants_json
from maadd.cli.tables import (
    VALUE_COLUMNS,
    counted,
    moment_text,
    print_facts,
    print_heading,
    print_list,
    print_page_end,
    print_table,
)
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given


@click.command("summary")
@target_options
@json_option
def summary_command(as_json: bool) -> None:
    """Print what the project holds: types, counts, newest records, warnings."""
    data = call_tool("maad_summary", {})
    if wants_json(as_json):
        print_json(data)
    else:
        _print_summary(data)


@click.command("describe")
@target_options
@json_option
def describe_command(as_json: bool) -> None:
    """Print the registered types and what their records carry."""
    data = call_tool("maad_describe", {})
    if wants_json(as_json):
        print_json(data)
    else:
        _print_description(data)


@click.command("schema")
@target_options
@click.argument("doc_type", metavar="TYPE")
@json_option
def schema_command(doc_type: str, as_json: bool) -> None:
    """Print the fields of a type and their rules."""
    data = call_tool("maad_schema", {"docType": doc_type})
    if wants_json(as_json):
        print_json(data)
    else:
        _print_schema(data)


@click.command("search")
@target_options
@click.argument("primitive", metavar="PRIMITIVE")
@click.option("--subtype", metavar="NAME", help="Annotation type, or name of a field.")
@click.option("--value", metavar="TEXT", help="Exactly this value.")
@click.option("--contains", "--query", "contains", metavar="TEXT", help="Values that hold it.")
@click.option("--doc", "doc_id", metavar="ID", help="In this record only.")
@limit_option(50)
@offset_option
@json_option
def search_command(
    primitive: str,
    subtype: str | None,
    value: str | None,
    contains: str | None,
    doc_id: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """Find values in fields and annotations, over all types.

    \b
    maad search date --value 2026-05-02
    maad search entity --contains harbour --limit 10
    """
    args = given(
        {
            "primitive": primitive,
            "subtype": subtype,
            "value": value,
            "contains": contains,
            "docId": doc_id,
            "limit": limit,
            "offset": offset,
        }
    )
    data = call_tool("maad_search", args)
    results = data["results"]
    if wants_json(as_json):
        print_json(results)
        return
    if results:
        print_list(results, {"id": "docId"} | VALUE_COLUMNS)
    print_page_end(offset, len(results), data["total"])


def _print_summary(data: Mapping[str, Any]) -> None:
    if data["types"]:
        print_list(data["types"], {"type": "type", "records": "count", "newest": "sampleIds"})
        click.echo()
    faults = data["warnings"]
    print_facts(
        {
            "records": data["totalDocuments"],
            "values": data["totalObjects"],
            "references": data["totalRelationships"],
            "broken references": faults["brokenRefs"] or None,
            "invalid records": faults["validationErrors"] or None,
            "indexed in part": faults["partialDocs"] or None,
            "indexed": moment_text(data["lastIndexedAt"]) or "never",
        }
    )
    if data["emptyProject"]:
        click.echo(f"\nnothing is here yet; {data['bootstrapHint']} tells how to begin")
    if faults["brokenRefs"] or faults["validationErrors"]:
        click.echo("\n`maad orphans` and `maad validate` name them")


def _print_description(data: Mapping[str, Any]) -> None:
    columns = {
        "type": "type",
        "records": "docCount",
        "prefix": "idPrefix",
        "folder": "path",
        "schema": "schema",
    }
    print_list(data["registryTypes"], columns)
    if data["subtypeInventory"]:
        print_heading("values")
        columns = {
            "name": "subtype",
            "primitive": "primitive",
            "values": "count",
            "most frequent": "topValues",
        }
        print_list(data["subtypeInventory"], columns)
    indexed = moment_text(data["lastIndexedAt"]) or "never"
    click.echo(f"\n{counted(data['totalDocuments'], 'record')}, indexed {indexed}")


def _print_schema(data: Mapping[str, Any]) -> None:
    print_facts({"type": data["type"], "prefix": data["idPrefix"], "schema": data["schemaRef"]})
    click.echo()
    print_table(
        ("field", "type", "required", "indexed", "rules"),
        (
            (
                field["name"],
                field["type"],
                "yes" if field["required"] else "",
                "yes" if field["indexed"] else "",
                _rules(field),
            )
            for field in data["fields"]
        ),
    )
    for heading in data.get("templateHeadings", ()):
        click.echo(f"\n{'#' * heading['level']} {heading['text']}")


def _rules(field: Mapping[str, Any]) -> str:
    rules = [" | ".join(map(str, field["values"]))] if "values" in field else []
    names = {
        "format": "format",
        "default": "default",
        "storePrecision": "to the",
        "onCoarser": "if coarser:",
        "displayPrecision": "shown to the",
    }
    rules += [f"{text} {field[name]}" for name, text in names.items() if name in field]
    return ", ".join(rules)
