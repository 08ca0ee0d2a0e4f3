"""`maad aggregate` and `maad join`: many records in one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import click

from maadd.cli.fields import parse_filters
from maadd.cli.options import (
    comma_list,
    filter_option,
    limit_option,
    offset_option,
    sort_arguments,
    sort_options,
)
from maadd.cli.output import json_option, print_json, wants_json
from maadd.cli.tables import counted, print_page_end, print_table
from maadd.cli.targets import target_options
from maadd.cli.toolcall import call_tool, given
from maadd.protocol.arguments.read import BoundOp, MetricOp

_METRICS = get_args(MetricOp)
_BOUNDS = get_args(BoundOp)


@click.command("aggregate")
@target_options
@click.argument("group_by", metavar="FIELD...", nargs=-1, required=True)
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@click.option("--metric", metavar="OP:FIELD", help=f"One of {', '.join(_METRICS)}, of a field.")
@filter_option
@click.option("--having", metavar="OP:N", help="Bound of metric or count, for example gte:3.")
@click.option("--by", type=click.Choice(("metric", "count", "value")), help="Order of the groups.")
@click.option("--order", type=click.Choice(("asc", "desc")), help="Default: desc, values asc.")
@limit_option(50)
@json_option
def aggregate_command(
    group_by: tuple[str, ...],
    doc_type: str | None,
    metric: str | None,
    filters: tuple[str, ...],
    having: str | None,
    by: str | None,
    order: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Count records in groups by an indexed field, or measure a second field.

    \b
    maad aggregate status --type work_order
    maad aggregate 'asset->site' --type work_order --metric sum:cost
    maad aggregate opened_at::month status --type work_order
    """
    args = given(
        {
            "groupBy": group_by[0] if len(group_by) == 1 else list(group_by),
            "docType": doc_type,
            "metric": None if metric is None else _metric(metric),
            "filters": parse_filters(filters) or None,
            "having": None if having is None else _having(having),
            "orderBy": by,
            "order": order,
            "limit": limit,
        }
    )
    data = call_tool("maad_aggregate", args)
    if wants_json(as_json):
        print_json(data)
    else:
        _print_groups(data, group_by, metric)


@click.command("join")
@target_options
@click.argument("doc_type", metavar="TYPE")
@click.argument("refs", metavar="REF...", nargs=-1, required=True)
@click.option("--fields", metavar="LIST", help="Indexed fields of TYPE, with commas between.")
@click.option(
    "--ref-fields",
    "ref_fields",
    multiple=True,
    metavar="REF=LIST",
    help="Indexed fields of what REF refers to. Repeatable.",
)
@filter_option
@sort_options
@limit_option(50)
@offset_option
@json_option
def join_command(
    doc_type: str,
    refs: tuple[str, ...],
    fields: str | None,
    ref_fields: tuple[str, ...],
    filters: tuple[str, ...],
    sort: str | None,
    order: str,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the records of a type together with those that their REF fields name.

    \b
    maad join work_order asset --fields title,status --ref-fields asset=name,site
    """
    of_refs = {}
    for given_text in ref_fields:
        name, equals, names = given_text.partition("=")
        if not equals or name not in refs:
            raise click.BadParameter(
                f"{given_text!r} is not of the form REF=LIST with one of the REFs",
                param_hint="--ref-fields",
            )
        of_refs[name] = comma_list(names)
    args = given(
        {
            "docType": doc_type,
            "refs": list(refs),
            "fields": comma_list(fields) or None,
            "refFields": of_refs or None,
            "filters": parse_filters(filters) or None,
            "limit": limit,
            "offset": offset,
        }
    )
    data = call_tool("maad_join", args | sort_arguments(sort, order))
    if wants_json(as_json):
        print_json(data)
    else:
        _print_joined(data, comma_list(fields), refs, of_refs, offset)


def _metric(text: str) -> dict[str, str]:
    op, _, field = text.partition(":")
    if op not in _METRICS or not (field or op == "count"):
        raise click.BadParameter(
            f"{text!r} is not of the form OP:FIELD with one of {', '.join(_METRICS)}",
            param_hint="--metric",
        )
    return {"op": op, "field": field}


def _having(text: str) -> dict[str, Any]:
    op, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if op in _BOUNDS and math.isfinite(value):
        return {"op": op, "value": int(value) if value.is_integer() else value}
    raise click.BadParameter(
        f"{text!r} is not of the form OP:N with one of {', '.join(_BOUNDS)}", param_hint="--having"
    )


def _print_groups(data: Mapping[str, Any], group_by: Sequence[str], metric: str | None) -> None:
    groups = data["groups"]
    if not groups:
        click.echo("none")
    else:
        print_table(
            (*group_by, "count", *(() if metric is None else (metric,))),
            (
                [
                    *(group.get("values") or [group["value"]]),
                    group["count"],
                    *(() if metric is None else (group.get("metric"),)),
                ]
                for group in groups
            ),
        )
        total = f"; {metric}: {data['totalMetric']:g}" if "totalMetric" in data else ""
        records = counted(data["total"], "record")
        click.echo(f"\n{records} in {counted(len(groups), 'group')}{total}")
    if data.get("missing"):
        click.echo(f"{counted(data['missing'], 'record')} without a value to group by")
    if data.get("groupCount", 0) > len(groups):
        click.echo(f"of {data['groupCount']} groups; more: --limit {data['groupCount']}")


def _print_joined(
    data: Mapping[str, Any],
    fields: Sequence[str],
    refs: Sequence[str],
    ref_fields: Mapping[str, Sequence[str]],
    offset: int,
) -> None:
    columns = ["id", *fields]
    for ref in refs:
        columns += [ref, *(f"{ref}.{name}" for name in ref_fields.get(ref, ()))]
    rows = data["results"]
    if rows:
        print_table(columns, (_joined_row(row, fields, refs, ref_fields) for row in rows))
    print_page_end(offset, len(rows), data["total"])


def _joined_row(
    row: Mapping[str, Any],
    fields: Sequence[str],
    refs: Sequence[str],
    ref_fields: Mapping[str, Sequence[str]],
) -> list[Any]:
    cells: list[Any] = [row["docId"], *(row["fields"].get(name) for name in fields)]
    for ref in refs:
        found = row["refs"].get(ref)
        targets = found if isinstance(found, list) else [] if found is None else [found]
        cells.append([_target(target) for target in targets])
        for name in ref_fields.get(ref, ()):
            values = [target["fields"].get(name) for target in targets]
            cells.append([value for value in values if value is not None])
    return cells


def _target(target: Mapping[str, Any]) -> str:
    state = " (no such record)" if target.get("state") == "missing" else ""
    return f"{target['docId']}{state}"
