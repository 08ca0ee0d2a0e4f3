"""`maad auth`: the token registry of an instance, from its machine (spec 04 §19.2).

Whoever can write the files is allowed everything; no server need run, and one that runs has
taken a change over when the command returns.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NoReturn

import click

from maadd.cli.output import (
    accept_json,
    fail,
    json_option,
    print_json,
    wants_json,
    warn,
)
from maadd.cli.streams import OutputLost
from maadd.cli.tables import print_table
from maadd.cli.targets import command_settings, target_options
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.roles import ROLE_NAMES, parse_role

if TYPE_CHECKING:
    from maadd.auth.record import TokenRecord
    from maadd.auth.registry import IssuedToken, TokenRegistry
    from maadd.config.instance import Instance
    from maadd.config.settings import Settings

_NOTICE = "This token is shown once; store it now."


class _AuthCommands(click.Group):
    """`help` is a word of this group, too."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":
            click.echo(ctx.get_help())
            ctx.exit(0)
        return super().resolve_command(ctx, args)


@click.group("auth", cls=_AuthCommands, invoke_without_command=True)
@target_options
@click.pass_context
def auth_command(ctx: click.Context) -> None:
    """Issue, list, rotate and revoke bearer tokens of an instance."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@auth_command.command("issue-token")
@target_options
@click.option(
    "--role", type=click.Choice(ROLE_NAMES), required=True, help="The most it may ever do."
)
@click.option(
    "--projects", required=True, metavar="LIST", help="'*', or a comma list of NAME or NAME:ROLE."
)
@click.option("--name", metavar="TEXT", help="What it is for.")
@click.option("--agent", metavar="ID", help="The agent that uses it; stands in commits and logs.")
@click.option("--user", metavar="ID", help="The person it acts for.")
@click.option("--expires", metavar="TIME", help="ISO 8601, for example 2032-01-01.")
@json_option
def issue_token(
    role: str,
    projects: str,
    name: str | None,
    agent: str | None,
    user: str | None,
    expires: str | None,
    as_json: bool,
) -> None:
    """Make a token; its plaintext alone goes to standard output."""
    from maadd.auth.issue import TokenSpec, check_issue, parse_grants

    settings, instance = _instance()
    parsed = parse_role(role)
    assert parsed is not None
    try:
        spec = TokenSpec(parsed, parse_grants(projects), name, agent, user, expires)
        advisories = check_issue(
            spec,
            instance.projects,
            now=time.time(),
            identity_required=settings.token_identity_required,
        )
        issued = _registry(settings, instance).issue(spec)
    except MaadError as failure:
        fail(failure)
    for advisory in advisories:
        warn(f"{advisory.code}: {advisory.message}")
    try:
        _show_issued(issued, as_json)
    finally:
        _tell_servers(settings, instance)


@auth_command.command("revoke-token")
@target_options
@click.option("--id", "token_id", required=True, metavar="ID")
@click.option("--force", is_flag=True, help="Also the last token that may administer everything.")
@accept_json
def revoke_token(token_id: str, force: bool) -> None:
    """End a token now; a running server closes its sessions."""
    settings, instance = _instance()
    try:
        record = _registry(settings, instance).revoke(token_id, keep_last_admin=not force)
    except MaadError as failure:
        if failure.code == "LAST_ADMIN_TOKEN":
            failure = MaadError(failure.code, f"{failure.message}, or add --force")
        fail(failure)
    _tell_servers(settings, instance)
    _show_record(record)


@auth_command.command("rotate-token")
@target_options
@click.option("--id", "token_id", required=True, metavar="ID")
@json_option
def rotate_token(token_id: str, as_json: bool) -> None:
    """Replace a token by a new one of the same reach; the old one ends."""
    settings, instance = _instance()
    try:
        issued = _registry(settings, instance).rotate(token_id)
    except MaadError as failure:
        fail(failure)
    try:
        _show_issued(issued, as_json)
    finally:
        _tell_servers(settings, instance)


@auth_command.command("list-tokens")
@target_options
@click.option("--include-revoked", is_flag=True, help="Also tokens that were revoked.")
@json_option
def list_tokens(include_revoked: bool, as_json: bool) -> None:
    """List the tokens, never their secrets."""
    from maadd.auth.record import public_record, token_state

    settings, instance = _instance()
    records = [
        record
        for record in _registry(settings, instance).records()
        if include_revoked or record.revoked_at is None
    ]
    if wants_json(as_json):
        print_json([public_record(record) for record in records])
        return
    now = time.time()
    print_table(
        ("id", "state", "role", "projects", "name", "agent", "user", "expires"),
        (
            (
                record.id,
                token_state(record, now),
                record.role.text,
                _grants_text(record),
                record.name or "",
                record.agent_id or "",
                record.user_id or "",
                record.expires_at or "never",
            )
            for record in records
        ),
    )


@auth_command.command("show-token")
@target_options
@click.option("--id", "token_id", required=True, metavar="ID")
@accept_json
def show_token(token_id: str) -> None:
    """Show one token, never its secret."""
    from maadd.auth.registry import token_not_found

    settings, instance = _instance()
    record = _registry(settings, instance).find(token_id)
    if record is None:
        fail(token_not_found())
    _show_record(record)


def _instance() -> tuple[Settings, Instance]:
    """The settings and the valid instance of this run; ends the command without one."""
    from maadd.config.instance import load_instance

    settings = command_settings()
    if settings.instance is None:
        _no_instance()
    try:
        instance = load_instance(settings.instance, settings)
    except MaadErrors as failure:
        fail(failure)
    for warning in instance.warnings:
        warn(warning)
    return settings, instance


def _no_instance() -> NoReturn:
    fail(
        MaadError(
            "INSTANCE_CONFIG_NOT_FOUND",
            "tokens belong to an instance: give --instance FILE or set MAAD_INSTANCE",
        )
    )


def _registry(settings: Settings, instance: Instance) -> TokenRegistry:
    from maadd.auth.registry import TokenRegistry

    try:
        registry = TokenRegistry.load(instance.tokens_path, lax_permissions=settings.auth_lax_perms)
    except MaadError as failure:
        fail(failure)
    for warning in registry.warnings:
        warn(warning)
    return registry


def _tell_servers(settings: Settings, instance: Instance) -> None:
    """Wait, not for long, until running servers act by the registry as it is now."""
    from maadd.cli.running_servers import sync_tokens

    assert settings.instance is not None
    path = os.path.abspath(settings.instance)
    for complaint in sync_tokens(path, instance.tokens_path, settings):
        warn(f"a running server goes on with the tokens it knew: {complaint}")


def _show_issued(issued: IssuedToken, as_json: bool) -> None:
    """The plaintext alone on standard output, what it is on standard error."""
    from maadd.auth.record import public_record

    record = public_record(issued.record)
    try:
        if as_json:
            print_json({"plaintext": issued.plaintext, "record": record, "warning": _NOTICE})
            return
        click.echo(issued.plaintext)
    except OutputLost:
        warn(
            f"the token {issued.record.id} is valid and nobody has seen it; replace it with "
            f"`maad auth rotate-token --id {issued.record.id}`"
        )
        raise
    click.echo(_NOTICE, err=True)
    click.echo(_lines(record), err=True)


def _show_record(record: TokenRecord) -> None:
    from maadd.auth.record import public_record

    print_json(public_record(record))


def _lines(record: dict[str, object]) -> str:
    import json

    return json.dumps(record, indent=2, ensure_ascii=False)


def _grants_text(record: TokenRecord) -> str:
    return ", ".join(
        grant.name if grant.role is None else f"{grant.name}:{grant.role.text}"
        for grant in record.projects
    )
