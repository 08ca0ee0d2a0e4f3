"""`maad validate` and `maad reindex`: the state of a whole project."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from maadd.cli.output import fail, json_option, print_json, wants_json, warn
from maadd.cli.targets import project_and_settings, target_options
from maadd.cli.toolcall import given
from maadd.protocol.errors import MaadError, MaadErrors

if TYPE_CHECKING:
    from maadd.cli.control_client import OnProgress
    from maadd.cli.oneshot import OneShot
    from maadd.protocol.messages import CallProgress


@click.command("validate")
@target_options
@click.argument("doc_id", metavar="[ID]", required=False)
@click.option("--precision", is_flag=True, help="Also dates of another precision than declared.")
@click.option("--constraints", is_flag=True, help="Also texts too long, or with line breaks.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Records a page.")
@click.option("--cursor", metavar="TEXT", help="The nextCursor of the page before.")
@json_option
def validate_command(
    doc_id: str | None,
    precision: bool,
    constraints: bool,
    limit: int | None,
    cursor: str | None,
    as_json: bool,
) -> int:
    """Check stored records against the schemas of today.

    Exit code 1 when a record is invalid, or a file is none.
    """
    root, settings = project_and_settings()
    from maadd.cli.oneshot import open_project

    args = {
        "docId": doc_id,
        "includePrecision": precision or None,
        "includeConstraints": constraints or None,
        "limit": limit,
        "cursor": cursor,
    }
    try:
        with _progress() as report_to, open_project(root, settings, warn=warn) as project:
            unreadable = _brought_up_to_date(project, report_to)
            report = project.call("maad_validate", given(args))
    except MaadErrors as failure:
        fail(failure)
    if doc_id is not None:
        unreadable = []
    if unreadable:
        report["notIndexed"] = unreadable
    if wants_json(as_json):
        print_json(report)
    else:
        _print_validation(report, unreadable)
    return 1 if report["invalid"] or unreadable else 0


def _brought_up_to_date(project: OneShot, report_to: OnProgress | None) -> list[dict[str, Any]]:
    """The files that cannot be indexed, after a pass over all; a project that is only read stays
    as it is."""
    try:
        report = project.call("maad_reindex", {}, on_progress=report_to)
    except MaadErrors as failure:
        if failure.errors[0].code != "PROJECT_READ_ONLY":
            raise
        warn("the project is only read: changes of files that the index does not know are left out")
        return []
    unreadable: list[dict[str, Any]] = report["errors"]
    return unreadable


@click.command("reindex")
@target_options
@click.option("--force", is_flag=True, help="Read every file, changed or not.")
@click.option("--prune", is_flag=True, help="Also drop rows under folders that are empty or gone.")
@click.option("--yes", is_flag=True, help="With --prune: do not ask.")
@click.option("--embeddings", is_flag=True, help="Also rebuild the semantic index.")
@click.option("--doc", "doc_id", metavar="ID", help="This record only.")
@click.option("--type", "doc_type", metavar="TYPE", help="Records of this type only.")
@click.option("--path", metavar="PATH", help="This file or folder of the project only.")
@json_option
def reindex_command(
    force: bool,
    prune: bool,
    yes: bool,
    embeddings: bool,
    doc_id: str | None,
    doc_type: str | None,
    path: str | None,
    as_json: bool,
) -> int:
    """Bring the index up to date with the files, and SCHEMA.md with the index.

    Exit code 1 when a file could not be indexed.
    """
    root, settings = project_and_settings()
    from maadd.cli.oneshot import open_project

    args: dict[str, Any] = {"force": force, "embeddings": embeddings}
    args |= given({"docId": doc_id, "docType": doc_type, "path": path})
    if prune:
        args |= {"prune": True, "confirm": yes}
    try:
        # The warnings stand in the report.
        with open_project(root, settings, warn=lambda _text: None) as project:
            with _progress() as report_to:
                report = project.call("maad_reindex", args, on_progress=report_to)
            would = report.get("wouldPrune", {"count": 0, "ids": []})
            if would["count"] and _may_prune(would):
                with _progress() as report_to:
                    report = project.call(
                        "maad_reindex", args | {"confirm": True}, on_progress=report_to
                    )
            page = _write_page(root, project)
            guides = project.call("maad_instructions", {})["files"]
    except MaadErrors as failure:
        fail(failure)
    if page is not None:
        warn(page)
    if stale := [one["relPath"] for one in guides if one["state"] in ("outdated", "missing")]:
        warn(f"not current: {', '.join(stale)}; `maad instructions refresh --apply` writes them")
    if wants_json(as_json):
        print_json(report)
    else:
        _print_reindex(report)
    return 1 if report["errors"] else 0


def _write_page(root: str, project: OneShot) -> str | None:
    """`SCHEMA.md`; why it could not be written, which is no failure of the index."""
    from contextlib import closing

    from maadd.cli.schema_page import write_schema_page
    from maadd_worker.disk.root import ProjectRoot
    from maadd_worker.schema.model import load_model

    types = project.call("maad_describe", {})["registryTypes"]
    counts = {row["type"]: row["docCount"] for row in types}
    with closing(ProjectRoot.open(root)) as folder:
        try:
            write_schema_page(folder, load_model(folder), counts)
        except MaadError as failure:
            return failure.message
    return None


def _may_prune(would: dict[str, Any]) -> bool:
    """Show what would go, and ask; without a terminal there is nobody to ask."""
    click.echo(f"{would['count']} rows have no file any more:", err=True)
    for doc_id in would["ids"]:
        click.echo(f"  {doc_id}", err=True)
    if not sys.stdin.isatty():
        click.echo("nothing was removed; add --yes to remove them", err=True)
        return False
    return click.confirm("Remove them from the index?", err=True)


@contextlib.contextmanager
def _progress() -> Iterator[OnProgress | None]:
    """A bar that moves while a terminal waits, on standard error, and what tells it more."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("indexing", total=None)

        def tell(progress: CallProgress) -> None:
            text = progress.text or f"{progress.done:.0f} files"
            bar.update(task, description=text, completed=progress.done, total=progress.total)

        yield tell


