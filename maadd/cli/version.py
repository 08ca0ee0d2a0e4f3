"""`maad version`."""

from __future__ import annotations

import click

from maadd import __version__
from maadd.cli.output import print_json


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version_command(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        click.echo(__version__)
