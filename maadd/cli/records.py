"""`maad get`, `query`, `create` and `update`: the records of one project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maadd.cli.fields import parse_fields, parse_filters
from maadd.cli.options import (
    comma_list,
    filter_option,
    idempotency_option,
    limit_option,
    offset_option,
    sort_arguments,
    sort_options,
)
from maadd.cli.output import accept_json, fail, json_option, print_json, wants_json, warn
from maadd.cli.record_view import print_record
from maadd.cli.tables import print_page_end, print_table
from maadd.cli.targets import project_and_settings, target_options
from maadd.cli.toolcall import call_tool, given
from maadd.protocol.errors import MaadErrors

if TYPE_CHECKING:
    from maadd.cli.oneshot import OneShot

_TABLE_FIELDS = 4
"""Columns a table shows unasked, besides the id."""

_FIELD_HELP = "A text field; [a,b] makes a list. Repeatable."
_JSON_FIELD_HELP = "A typed field, for example minutes=41. Repeatable."


@click.command("get")
@target_options
@click.argument("doc_id", metavar="ID")
@click.argument("depth", type=click.Choice(("hot", "warm", "cold", "full")), default="hot")
@click.argument("block", required=False)
@json_option
def get_command(doc_id: str, depth: str, block: str | None, as_json: bool) -> None:
    """Print one record.

    \b
    hot    its fields (the default)
    warm   its fields and the section BLOCK, named by id or heading
    cold   its fields and the whole body
    full   its fields, what they refer to, and what refers to it
    """
    if block is not None and depth != "warm":
        raise click.UsageError("a section is read at depth warm: maad get ID warm BLOCK")
    args = {"docId": doc_id, "depth": depth} | ({} if block is None else {"block": block})
    record = call_tool("maad_get", args)
    if wants_json(as_json):
        print_json(record)
    else:
        print_record(record)


@click.command("query")
@target_options
@click.argument("doc_type", metavar="TYPE")
@filter_option
@click.option("--fields", metavar="LIST", help="Indexed fields to print, with commas between.")
@sort_options
@limit_option(50)
@offset_option
@click.option("--cursor", metavar="TEXT", help="The nextCursor of the page before.")
@click.option("--file-path", is_flag=True, help="Also where each record lies.")
@click.option(
    "--depth",
    type=click.Choice(("hot", "cold", "full")),
    default="hot",
    show_default=True,
    help="In JSON: with bodies (cold), or with what get full says (full).",
)
@click.option(
    "--depth-max-results",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows that --depth fills; the others are hot.  [default: 50]",
)
@click.option(
    "--response-mode",
    type=click.Choice(("rows", "columns")),
    default="rows",
    show_default=True,
    help="columns: one object in JSON, with names once and the next cursor.",
)
@json_option
def query_command(
    doc_type: str,
    filters: tuple[str, ...],
    fields: str | None,
    sort: str | None,
    order: str,
    limit: int,
    offset: int,
    cursor: str | None,
    file_path: bool,
    depth: str,
    depth_max_results: int | None,
    response_mode: str,
    as_json: bool,
) -> None:
    """List the records of a type."""
    root, settings = project_and_settings()
    from maadd.cli.oneshot import open_project

    args = given(
        {
            "docType": doc_type,
            "filters": parse_filters(filters) or None,
            "limit": limit,
            "offset": offset,
            "cursor": cursor,
            "includeFilePath": file_path or None,
            "depth": depth,
            "depthMaxResults": depth_max_results,
            "response_mode": response_mode,
        }
    )
    args |= sort_arguments(sort, order)
    columns = comma_list(fields)
    as_table = depth == "hot" and response_mode == "rows" and not wants_json(as_json)
    try:
        with open_project(root, settings, warn=warn) as project:
            if as_table and not columns:
                columns = _usual_columns(project, doc_type)
            data = project.call("maad_query", args | ({"fields": columns} if columns else {}))
    except MaadErrors as failure:
        fail(failure)
    if as_table:
        _print_rows(data, columns, offset, file_path)
    else:
        print_json(data["results"] if response_mode == "rows" else data)


@click.command("create")
@target_options
@click.argument("doc_type", metavar="TYPE")
@click.option("--field", "texts", multiple=True, metavar="K=V", help=_FIELD_HELP)
@click.option("--json-field", "typed", multiple=True, metavar="K=JSON", help=_JSON_FIELD_HELP)
@click.option("--body", metavar="TEXT", help="Markdown; without it the type's template.")
@click.option("--id", "doc_id", metavar="ID", help="Without it one is made.")
@idempotency_option
@accept_json
def create_command(
    doc_type: str,
    texts: tuple[str, ...],
    typed: tuple[str, ...],
    body: str | None,
    doc_id: str | None,
    idempotency_key: str | None,
) -> None:
    """Add a record."""
    args = {
        "docType": doc_type,
        "fields": parse_fields(texts, typed),
        "body": body,
        "docId": doc_id,
        "idempotencyKey": idempotency_key,
    }
    print_json(call_tool("maad_create", given(args), index_first=True))


@click.command("update")
@target_options
@click.argument("doc_id", metavar="ID")
@click.option("--field", "texts", multiple=True, metavar="K=V", help=_FIELD_HELP)
@click.option("--json-field", "typed", multiple=True, metavar="K=JSON", help=_JSON_FIELD_HELP)
@click.option("--unset", multiple=True, metavar="K", help="A field to remove. Repeatable.")
@click.option("--body", metavar="TEXT", help="Replaces the whole body.")
@click.option("--append", metavar="TEXT", help="Goes to the end of the body.")
@click.option(
    "--expected-version",
    type=click.IntRange(min=1),
    metavar="N",
    help="Refuse when the record has another version.",
)
@click.option(
    "--expected-hash", metavar="SHA256", help="Refuse when the file is not the one you read."
)
@idempotency_option
@accept_json
def update_command(
    doc_id: str,
    texts: tuple[str, ...],
    typed: tuple[str, ...],
    unset: tuple[str, ...],
    body: str | None,
    append: str | None,
    expected_version: int | None,
    expected_hash: str | None,
    idempotency_key: str | None,
) -> None:
    """Change a record; what is not named stays as it is."""
    args = {
        "docId": doc_id,
        "fields": parse_fields(texts, typed) or None,
        "unsetFields": list(unset) or None,
        "body": body,
        "appendBody": append,
        "expectedVersion": expected_version,
        "expectedHash": expected_hash,
        "idempotencyKey": idempotency_key,
    }
    print_json(call_tool("maad_update", given(args), index_first=True))


def _usual_columns(project: OneShot, doc_type: str) -> list[str]:
    """The first indexed fields of a type; none for a type that is not registered."""
    try:
        fields = project.call("maad_schema", {"docType": doc_type})["fields"]
    except MaadErrors:
        # The query itself says what is wrong with the type.
        return []
    return [field["name"] for field in fields if field["indexed"]][:_TABLE_FIELDS]


def _print_rows(data: dict[str, Any], columns: list[str], offset: int, file_path: bool) -> None:
    rows = data["results"]
    if rows:
        print_table(
            ("id", *columns, *(["file"] if file_path else ())),
            (
                (
                    row["docId"],
                    *(row.get("fields", {}).get(name) for name in columns),
                    *([row["filePath"]] if file_path else ()),
                )
                for row in rows
            ),
        )
    print_page_end(offset, len(rows), data["total"])
