"""`maad related` and `maad relationship-paths`: how records refer to one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from maadd.cli.output import json_option, print_json, wants_json, warn
from maadd.cli.tables import RELATED_COLUMNS, cell_text, print_list
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given

_DIRECTIONS = click.Choice(("outgoing", "incoming", "both"))


@click.command("related")
@target_options
@click.argument("doc_id", metavar="ID")
@click.argument("direction", type=_DIRECTIONS, default="both")
@json_option
def related_command(doc_id: str, direction: str, as_json: bool) -> None:
    """Show what a record refers to, and what refers to it."""
    data = call_tool("maad_related", {"docId": doc_id, "direction": direction})
    rows = [
        {"direction": side} | link
        for side in ("outgoing", "incoming")
        for link in data.get(side) or ()
    ]
    if not rows:
        _warn_unless_known(doc_id)
    if wants_json(as_json):
        print_json(data)
        return
    print_list(rows, RELATED_COLUMNS)
    if data.get("truncated"):
        click.echo("\nthe first of each side; a query with a filter finds the others")


def _warn_unless_known(doc_id: str) -> None:
    """To the tool an id that no record has is one without neighbours (spec 02 §4.4)."""
    claim = {"mode": "field", "docId": doc_id, "field": "doc_id", "expected": doc_id}
    if not call_tool("maad_verify", claim)["source"]["filePath"]:
        warn(f"there is no record with the id {doc_id!r}")


@click.command("relationship-paths")
@target_options
@click.argument("start", metavar="START")
@click.argument("target", metavar="[TARGET]", required=False)
@click.option("--direction", type=_DIRECTIONS, default="outgoing", show_default=True)
@click.option("--max-depth", type=click.IntRange(1, 4), default=2, show_default=True)
@click.option("--max-nodes", type=click.IntRange(1, 100), default=50, show_default=True)
@click.option("--max-edges", type=click.IntRange(1, 200), default=100, show_default=True)
@click.option("--max-paths", type=click.IntRange(1, 50), default=25, show_default=True)
@click.option("--field", "labels", multiple=True, metavar="NAME", help="Only it. Repeatable.")
@click.option("--mentions", is_flag=True, help="Also follow annotations in the text.")
@json_option
def relationship_paths_command(
    start: str,
    target: str | None,
    direction: str,
    max_depth: int,
    max_nodes: int,
    max_edges: int,
    max_paths: int,
    labels: tuple[str, ...],
    mentions: bool,
    as_json: bool,
) -> None:
    """Show the ways from one record to others, or to TARGET.

    \b
    maad relationship-paths wo-7 --max-depth 3
    maad relationship-paths wo-7 ven-2 --direction both
    """
    args = given(
        {
            "startDocId": start,
            "targetDocId": target,
            "direction": direction,
            "maxDepth": max_depth,
            "maxNodes": max_nodes,
            "maxEdges": max_edges,
            "maxPaths": max_paths,
            "fieldLabels": list(labels) or None,
            "extractionKinds": ["ref", "mention"] if mentions else None,
        }
    )
    data = call_tool("maad_relationship_paths", args)
    if wants_json(as_json):
        print_json(data)
    else:
        _print_paths(data)


def _print_paths(data: Mapping[str, Any]) -> None:
    edges = {edge["edgeId"]: edge for edge in data["edges"]}
    missing = {node["docId"] for node in data["nodes"] if node["state"] == "missing"}
    for path in data["paths"]:
        shown = [cell_text(path["nodeIds"][0])]
        steps = zip(path["nodeIds"], path["edgeIds"], path["nodeIds"][1:], strict=False)
        for node, edge_id, neighbour in steps:
            edge = edges[edge_id]
            label = cell_text(edge["fieldLabel"])
            arrow = f"-{label}->" if edge["sourceDocId"] == node else f"<-{label}-"
            shown += [arrow, cell_text(neighbour)]
        if path["nodeIds"][-1] in missing:
            shown.append("(no such record)")
        click.echo(" ".join(shown))
    if not data["paths"]:
        click.echo("none")
    reached = data["truncation"]["limitsReached"]
    if reached:
        flags = ", ".join(f"--{name[:3]}-{name[3:].lower()}" for name in reached)
        click.echo(f"\nthere may be more; raise {flags}")
