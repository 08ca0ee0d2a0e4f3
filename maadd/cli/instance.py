"""`maad instance`: the running server of an instance, through its control socket (spec 04 §19)."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import TYPE_CHECKING

import click

from maadd.cli.output import (
    accept_json,
    fail,
    json_option,
    print_json,
    wants_json,
    warn,
)
from maadd.cli.tables import print_table
from maadd.cli.targets import command_settings, target_options
from maadd.protocol.errors import MaadError, MaadErrors

if TYPE_CHECKING:
    from maadd.cli.control_client import Unreachable
    from maadd.config.settings import Settings
    from maadd.protocol.control import StatusReport


@click.group("instance", invoke_without_command=True)
@target_options
@click.pass_context
def instance_command(ctx: click.Context) -> None:
    """Look at the running server of an instance, or have it reload its configuration."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@instance_command.command("reload")
@target_options
@accept_json
def reload_command() -> int:
    """Have the running server read the instance file and the token registry again, and wait.

    Prints what changed. Exit code 1 when the reload is refused, and then nothing has changed, when
    the token registry is, whose tokens then stay as they were, or when no server runs.
    """
    from maadd.cli.control_client import ControlConnection, Unreachable
    from maadd.protocol.control import Reload, Reloaded

    endpoint, _ = _find_server("INSTANCE_RELOAD_FAILED")
    try:
        with closing(ControlConnection(endpoint)) as connection:
            answer = connection.ask(Reload(), wait_s=None)
    except Unreachable as failure:
        reason = f"the server ended meanwhile: {failure.reason}"
        fail(MaadError("INSTANCE_RELOAD_FAILED", reason))
    except MaadErrors as failure:
        fail(failure)
    assert isinstance(answer, Reloaded)
    data = json.loads(answer.data)
    print_json(data)
    tokens = data.get("tokens")
    if tokens is not None and not tokens["reloaded"]:
        refused = tokens["error"]
        reason = f"the token registry was not taken over, its tokens go on: {refused['message']}"
        fail(MaadError(refused["code"], reason))
    if tokens is not None and not tokens["active"]:
        warn("no token is active now: nobody can authenticate before one is issued")
    return 0


@instance_command.command("status")
@target_options
@json_option
def status_command(as_json: bool) -> int:
    """Show the running server and the state of its projects. Exit code 1 when none runs."""
    from msgspec import to_builtins

    _, report = _find_server("PROJECT_UNAVAILABLE")
    if wants_json(as_json):
        print_json(to_builtins(report))
        return 0
    state = "stopping" if report.draining else "running"
    click.echo(
        f"{report.instance}: {state} since {report.started_at} as process {report.pid}, "
        f"version {report.version}, transport {report.transport}"
    )
    print_table(
        ("project", "worker", "process", "folder"),
        [
            (one.name, one.state, "" if one.worker_pid is None else str(one.worker_pid), one.path)
            for one in report.projects
        ],
    )
    return 0


def _find_server(code: str) -> tuple[str, StatusReport]:
    """The control socket of the server that serves the instance, and what it says of itself;
    `code` is the failure where none can be reached."""
    from maadd.cli.control_client import Unreachable

    settings = command_settings()
    if settings.instance is None:
        fail(MaadError("INSTANCE_CONFIG_NOT_FOUND", "name the instance file with --instance FILE"))
    path = os.path.abspath(settings.instance)
    found = _first_server(path, settings)
    if isinstance(found, Unreachable):
        if found.final:
            fail(MaadError(code, f"the server of {path} gives no answer: {found.reason}"))
        if not os.path.exists(path):
            missing = f"there is no instance file {path}; check --instance"
            fail(MaadError("INSTANCE_CONFIG_NOT_FOUND", missing))
        fail(
            MaadError(
                code,
                f"no server of {path} can be reached ({found.reason}); start it with "
                f"`maad serve --instance {path}`, or set MAADD_RUNTIME_DIR as it has it",
            )
        )
    return found


def _first_server(path: str, settings: Settings) -> tuple[str, StatusReport] | Unreachable:
    """The server of the instance file, or why there is none."""
    from maadd.cli.control_client import ControlConnection, Unreachable
    from maadd.cli.running_servers import control_endpoints
    from maadd.protocol.control import Status, StatusReport

    found = Unreachable("nothing listens")
    for endpoint in dict.fromkeys(control_endpoints(path, settings)):
        try:
            with closing(ControlConnection(endpoint)) as connection:
                report = connection.ask(Status())
        except Unreachable as failure:
            found = found if found.final else failure
            continue
        if not isinstance(report, StatusReport) or report.config_path is None:
            continue
        if os.path.realpath(report.config_path) == os.path.realpath(path):
            return endpoint, report
    return found
