"""`maad doctor`: looks at everything that a server needs, changes nothing (spec 04 §19, ours)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from maadd.cli.output import json_option, print_json, wants_json
from maadd.cli.tables import counted
from maadd.cli.targets import given_targets, target_options

if TYPE_CHECKING:
    from maadd.cli.doctor.check import Group
    from maadd.config.settings import Settings
    from maadd.protocol.messages import HistorySettings
    from maadd_worker.disk.root import ProjectRoot

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command("doctor")
@target_options
@json_option
def doctor_command(as_json: bool) -> int:
    """Check the installation and a project, or all projects of an instance, and say what to do.

    Only looks, also while a server is at work. Exit code 1 when there is a problem.
    """
    groups = list(_groups())
    counts = Counter[str](check.state for group in groups for check in group.checks)
    if wants_json(as_json):
        from msgspec import to_builtins

        states = {state: counts[state] for state in _COLOURS}
        print_json({"ok": not counts["problem"], "counts": states, "groups": to_builtins(groups)})
    else:
        _print(groups)
        click.echo(
            f"\n{counts['ok']} ok, {counted(counts['warning'], 'warning')}, "
            f"{counted(counts['problem'], 'problem')}"
        )
    return 1 if counts["problem"] else 0


def _groups() -> Iterator[Group]:
    from maadd.cli.doctor import environment, installation, runtime, semantic
    from maadd.cli.doctor.check import run_group

    targets = given_targets()
    yield run_group("installation", installation.checks)
    yield run_group("settings", lambda: environment.checks(os.environ))
    # Bad values were told above; the rest is looked at with their defaults.
    settings = _settings(targets)
    embedding = settings.worker().embedding
    yield run_group("semantic search", lambda: semantic.checks(embedding))
    instance_file = targets["instance"] or (None if targets["project"] else settings.instance)
    if instance_file:
        yield from _instance_groups(str(instance_file), settings)
        return
    project = targets["project"] or settings.project
    root = os.path.abspath(str(project or os.getcwd()))
    yield run_group("runtime", lambda: runtime.checks(root, os.environ))
    yield from _project_groups(root, settings, "project", named=project is not None)


def _settings(targets: dict[str, object]) -> Settings:
    from maadd.config.settings import Settings, load_settings
    from maadd.protocol.errors import MaadErrors

    try:
        return load_settings(os.environ, targets, lenient=True)[0]
    except MaadErrors:
        return Settings()


def _instance_groups(path: str, settings: Settings) -> Iterator[Group]:
    from maadd.cli.doctor import instance, runtime
    from maadd.cli.doctor.check import Group, run_group

    found, checks = instance.look(path, settings)
    yield Group("instance", tuple(checks))
    yield run_group("runtime", lambda: runtime.checks(path, os.environ))
    if found is None:
        return
    yield run_group("tokens", lambda: instance.token_checks(found, settings))
    for name, project in found.projects.items():
        yield from _project_groups(project.path, settings, name, history=project.history)


def _project_groups(
    root: str,
    settings: Settings,
    name: str,
    *,
    history: HistorySettings | None = None,
    named: bool = True,
) -> Iterator[Group]:
    """The groups of one project; `history` is its policy where an instance says so."""
    from maadd.cli.doctor import records
    from maadd.cli.doctor.check import Check, Group

    folder = records.folder_of(root, named=named)
    if isinstance(folder, Check):
        yield Group(name, (folder,))
        return
    with closing(folder):
        history = history or _history(root, settings)
        yield from _open_project_groups(folder, settings, name, history)


def _open_project_groups(
    folder: ProjectRoot, settings: Settings, name: str, history: HistorySettings
) -> Iterator[Group]:
    from maadd.cli.doctor import disk, git, locks, records, watching
    from maadd.cli.doctor.check import Group, run_group

    root = folder.path
    owned = locks.is_owned(root)
    model, checks = records.look(folder)
    paths = [] if model is None else [entry.path for entry in model.registry.types.values()]
    yield Group(f"{name}: model", tuple(checks))
    yield run_group(f"{name}: locks", lambda: locks.checks(root))
    yield run_group(f"{name}: disk", lambda: disk.checks(root, paths))
    if model is not None:
        yield run_group(f"{name}: watching", lambda: watching.checks(folder, model, settings.watch))
    yield run_group(f"{name}: index", lambda: records.index_checks(folder, model, owned=owned))
    yield run_group(f"{name}: journal", lambda: records.journal_checks(root, owned=owned))
    author = (settings.commit_author_name, settings.commit_author_email)
    yield run_group(f"{name}: history", lambda: git.checks(root, history, author, paths))


def _history(root: str, settings: Settings) -> HistorySettings:
    """The history policy that single-project mode gives the project."""
    from maadd.config.instance import synthesize_instance
    from maadd.protocol.errors import MaadErrors
    from maadd.protocol.messages import HistorySettings
    from maadd.protocol.roles import Role

    try:
        instance = synthesize_instance(root, Role.ADMIN, settings)
    except MaadErrors:
        # Only a mode that needs a repository is refused, for want of one.
        mode = settings.history_mode_default or "audit"
        return HistorySettings(mode, None, "environment", external_edits=settings.external_edits)
    return instance.projects["default"].history


def _print(groups: list[Group]) -> None:
    width = max(len(check.name) for group in groups for check in group.checks)
    for group in groups:
        click.echo()
        click.echo(click.style(group.title, bold=True))
        for check in group.checks:
            state = click.style(f"{check.state:<7}", fg=_COLOURS[check.state])
            click.echo(f"  {state}  {check.name:<{width}}  {check.text}")
            if check.advice is not None:
                click.echo(f"  {'':<7}  {'':<{width}}  -> {check.advice}")
