"""`maad history`, `audit` and `changes`: what was written, when and by whom."""

from __future__ import annotations

from typing import Any

import click

from maadd.cli.options import limit_option, offset_option
from maadd.cli.output import json_option, print_json, wants_json
from maadd.cli.tables import print_list
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given

_SINCE_HELP = "From then on: a day such as 2026-05-02, or any Git date such as '2 weeks ago'."


@click.command("history")
@target_options
@click.argument("doc_id", metavar="ID")
@click.option("--since", metavar="DATE", help=_SINCE_HELP)
@limit_option(100)
@json_option
def history_command(doc_id: str, since: str | None, limit: int, as_json: bool) -> None:
    """List the commits of a record, newest first."""
    commits = call_tool("maad_history", given({"docId": doc_id, "since": since, "limit": limit}))
    if wants_json(as_json):
        print_json(commits)
        return
    rows = [commit | {"sha": commit["sha"][:10]} for commit in commits]
    columns = {
        "when": "timestamp",
        "action": "action",
        "author": "author",
        "summary": "summary",
        "commit": "sha",
    }
    print_list(rows, columns, moments=("timestamp",))
    if len(rows) == limit:
        click.echo(f"\nthe newest {limit}; more: --limit {limit * 2}")


@click.command("audit")
@target_options
@click.option("--since", metavar="DATE", help=_SINCE_HELP)
@click.option("--until", metavar="DATE", help="Until then; a day counts to its end.")
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@limit_option(200)
@offset_option
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
    args = {"since": since, "until": until, "docType": doc_type, "limit": limit, "offset": offset}
    records = call_tool("maad_audit", given(args))
    if wants_json(as_json):
        print_json(records)
        return
    columns = {
        "id": "docId",
        "type": "docType",
        "when": "lastTimestamp",
        "action": "lastAction",
        "author": "lastAuthor",
        "commits": "actions",
    }
    print_list(records, columns, moments=("lastTimestamp",))
    if len(records) == limit:
        click.echo(f"\n{offset + 1} to {offset + limit}; next page: --offset {offset + limit}")


@click.command("changes")
@target_options
@click.option("--cursor", metavar="TEXT", help="Where an earlier answer ended.")
@click.option("--type", "doc_types", multiple=True, metavar="TYPE", help="Only it. Repeatable.")
@click.option("--deletes", is_flag=True, help="Also records that were deleted.")
@limit_option(100)
@json_option
def changes_command(
    cursor: str | None, doc_types: tuple[str, ...], deletes: bool, limit: int, as_json: bool
) -> None:
    """List created and updated records in the order of their last change.

    The last line names the cursor to go on from, now or later.
    """
    args: dict[str, Any] = {"cursor": cursor, "docTypes": list(doc_types) or None, "limit": limit}
    if deletes:
        args["includeDeletes"] = True
    data = call_tool("maad_changes_since", given(args))
    if wants_json(as_json):
        print_json(data)
        return
    columns = {"id": "docId", "type": "docType", "when": "updatedAt", "change": "operation"}
    print_list(data["changes"], columns, moments=("updatedAt",))
    if data["hasMore"]:
        click.echo(f"\nnext page: --cursor {data['nextCursor']}")
    elif data["resumeCursor"] is not None:
        click.echo(f"\nno more; what changes later: --cursor {data['resumeCursor']}")
