"""`maad semantic-search`: records by what their bodies say."""

from __future__ import annotations

from typing import Any

import click

from maadd.cli.fields import parse_filters
from maadd.cli.options import filter_option, limit_option
from maadd.cli.output import json_option, print_json, wants_json
from maadd.cli.tables import print_list
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given

_WHY_LESS = {
    "no_vector_provider": "there is no embedding provider; these are the records with the words",
    "embed_failed": "the embedding provider failed; these are the records with the words",
    "vec_search_failed": "vectors could not be compared; these are the records with the words",
    "scope_truncated": "nearer texts out of scope may have crowded some out",
}


@click.command("semantic-search")
@target_options
@click.argument("query", metavar="QUERY")
@click.option(
    "--mode",
    type=click.Choice(("exact", "semantic", "hybrid")),
    default="exact",
    show_default=True,
    help="By words, by meaning, or both.",
)
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@filter_option
@limit_option(10)
@click.option("--no-snippet", is_flag=True, help="Without the text that was found.")
@json_option
def semantic_search_command(
    query: str,
    mode: str,
    doc_type: str | None,
    filters: tuple[str, ...],
    limit: int,
    no_snippet: bool,
    as_json: bool,
) -> None:
    """Find records by what their bodies say, best first.

    Needs MAAD_SEMANTIC_ENABLE=1; meaning needs MAAD_EMBED_PROVIDER too.

    \b
    maad semantic-search 'charged twice' --type incident
    maad semantic-search 'payments fail at night' --mode hybrid
    """
    args: dict[str, Any] = {
        "query": query,
        "mode": mode,
        "docType": doc_type,
        "filters": parse_filters(filters) or None,
        "k": limit,
        "snippet": False if no_snippet else None,
    }
    data = call_tool("maad_semantic_search", given(args))
    if wants_json(as_json):
        print_json(data)
        return
    results = data["results"]
    columns = {"id": "docId", "type": "docType", "block": "heading"}
    if not no_snippet:
        columns["text"] = "snippet"
        results = [hit | {"snippet": " ".join(hit["snippet"].split())} for hit in results]
    print_list(results, columns)
    if "degraded" in data:
        click.echo(f"\n{_WHY_LESS[data['degraded']]}")
