"""`maad init`: a new project folder."""

from __future__ import annotations

import click

from maadd.cli.output import fail, json_option, print_json, warn
from maadd.cli.targets import project_and_settings, target_options
from maadd.protocol.errors import MaadError


@click.command("init")
@target_options
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@json_option
def init_command(directory: str | None, as_json: bool) -> None:
    """Make DIR (default: the current folder) a project.

    Creates what is absent of the registry, the schema folder, the guides for agents and a Git
    repository, and changes nothing that exists.
    """
    from maadd.cli.project_folder import REGISTRY
    from maadd.cli.scaffold import has_repository, make_repository, make_scaffold, missing_ignores
    from maadd.config.instance import refuse_broken_path
    from maadd_worker.index.store import make_first_index

    root, settings = project_and_settings(directory)
    commit = None
    try:
        refuse_broken_path(root)
        created = make_scaffold(root)
        if REGISTRY in created:
            # Files that come later are new ones, and no remains of an index that was lost.
            make_first_index(root)
        if not has_repository(root):
            commit = make_repository(root, settings, created)
            created.append(".git/")
    except MaadError as failure:
        fail(failure)
    for name in missing_ignores(root):
        warn(f".gitignore does not name {name}; add it, the index is no part of the history")
    if as_json:
        print_json({"root": root, "created": created, "commit": commit})
        return
    for name in created:
        click.echo(f"created {name}")
    if commit is not None:
        click.echo(f"committed {commit}")
    click.echo(f"{root} is a project." if created else f"{root} is a project already.")
