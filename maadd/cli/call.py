"""`maad call`: any tool of a project, with arguments in JSON."""

from __future__ import annotations

import json
import sys

import click

from maadd.cli.output import accept_json, print_json
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool


@click.command("call")
@target_options
@click.argument("tool", metavar="TOOL")
@click.argument("arguments", metavar="[JSON]", default="{}")
@accept_json
def call_command(tool: str, arguments: str) -> None:
    """Call any tool of the project and print its data; `-` reads the JSON from standard input.

    \b
    maad call maad_query '{"docType": "sighting", "depth": "cold", "limit": 3}'
    maad call maad_health
    maad call maad_bulk_create - < records.json
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
        args = json.loads(sys.stdin.buffer.read() if arguments == "-" else arguments)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"the arguments are not JSON: {error}") from error
    if not isinstance(args, dict):
        raise click.UsageError('the arguments are an object, such as \'{"docId": "x"}\'')
    print_json(call_tool(tool, args))
