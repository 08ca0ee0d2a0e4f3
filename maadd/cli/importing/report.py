"""What people read of an import: the plan before it, the result after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click
from msgspec import to_builtins

from maadd.cli.importing.run import Import, Result
from maadd.cli.tables import counted, print_facts, print_heading, print_list, print_table
from maadd_worker.imports.prepare import Prepared
from maadd_worker.imports.source import Misfit, Source

_ROWS = 20


def type_counts(prepared: Prepared) -> Counter[str]:
    """Items by type."""
    return Counter(target.doc_type for target in prepared.assigned.records.values())


def print_plan(one: Import, notes: Sequence[str]) -> None:
    """The plan as tables: types, their fields, ids that collided, what will be left out."""
    counts = type_counts(one.prepared)
    first: dict[str, str] = {}
    for target in one.prepared.assigned.records.values():
        first.setdefault(target.doc_type, target.doc_id)
    print_facts(_source_facts(one.source, one.plan.links))
    print_heading("types")
    print_table(
        ("type", "records", "from", "folder", "ids from", "first id", "schema"),
        (
            (
                name,
                counts[name],
                ", ".join([*type_plan.folders, *type_plan.having]),
                f"{type_plan.path}/",
                type_plan.id_from,
                first.get(name),
                f"{type_plan.schema}{' (is there)' if type_plan.existing else ''}",
            )
            for name, type_plan in one.plan.types.items()
        ),
    )
    for name, type_plan in one.plan.types.items():
        if type_plan.fields:
            print_heading(f"fields of {name}")
            values = _fill(one.prepared, name)
            print_table(
                ("field", "type", "records", "required", "made from"),
                (
                    (
                        field,
                        _type_text(definition),
                        values[field],
                        "yes" if field in type_plan.required else None,
                        type_plan.derive.get(field),
                    )
                    for field, definition in type_plan.fields.items()
                ),
            )
    collisions = one.prepared.assigned.collisions
    if collisions:
        print_heading("ids that were taken")
        rows = [
            {"item": key, "first choice": wanted, "id": doc_id}
            for key, (wanted, doc_id) in collisions.items()
        ]
        print_list(rows[:_ROWS], {name: name for name in ("item", "first choice", "id")})
        _print_rest(rows)
    for note in notes:
        click.echo(f"note: {note}")
    _print_misfits("cannot be imported", one.prepared.misfits)
    _print_misfits("worth a look", one.prepared.notes)


def print_result(one: Import, result: Result) -> None:
    """What became of the import."""
    click.echo(
        f"{counted(result.created, 'record')} created, {result.updated} updated, "
        f"{result.unchanged + result.found} here already, {len(result.left_out)} left out"
    )
    if result.changed:
        click.echo(
            f"{counted(len(result.changed), 'item')} changed at the source since: "
            f"{_some(result.changed)}; --update takes over what was not edited here"
        )
    if result.remade:
        click.echo(
            f"{counted(len(result.remade), 'item')} would be made otherwise now, by the plan or "
            f"what else there is: {_some(result.remade)}; --update makes them anew where they "
            "were not edited here"
        )
    if result.gone:
        click.echo(f"gone from the source, their records stay: {_some(result.gone)}")
    if result.deleted:
        number = counted(len(result.deleted), "record")
        click.echo(f"{number} deleted here since, and not brought back: {_some(result.deleted)}")
    _print_passed_over(one.source)
    for message in result.commit_failures:
        click.echo(f"not committed yet: {message}")
    _print_misfits("left out", result.left_out)
    _print_misfits("worth a look", one.prepared.notes)


def result_view(one: Import, result: Result, model_files: Sequence[str]) -> dict[str, Any]:
    """The result for programs."""
    return {
        "source": one.source.path,
        "types": dict(type_counts(one.prepared)),
        "modelFiles": list(model_files),
        "created": result.created,
        "updated": result.updated,
        "unchanged": result.unchanged + result.found,
        "changedAtSource": result.changed,
        "madeOtherwise": result.remade,
        "goneFromSource": result.gone,
        "deletedHere": result.deleted,
        "collisions": {key: doc_id for key, (_, doc_id) in _collisions(one).items()},
        "leftOut": to_builtins(result.left_out),
        **_not_imported(one.source),
        "notes": to_builtins(one.prepared.notes),
        "commitFailures": result.commit_failures,
    }


def plan_view(one: Import, notes: Sequence[str]) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "plan": to_builtins(one.plan),
        "types": dict(type_counts(one.prepared)),
        "collisions": {key: doc_id for key, (_, doc_id) in _collisions(one).items()},
        "cannotBeImported": to_builtins(one.prepared.misfits),
        **_not_imported(one.source),
        "notes": [*notes, *to_builtins(one.prepared.notes)],
    }


def print_refusal(misfits: Sequence[Misfit]) -> None:
    """Why nothing was written."""
    _print_misfits("cannot be imported", misfits)
    click.echo(
        f"\nNothing was written: {counted(len(misfits), 'item')} cannot be imported. Correct them, "
        "name them under `leave_out` in the plan, or import the others with --keep-going."
    )


def _collisions(one: Import) -> Mapping[str, tuple[str, str]]:
    return one.prepared.assigned.collisions


def _source_facts(source: Source, links: str) -> dict[str, Any]:
    return {
        "source": source.path,
        "items": len(source.items),
        "links": links,
        "not Markdown": _others(source) or None,
        "not looked into": _some(source.passed_over) or None,
    }


def _not_imported(source: Source) -> dict[str, Any]:
    return {"notMarkdown": dict(source.others), "notLookedInto": list(source.passed_over)}


def _others(source: Source) -> str:
    return ", ".join(f"{number} {suffix}" for suffix, number in source.others.items())


def _print_passed_over(source: Source) -> None:
    if source.others:
        click.echo(f"not Markdown: {_others(source)}")
    if source.passed_over:
        click.echo(f"not looked into: {_some(source.passed_over)}")


def _fill(prepared: Prepared, doc_type: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in prepared.records:
        if record.doc_type == doc_type:
            counts.update(name for name, value in record.fields.items() if value is not None)
    return counts


def _type_text(definition: Mapping[str, Any]) -> str:
    kind = str(definition.get("type"))
    if kind == "list":
        kind = f"list of {definition.get('item_type', 'string')}"
    if target := definition.get("target"):
        return f"{kind} {target}"
    if values := definition.get("values"):
        return f"{kind}: {', '.join(map(str, values))}"
    if precision := definition.get("store_precision"):
        return f"{kind}, {precision}"
    return kind


def _print_misfits(title: str, misfits: Sequence[Misfit]) -> None:
    if not misfits:
        return
    print_heading(title)
    rows = [
        {
            "where": one.source if one.line is None else f"{one.source}:{one.line}",
            "reason": one.reason,
            "advice": one.advice,
        }
        for one in misfits
    ]
    for row in rows[:_ROWS]:
        click.echo(f"{row['where']}: {row['reason']}; {row['advice']}")
    _print_rest(rows)


def _print_rest(rows: Sequence[object]) -> None:
    if len(rows) > _ROWS:
        click.echo(f"and {len(rows) - _ROWS} more; --json lists all")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _ROWS
    return ", ".join(names[:_ROWS]) + (f" and {more} more" if more > 0 else "")
