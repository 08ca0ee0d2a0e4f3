"""Which project or instance a command means, and the settings it runs with (spec 04 §19)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from maadd.cli.texts import refuse_broken, refuse_broken_texts

if TYPE_CHECKING:
    from maadd.config.settings import Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])

_META = "maadd.target."
"""Options given anywhere on the line meet in the `meta` of the click contexts, which share it."""


DELETED_FOLDER = "the current folder was deleted; change to another one, or name all paths from /"


def means_deleted_folder(error: FileNotFoundError) -> bool:
    """Whether it says that the folder of this process is gone, and not some file."""
    if error.filename is not None:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def target_options(command: _Command) -> _Command:
    """What every command takes: `--project` and `--instance`, anywhere on the line.

    Its other arguments are refused when they are no Unicode.
    """

    @functools.wraps(command)
    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_broken_texts(click.get_current_context())
        return command(*args, **kwargs)

    project = _target("--project", "DIR", "The project folder (default: here, but not for serve).")
    instance = _target("--instance", "FILE", "The instance file (serve, auth, instance, doctor).")
    return project(instance(cast("_Command", checked)))


def _target(flag: str, metavar: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        flag,
        metavar=metavar,
        help=text,
        # What cannot be read there is told by the command, with what to do.
        type=click.Path(readable=False),
        expose_value=False,
        callback=_remember,
        is_eager=True,
    )


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        refuse_broken(param, value)
        ctx.meta[f"{_META}{param.name}"] = value


def given_targets() -> dict[str, object]:
    """The target flags of this run, as `load_settings` wants them."""
    meta = click.get_current_context().meta
    return {name: meta.get(f"{_META}{name}") for name in ("project", "instance")}


def command_settings() -> Settings:
    """The settings of a command other than `serve`; ends the command when they are bad.

    Texts that no rule accepts fall back to the default with a warning (spec 07 §1).
    """
    from maadd.cli.output import fail, warn
    from maadd.config.settings import load_settings
    from maadd.protocol.errors import MaadErrors

    try:
        settings, warnings = load_settings(os.environ, given_targets(), lenient=True, one_shot=True)
    except MaadErrors as failure:
        fail(failure)
    for warning in warnings:
        warn(warning)
    return settings


def project_and_settings(given: str | None = None) -> tuple[str, Settings]:
    """The absolute folder of a command on one project: what it was `given` as an argument, flag,
    MAAD_PROJECT, or where we are."""
    targets = given_targets()
    settings = command_settings()
    if targets["instance"] is not None:
        raise click.UsageError(
            "--instance is for serve, auth and instance; name the project folder with --project"
        )
    named = settings.project if given is None else given
    return os.path.abspath(named or os.getcwd()), settings
