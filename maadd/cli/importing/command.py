"""`maad import`: existing Markdown and tables become records (spec 03 §11.8 for agents)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from maadd.cli.output import fail, json_option, print_json, wants_json, warn
from maadd.cli.targets import project_and_settings, target_options
from maadd.cli.texts import FILE_NAME
from maadd.protocol.errors import MaadError, MaadErrors

if TYPE_CHECKING:
    from maadd.cli.importing.run import Import
    from maadd.config.settings import Settings
    from maadd_worker.disk.root import ProjectRoot
    from maadd_worker.imports.plan import LinkMode

_HERE = "-"
"""The value of `--plan` without a file."""

_NOISE = ("REF_TARGET_MISSING", "ID_PREFIX_MISMATCH")
"""Advice of the tools that the import's own report gives with file and line."""


@click.command("import")
@target_options
@click.argument("source", metavar="DIR|FILE", type=FILE_NAME, required=False)
@click.option(
    "--plan",
    "plan_file",
    is_flag=False,
    flag_value=_HERE,
    metavar="[FILE]",
    type=FILE_NAME,
    help="Only show what would happen; with FILE, write the plan there to be edited.",
)
@click.option(
    "--with", "given", metavar="FILE", type=FILE_NAME, help="Follow the plan in this file."
)
@click.option(
    "--links",
    type=click.Choice(("keep", "refs", "mentions")),
    help="What becomes of links in bodies: nothing (keep), fields that list them (refs), or "
    "annotations in their place (mentions).",
)
@click.option("--update", is_flag=True, help="Take over what changed at the source since.")
@click.option("--keep-going", is_flag=True, help="Import the rest when something does not fit.")
@click.option("--replan", is_flag=True, help="Make a new plan, also where an import has begun.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def import_command(
    source: str | None,
    plan_file: str | None,
    given: str | None,
    links: LinkMode | None,
    update: bool,
    keep_going: bool,
    replan: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Turn a folder of Markdown, a CSV or a JSON Lines file into records.

    \b
    maad import DIR                    plan, ask, import
    maad import DIR --plan plan.yaml   write the plan, to be edited
    maad import DIR --with plan.yaml   import by it

    Types, fields and ids are taken from what the files have in common. Bodies stay as they are,
    byte for byte; the source is only read. Run again, it goes on where it was, and does nothing
    when everything is here. Exit code 1 when something was left out.
    """
    if source is None and plan_file not in (None, _HERE):
        # `--plan DIR`: the option has taken what was meant for the argument.
        source, plan_file = plan_file, _HERE
    if source is None:
        raise click.UsageError("name the folder or file to import")
    root, settings = project_and_settings()
    from maadd.cli.importing.plans import open_place, prepare_import, write_plan_file
    from maadd.cli.importing.report import plan_view, print_plan

    try:
        with open_place(root) as folder:
            with _progress("reading") as progress:
                one, notes, begun = prepare_import(
                    folder, settings, source, given=given, links=links, replan=replan,
                    progress=progress,
                )  # fmt: skip
            if not one.source.items and not one.source.misfits:
                warn(f"{source} holds nothing that can be imported")
            if plan_file is not None:
                if plan_file != _HERE:
                    write_plan_file(plan_file, one, notes)
                    warn_of_misfits(one)
                elif as_json:
                    print_json(plan_view(one, notes))
                elif not wants_json(as_json):
                    print_plan(one, notes)
                else:
                    write_plan_file(None, one, notes)
                return 0
            as_json = wants_json(as_json)
            if not begun and not (yes or as_json) and sys.stdin.isatty():
                print_plan(one, notes)
                what = "the rest" if one.prepared.misfits else "them"
                click.confirm(f"\nImport {what}?", abort=True)
                keep_going = True
            return _import(one, folder, settings, given is not None, update, keep_going, as_json)
    except (MaadError, MaadErrors) as failure:
        from maadd.cli.importing.faults import with_next_step

        fail(with_next_step(failure))


def warn_of_misfits(one: Import) -> None:
    """Say, beside a plan that was written, what does not fit into it."""
    for misfit in one.prepared.misfits:
        line = "" if misfit.line is None else f":{misfit.line}"
        warn(f"{misfit.source}{line}: {misfit.reason}; {misfit.advice}")


def _import(
    one: Import,
    folder: ProjectRoot,
    settings: Settings,
    given: bool,
    update: bool,
    keep_going: bool,
    as_json: bool,
) -> int:
    from maadd.cli.importing.model import write_types
    from maadd.cli.importing.plans import plan_of
    from maadd.cli.importing.report import print_refusal, print_result, result_view
    from maadd.cli.importing.run import (
        Result,
        carry_out,
        finish_interrupted,
        refuse_read_only,
        sort_out,
    )
    from maadd.cli.oneshot import open_project

    if one.ledger.intended():
        with open_project(folder.path, settings, warn=_warn) as project:
            finish_interrupted(one, project)
    result = Result()
    result.left_out.extend(one.prepared.misfits)
    work = sort_out(one, folder, result, update=update)
    if result.left_out and not keep_going:
        if as_json:
            print_json(result_view(one, result, []))
            warn("nothing was written; --keep-going imports the others")
        else:
            print_refusal(result.left_out)
        return 1
    files: list[str] = []
    if work.create or work.update:
        total = len(work.create) + len(work.update)
        with (
            open_project(folder.path, settings, warn=_warn) as project,
            _progress("importing") as progress,
        ):
            refuse_read_only(project)
            # The engine looks for changes of the model before it writes.
            files = write_types(one, folder, settings)
            try:
                carry_out(one, work, project, folder, result, lambda n: progress(n, total))
            except (MaadError, MaadErrors):
                warn(f"the import stopped: {result.created + result.updated} of {total} stored")
                raise
    elif given:
        one.ledger.keep_plan(plan_of(one, ()))
    if as_json:
        print_json(result_view(one, result, files))
    else:
        print_result(one, result)
    return 1 if result.left_out else 0


def _warn(text: str) -> None:
    if not text.startswith(_NOISE):
        warn(text)


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while a terminal waits; told what is done, of how many."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
