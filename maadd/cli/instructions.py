"""`maad instructions`: the managed guides of a project (spec 03 §6.5, §11)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import click

from maadd.cli.output import fail, json_option, print_json, wants_json, warn
from maadd.cli.tables import print_table
from maadd.cli.targets import project_and_settings, target_options
from maadd.protocol.errors import MaadError, MaadErrors


@click.group("instructions", invoke_without_command=True)
@target_options
@click.pass_context
def instructions_command(ctx: click.Context) -> None:
    """Check or refresh the guides that agents read: MAAD.md and _skills/."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@instructions_command.command("check")
@target_options
@json_option
def check_command(as_json: bool) -> int:
    """Compare the guides of the project with those of this version.

    Exit code 1 unless all are current.
    """
    root, _ = project_and_settings()
    from maadd.cli.project_folder import refuse_no_project
    from maadd_worker.disk.root import ProjectRoot
    from maadd_worker.instructions.files import InstructionFiles
    from maadd_worker.instructions.manifest import ENGINE

    try:
        refuse_no_project(root)
        with closing(ProjectRoot.open(root)) as folder:
            statuses = InstructionFiles(folder).statuses()
    except MaadError as failure:
        fail(failure)
    if wants_json(as_json):
        from msgspec import to_builtins

        print_json({"engineVersion": ENGINE, "files": to_builtins(statuses)})
    else:
        print_table(
            ("file", "state", "written by"),
            [
                (status.rel_path, status.error or status.state, status.stamped_engine or "")
                for status in statuses
            ],
        )
    return 0 if all(status.state == "current" for status in statuses) else 1


@instructions_command.command("refresh")
@target_options
@click.option("--apply", is_flag=True, help="Write; without it only say what would be written.")
@click.option("--force", is_flag=True, help="Also replace guides that were edited or are not ours.")
@json_option
def refresh_command(apply: bool, force: bool, as_json: bool) -> int:
    """Write guides that are outdated or missing, in a commit of their own."""
    root, settings = project_and_settings()
    from maadd.cli.oneshot import open_project

    args = {"action": "refresh", "dryRun": not apply, "force": force}
    try:
        with open_project(root, settings, warn=warn) as project:
            report = project.call("maad_instructions", args)
    except MaadErrors as failure:
        fail(failure)
    if wants_json(as_json):
        print_json(report)
    else:
        _print_refresh(report)
    return 0


def _print_refresh(report: Mapping[str, Any]) -> None:
    if report["dryRun"]:
        for status in report["refresh"]:
            click.echo(f"would write {status['relPath']} ({status['state']})")
    for path in report["written"]:
        click.echo(f"wrote {path}")
    for status in (*report["skippedModified"], *report["skippedUnmanaged"]):
        click.echo(f"kept {status['relPath']} ({status['state']}); --force replaces it")
    if not report["refresh"]:
        click.echo("nothing to write")
    elif report["dryRun"]:
        click.echo("nothing is written yet; add --apply")
    elif report["committed"]:
        click.echo("committed")
    elif "commitFailure" in report:
        warn(f"not committed yet: {report['commitFailure']['message']}")
