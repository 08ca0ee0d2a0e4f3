"""`maad flush`: commit what waits for its commit."""

from __future__ import annotations

import click

from maadd.cli.output import accept_json, fail, print_json, warn
from maadd.cli.targets import project_and_settings, target_options
from maadd.protocol.errors import MaadErrors


@click.command("flush")
@target_options
@accept_json
def flush_command() -> int:
    """Commit pending writes now: those of history modes batch and snapshot, and failed commits.

    Opening the project already finishes what a server left behind, and is no part of the
    report. Exit code 1 when something stays pending.
    """
    root, settings = project_and_settings()
    from maadd.cli.oneshot import open_project

    try:
        with open_project(root, settings, warn=warn) as project:
            report = project.call("maad_flush", {})
    except MaadErrors as failure:
        fail(failure)
    print_json(report)
    return 0
