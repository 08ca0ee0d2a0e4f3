"""`maad verify` and `maad orphans`: whether a claim, or the whole project, holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import click

from maadd.cli.fields import parse_filters, plain_value
from maadd.cli.options import filter_option
from maadd.cli.output import json_option, print_json, wants_json
from maadd.cli.tables import cell_text, counted, print_facts, print_list, print_table
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given
from maadd.protocol.arguments.read import IntegrityCategory

_CATEGORIES = get_args(IntegrityCategory)


@click.group("verify", invoke_without_command=True)
@target_options
@click.pass_context
def verify_command(ctx: click.Context) -> None:
    """Check a claim before it is stated, or the project for drift.

    Exit code 1 when the claim does not hold, or something is wrong.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@verify_command.command("field")
@target_options
@click.argument("doc_id", metavar="ID")
@click.argument("field", metavar="FIELD")
@click.argument("text", metavar="[VALUE]", required=False)
@click.option("--json-value", metavar="JSON", help="A typed value, for example 41 or null.")
@json_option
def field_command(
    doc_id: str, field: str, text: str | None, json_value: str | None, as_json: bool
) -> int:
    """Check that FIELD of a record is VALUE; [a,b] is a list."""
    if (text is None) == (json_value is None):
        raise click.UsageError("give either VALUE or --json-value")
    expected = plain_value(text) if text is not None else _json(json_value or "")
    args = {"mode": "field", "docId": doc_id, "field": field, "expected": expected}
    data = call_tool("maad_verify", args)
    if wants_json(as_json):
        print_json(data)
    elif not data["source"]["filePath"]:
        click.echo(f"not grounded: there is no record with the id {doc_id!r}")
    else:
        _print_claim(data, f"{field} of {doc_id}", data["source"]["filePath"])
    return 0 if data["grounded"] else 1


@verify_command.command("count")
@target_options
@click.argument("doc_type", metavar="TYPE")
@click.argument("number", metavar="N", type=click.IntRange(min=0))
@filter_option
@json_option
def count_command(doc_type: str, number: int, filters: tuple[str, ...], as_json: bool) -> int:
    """Check that N records of a type match the filters."""
    args = {
        "mode": "count",
        "docType": doc_type,
        "expectedCount": number,
        "filters": parse_filters(filters) or None,
    }
    data = call_tool("maad_verify", given(args))
    if wants_json(as_json):
        print_json(data)
    else:
        _print_claim(data, f"the number of {doc_type} records", None)
    return 0 if data["grounded"] else 1


@verify_command.command("integrity")
@target_options
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@click.option("--doc", "doc_id", metavar="ID", help="This record only.")
@filter_option
@click.option(
    "--category",
    "categories",
    type=click.Choice(_CATEGORIES),
    multiple=True,
    help="Look for this only. Repeatable.",
)
@click.option("--verbose", is_flag=True, help="In JSON, too, list each finding.")
@json_option
def integrity_command(
    doc_type: str | None,
    doc_id: str | None,
    filters: tuple[str, ...],
    categories: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> int:
    """Compare the files, the index and the references with one another."""
    for_program = wants_json(as_json)
    args = given(
        {
            "mode": "integrity",
            "docType": doc_type,
            "docId": doc_id,
            "filters": parse_filters(filters) or None,
            "categories": list(categories) or None,
            "verbose": verbose or not for_program,
        }
    )
    data = call_tool("maad_verify", args)
    if for_program:
        print_json(data)
    else:
        _print_sweep(data)
    return _sweep_exit_code(data)


@click.command("orphans")
@target_options
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@click.option("--doc", "doc_id", metavar="ID", help="This record only.")
@filter_option
@json_option
def orphans_command(
    doc_type: str | None, doc_id: str | None, filters: tuple[str, ...], as_json: bool
) -> int:
    """List the records that refer to records which do not exist.

    Exit code 1 when there are any.
    """
    args = {"docType": doc_type, "docId": doc_id, "filters": parse_filters(filters) or None}
    data = call_tool("maad_find_orphans", given(args))
    if wants_json(as_json):
        print_json(data)
    else:
        _print_orphans(data)
    return _sweep_exit_code(data)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"no JSON: {error}", param_hint="--json-value") from None


def _print_claim(data: Mapping[str, Any], what: str, where: str | None) -> None:
    place = f" ({where})" if where else ""
    actual = cell_text(data["actual"]) or "empty"
    if data["grounded"]:
        click.echo(f"grounded: {what} is {actual}{place}")
    else:
        expected = cell_text(data["expected"]) or "empty"
        click.echo(f"not grounded: {what} is {actual}, not {expected}{place}")


def _print_sweep(data: Mapping[str, Any]) -> None:
    print_facts(
        {"files": data["scanned"], "healthy": data["healthy"]}
        | {name: number for name, number in data["findings"].items() if number}
    )
    details = data.get("details") or ()
    if details:
        click.echo()
        columns = {
            "id": "docId",
            "type": "docType",
            "finding": "finding",
            "expected": "expected",
            "actual": "actual",
        }
        print_list(details, columns)
    _print_cut(data, details)


def _print_orphans(data: Mapping[str, Any]) -> None:
    details = data["details"]
    rows = [
        (one["docId"], one["docType"], field, ids, one.get("deletedTargets", {}).get(field))
        for one in details
        for field, ids in one["actual"].items()
    ]
    if rows:
        print_table(("id", "type", "field", "refers to", "of these deleted"), rows)
        orphans = counted(data["findings"]["broken_refs"], "record")
        click.echo(f"\n{orphans} of {counted(data['scanned'], 'file')}")
    else:
        click.echo("none")
    _print_cut(data, details)


def _print_cut(data: Mapping[str, Any], details: Sequence[object]) -> None:
    if data.get("detailsTruncated"):
        click.echo(f"\nthe first {len(details)} findings; narrow them with --type or --filter")


def _sweep_exit_code(data: Mapping[str, Any]) -> int:
    return 1 if any(data["findings"].values()) else 0
