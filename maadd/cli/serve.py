"""`maad serve`: the daemon (spec 04 §19.1)."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from maadd.cli.targets import (
    DELETED_FOLDER,
    given_targets,
    means_deleted_folder,
    target_options,
)

if TYPE_CHECKING:
    from maadd.config.settings import Settings

_FLAGS = (
    ("role", "ROLE", "reader, writer or admin: the ceiling of a single project."),
    ("prov", "MODE", "off, on or detail: where an answer comes from."),
    ("transport", "NAME", "stdio, http or unix (default: stdio)."),
    ("http-host", "HOST", "Address to listen on (default: 127.0.0.1)."),
    ("http-port", "PORT", "Port to listen on (default: 7733)."),
    ("http-max-body", "BYTES", "Largest request body."),
    ("http-headers-timeout", "MS", "Time for the headers of a request."),
    ("http-request-timeout", "MS", "Time for a whole request to come in."),
    ("http-keepalive-timeout", "MS", "How long an idle connection is kept."),
    ("session-idle-ms", "MS", "Idle sessions end after this."),
    ("session-max", "N", "Sessions at once."),
    ("tokens-poll-ms", "MS", "How often tokens.yaml is looked at; 0 turns it off."),
    ("auth-token", "TEXT", "No longer authenticates anybody; see `maad auth`."),
    ("unix-socket", "PATH", "Socket of the unix transport."),
    ("unix-socket-mode", "OCTAL", "Its mode (default: 660)."),
    ("tools", "LIST", "Serve only these tools, with commas between."),
)
"""Flags with one value, judged together with their environment variables."""


_LOG_FLUSH_S = 0.2
"""What the reader of the log still gets at the end."""


def _serve_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, metavar, text in reversed(_FLAGS):
        kind = click.Path() if metavar == "PATH" else None
        command = click.option(f"--{name}", metavar=metavar, type=kind, help=text)(command)
    return command


@click.command("serve")
@target_options
@_serve_options
@click.option(
    "--http-allowed-origin", multiple=True, metavar="ORIGIN", help="A browser origin. Repeatable."
)
@click.option(
    "--trust-proxy",
    is_flag=False,
    flag_value="1",
    metavar="[CIDR,...]",
    help="Believe X-Forwarded-For of the nearest hop, or of these networks.",
)
@click.option("--dry-run", is_flag=True, help="Judge every write, make none.")
def serve_command(**flags: Any) -> int:
    """Serve a project (--project, stdio) or an instance (--instance) over MCP.

    Every flag has an environment variable; a flag wins. Ends on SIGTERM, SIGINT, or the end of
    standard input; exit code 0 when everything accepted was finished.
    """
    from maadd.front.lifetime import (
        ignore_early_signals,
        leave_hanging_threads,
        telling_interrupts,
    )
    from maadd.protocol.errors import MaadError, MaadErrors, errors_of

    ignore_early_signals()
    threads = set(threading.enumerate())
    try:
        with telling_interrupts():
            settings, warnings = _settings(flags)
            code = _serve(settings, warnings)
    except (MaadError, MaadErrors) as failure:
        refusals = [f"{error.code}: {error.message}" for error in errors_of(failure)]
        click.echo(" ".join("; ".join(refusals).split()), err=True)
        code = 1
    except FileNotFoundError as error:
        if not means_deleted_folder(error):
            raise
        click.echo(f"INSTANCE_CONFIG_INVALID: {DELETED_FOLDER}", err=True)
        code = 1
    leave_hanging_threads(threads, code)
    return code


def _settings(flags: dict[str, Any]) -> tuple[Settings, list[str]]:
    from maadd.config.settings import load_settings
    from maadd.protocol.errors import MaadError

    settings, warnings = load_settings(os.environ, given_targets() | flags, lenient=False)
    if settings.project is None and settings.instance is None:
        raise MaadError(
            "INSTANCE_CONFIG_INVALID",
            "there is nothing to serve: give --project DIR for one project over stdio, or "
            "--instance FILE",
        )
    return settings, warnings


def _leave_deleted_folder(settings: Settings) -> None:
    """Nothing needs a current folder that was deleted, unless a path is relative to it: then
    FileNotFoundError. Those of projects are absolute by now."""
    try:
        os.getcwd()
    except FileNotFoundError:
        others = (
            os.environ.get("MAADD_RUNTIME_DIR"),
            settings.unix_socket,
            settings.audit_path,
            settings.embed_model_path,
        )
        if any(path and not os.path.isabs(path) for path in others):
            raise
        os.chdir("/")


def _serve(settings: Settings, warnings: list[str]) -> int:
    from maadd.config.instance import load_instance, synthesize_instance
    from maadd.front.launch import launch
    from maadd.front.lifetime import ignore_early_signals, raise_file_limit, run_loop
    from maadd.protocol.errors import MaadError

    if settings.instance is not None:
        instance = load_instance(settings.instance, settings)
    else:
        assert settings.project is not None
        if settings.transport != "stdio":
            raise MaadError(
                "INSTANCE_CONFIG_INVALID",
                f"the {settings.transport} transport needs --instance FILE with its token "
                "registry; --project serves over stdio only",
            )
        instance = synthesize_instance(settings.project, settings.role, settings)
        try:
            os.close(os.open(instance.root, os.O_PATH | os.O_DIRECTORY))
        except OSError as error:
            text = f"{instance.root} cannot be served: {error.strerror}"
            advice = "check --project or MAAD_PROJECT"
            raise MaadError("FILE_READ_ERROR", f"{text}; {advice}") from None
    raise_file_limit()
    _leave_deleted_folder(settings)
    launched = launch(settings, instance)
    try:
        # Most of the start, while the fork server loads the engine.
        import uvloop

        from maadd.front.front import Front
        from maadd.ops.logs import open_ops_log

        log = open_ops_log(settings.log_level, pretty=settings.log_pretty, sink=launched.stderr)
        for warning in warnings:
            log.warning("settings_warning", message=warning)
        # Modules and what they hold stay; a search for unused values need not go through them.
        gc.freeze()
        return run_loop(Front(settings, instance, launched).run(), uvloop.new_event_loop)
    finally:
        ignore_early_signals()  # the loop is gone, and its handlers with it
        launched.release()
        launched.stderr.flush(_LOG_FLUSH_S)
