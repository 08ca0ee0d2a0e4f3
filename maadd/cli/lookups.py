"""`maad summary`, `describe`, `schema`, `search`, `related`, `history`, `audit` and `call`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from maadd.cli.output import (
    accept_json,
    cell_text,
    json_option,
    print_json,
    print_table,
    wants_json,
)
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given


@click.command("summary")
@target_options
@accept_json
def summary_command() -> None:
    """Print what the project holds: types, counts, newest records, warnings."""
    print_json(call_tool("maad_summary", {}))


@click.command("describe")
@target_options
@accept_json
def describe_command() -> None:
    """Print the registered types and what their records carry."""
    print_json(call_tool("maad_describe", {}))


@click.command("schema")
@target_options
@click.argument("doc_type", metavar="TYPE")
@accept_json
def schema_command(doc_type: str) -> None:
    """Print the fields of a type and their rules."""
    print_json(call_tool("maad_schema", {"docType": doc_type}))


@click.command("search")
@target_options
@click.argument("primitive", metavar="PRIMITIVE")
@click.option("--subtype", metavar="NAME", help="Annotation type, or name of a field.")
@click.option("--value", metavar="TEXT", help="Exactly this value.")
@click.option("--contains", "--query", "contains", metavar="TEXT", help="Values that hold it.")
@click.option("--doc", "doc_id", metavar="ID", help="In this record only.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--offset", type=click.IntRange(min=0), default=0, show_default=True)
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
    results = call_tool("maad_search", args)["results"]
    _print_list(results, ("docId", "subtype", "value", "sourceLine"), as_json=as_json)


@click.command("related")
@target_options
@click.argument("doc_id", metavar="ID")
@click.argument("direction", type=click.Choice(("outgoing", "incoming", "both")), default="both")
@json_option
def related_command(doc_id: str, direction: str, as_json: bool) -> None:
    """Show what a record refers to, and what refers to it."""
    data = call_tool("maad_related", {"docId": doc_id, "direction": direction})
    if wants_json(as_json):
        print_json(data)
        return
    rows = [
        {"direction": side} | link
        for side in ("outgoing", "incoming")
        for link in data.get(side) or ()
    ]
    _print_list(rows, ("direction", "field", "docId", "docType"), as_json=False)


@click.command("history")
@target_options
@click.argument("doc_id", metavar="ID")
@click.option("--since", metavar="DATE", help="Commits from this day on.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@json_option
def history_command(doc_id: str, since: str | None, limit: int, as_json: bool) -> None:
    """List the commits of a record, newest first."""
    args = given({"docId": doc_id, "since": since, "limit": limit})
    columns = ("timestamp", "action", "author", "summary", "sha")
    _print_list(call_tool("maad_history", args), columns, as_json=as_json)


@click.command("audit")
@target_options
@click.option("--since", metavar="DATE", help="Commits from this day on.")
@click.option("--until", metavar="DATE", help="Commits before this day.")
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--offset", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def audit_command(
    since: str | None,
    until: str | None,
    doc_type: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the records that were written to, by their last commit."""
    args = given(
        {"since": since, "until": until, "docType": doc_type, "limit": limit, "offset": offset}
    )
    columns = ("lastTimestamp", "docId", "docType", "actions", "lastAction", "lastAuthor")
    _print_list(call_tool("maad_audit", args), columns, as_json=as_json)


@click.command("call")
@target_options
@click.argument("tool", metavar="TOOL")
@click.argument("arguments", metavar="[JSON]", default="{}")
@accept_json
def call_command(tool: str, arguments: str) -> None:
    """Call any tool of the project and print its data.

    \b
    maad call maad_aggregate '{"docType": "sighting", "groupBy": "kind"}'
    maad call maad_changes_since
    """
    from maadd.protocol.suggestion import nearest
    from maadd.protocol.tools import TOOLS, ToolKind

    served = [
        spec.name
        for spec in TOOLS.values()
        if spec.available and spec.kind is not ToolKind.ENGINELESS
    ]
    if tool not in served:
        meant = nearest(tool, served)
        raise click.UsageError(
            f"{tool!r} is no tool of a project" + (f"; did you mean {meant!r}?" if meant else "")
        )
    try:
        args = json.loads(arguments)
    except ValueError as error:
        raise click.UsageError(f"the arguments are not JSON: {error}") from error
    if not isinstance(args, dict):
        raise click.UsageError('the arguments are an object, such as \'{"docId": "x"}\'')
    print_json(call_tool(tool, args))


def _print_list(rows: Sequence[dict[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    if wants_json(as_json):
        print_json(rows)
    elif rows:
        print_table(columns, ([cell_text(row.get(name)) for name in columns] for row in rows))
    else:
        click.echo("none")