def _print_validation(report: dict[str, Any], unreadable: list[dict[str, Any]]) -> None:
    click.echo(f"{report['total']} records: {report['valid']} valid, {report['invalid']} invalid")
    for record in report["errors"]:
        click.echo(f"\n{record['docId']}")
        for error in record["errors"]:
            click.echo(f"  {error['field'] or '-'}: {error['message']}")
    for drift in report.get("precisionDrift", ()):
        click.echo(
            f"\n{drift['docId']}\n  {drift['field']}: to the {drift['actual']}, "
            f"{drift['direction']} than to the {drift['declared']}"
        )
    for found in report.get("constraintViolations", ()):
        limit = "" if found["limit"] is None else f" ({found['actual']} of {found['limit']})"
        click.echo(f"\n{found['docId']}\n  {found['field']}: {found['code']}{limit}")
    if report.get("nextCursor") is not None:
        click.echo(f"\nnext page: --cursor {report['nextCursor']}")
    _print_file_errors(unreadable)


def _print_reindex(report: dict[str, Any]) -> None:
    click.echo(
        f"{report['scanned']} files: {report['indexed']} indexed, {report['skipped']} unchanged, "
        f"{len(report['errors'])} failed"
    )
    if report.get("rebuiltTypes"):
        click.echo(f"rebuilt types: {', '.join(report['rebuiltTypes'])}")
    if report.get("partial"):
        click.echo(f"indexed in part, too many annotations: {report['partial']}")
    if report.get("pruned"):
        click.echo(f"removed, file gone: {report['pruned']}")
    for warning in report.get("warnings", ()):
        click.echo(f"warning: {warning}")
    _print_file_errors(report["errors"])


def _print_file_errors(errors: list[dict[str, Any]]) -> None:
    for error in errors:
        where = error.get("location")
        place = f"{where['file']}:{where['line']}:{where['col']}: " if where else ""
        click.echo(f"\n{place}{error['code']}: {error['message']}")
