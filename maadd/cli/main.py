"""`maad`: the command line (spec 04 §19). Nothing is imported before a command needs it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from maadd import __version__
from maadd.cli.streams import OutputLost, drop_output, open_standard_streams
from maadd.cli.targets import DELETED_FOLDER, means_deleted_folder, target_options

_NOBODY_READS = 141
"""What a shell shows for a program that SIGPIPE has ended."""

_COMMANDS = {
    "init": ("maadd.cli.init", "Make a project folder: registry, schemas, repository."),
    "serve": ("maadd.cli.serve", "Serve a project or an instance over MCP."),
    "scan": ("maadd.cli.structure", "Show the structure of any Markdown file or folder."),
    "parse": ("maadd.cli.structure", "Show how a Markdown file is read."),
    "summary": ("maadd.cli.lookups", "Print what the project holds."),
    "describe": ("maadd.cli.lookups", "Print the registered types."),
    "schema": ("maadd.cli.lookups", "Print the fields of a type."),
    "get": ("maadd.cli.records", "Print one record."),
    "query": ("maadd.cli.records", "List the records of a type."),
    "search": ("maadd.cli.lookups", "Find values in fields and annotations."),
    "semantic-search": ("maadd.cli.retrieval", "Find records by what their bodies say."),
    "related": ("maadd.cli.graph", "Show what a record refers to, and what refers to it."),
    "relationship-paths": ("maadd.cli.graph", "Show the ways from a record to others."),
    "aggregate": ("maadd.cli.analysis", "Count or measure records in groups."),
    "join": ("maadd.cli.analysis", "List records with those that they refer to."),
    "verify": ("maadd.cli.checks", "Check a claim, or the project for drift."),
    "orphans": ("maadd.cli.checks", "List records that refer to missing ones."),
    "changes": ("maadd.cli.activity", "List what was created and updated, page by page."),
    "history": ("maadd.cli.activity", "List the commits of a record."),
    "audit": ("maadd.cli.activity", "List the records that were written to."),
    "create": ("maadd.cli.records", "Add a record."),
    "update": ("maadd.cli.records", "Change a record."),
    "call": ("maadd.cli.call", "Call any tool of the project, with arguments in JSON."),
    "import": ("maadd.cli.importing.command", "Turn existing Markdown or tables into records."),
    "validate": ("maadd.cli.maintain", "Check stored records against their schemas."),
    "reindex": ("maadd.cli.maintain", "Bring the index up to date with the files."),
    "flush": ("maadd.cli.flush", "Commit what waits for its commit."),
    "instructions": ("maadd.cli.instructions", "Check or refresh the guides that agents read."),
    "doctor": ("maadd.cli.doctor.command", "Check installation and project, say what to do."),
    "auth": ("maadd.cli.auth", "Issue, list, rotate and revoke bearer tokens of an instance."),
    "instance": ("maadd.cli.instance", "Look at the running server of an instance, reload it."),
    "demo": ("maadd.cli.demo.command", "Show the daemon at work on a sample project."),
    "completion": ("maadd.cli.completion", "Print the completion script of a shell."),
    "version": ("maadd.cli.version", "Print the version."),
}


class _Commands(click.Group):
    """Loads a command's module when the command runs; help needs only this table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            click.echo(ctx.get_help())
            ctx.exit(0)
        if name not in _COMMANDS and not name.startswith("-"):
            click.echo(ctx.get_help(), err=True)
            click.echo(f"\nmaad: unknown command {name!r}{_meant(name)}", err=True)
            ctx.exit(1)
        return super().resolve_command(ctx, args)


def _meant(name: str) -> str:
    from maadd.protocol.suggestion import nearest

    suggestion = nearest(name, list(_COMMANDS))
    return f"; did you mean {suggestion!r}?" if suggestion else ""


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@target_options
@click.version_option(__version__, "-v", "--version", message="%(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Markdown records as a database, served to AI agents over MCP."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `maad`; the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted,
    141 nobody reads the output any more."""
    open_standard_streams()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except OutputLost as lost:
        drop_output()
        if lost.nobody_reads:
            return _NOBODY_READS
        click.echo(f"maad: cannot write the output: {lost.reason}", err=True)
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = root.main(args=arguments, prog_name="maad", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return _usage_exit_code(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("maad: interrupted", err=True)
        return 130
    except OutputLost:
        raise
    except FileNotFoundError as error:
        if not means_deleted_folder(error):
            return _internal(error)
        click.echo(f"maad: {DELETED_FOLDER}", err=True)
        return 1
    except Exception as error:
        return _internal(error)
    return code if isinstance(code, int) else 0


def _internal(error: Exception) -> int:
    """A fault of ours: one line for its user, the way to it for whoever mends it."""
    if os.environ.get("MAAD_LOG_LEVEL") in ("debug", "trace"):
        raise error
    click.echo(
        f"INTERNAL: {' '.join(f'{type(error).__name__}: {error}'.split())}; "
        "MAAD_LOG_LEVEL=debug shows where",
        err=True,
    )
    return 1


def serve_main() -> int:
    """Run `maadd`, which is `maad serve`."""
    given = sys.argv[1:]
    return main(given if given[:1] in (["--version"], ["-v"]) else ["serve", *given])


def _usage_exit_code(error: click.UsageError) -> int:
    """2, but 1 where `auth` misses a flag or cannot take its value (spec 04 §19.2)."""
    path = error.ctx.command_path.split() if error.ctx is not None else []
    if path[1:2] == ["auth"] and not isinstance(error, click.NoSuchOption):
        return 1
    return error.exit_code
