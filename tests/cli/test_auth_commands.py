"""`maad auth`: the token registry from its own machine."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

TOKEN = re.compile(r"maad_pat_[0-9a-f]{32}\n")


@pytest.fixture
def auth(maad_here: Any, instance: Path) -> Any:
    """`maad auth` on the instance."""

    def run(*arguments: str, **more: Any) -> Any:
        return maad_here("auth", *arguments, f"--instance={instance}", **more)

    return run


def issue(auth: Any, *more: str) -> dict[str, Any]:
    done = auth("issue-token", "--role=reader", "--projects=notes", "--json", *more)
    assert done.code == 0, done.err
    issued: dict[str, Any] = done.json
    return issued


def test_a_token_alone_stands_on_standard_output(maad: Any, instance: Path) -> None:
    flags = ("--role", "writer", "--projects", "notes:reader", "--agent", "a-1")
    done = maad("auth", "issue-token", "--instance", str(instance), *flags)
    assert done.code == 0
    assert TOKEN.fullmatch(done.out)
    assert "shown once" in done.err
    assert '"agentId": "a-1"' in done.err
    assert "hash" not in done.err
    assert done.out.strip() not in done.err
    stored = instance.parent / "_auth/tokens.yaml"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert done.out.strip() not in stored.read_text()


def test_the_life_of_a_token(auth: Any) -> None:
    first = issue(auth, "--user=u-1", "--name=morning")["record"]
    assert auth("show-token", f"--id={first['id']}").json == first
    rotated = auth("rotate-token", f"--id={first['id']}", "--json").json
    assert TOKEN.fullmatch(rotated["plaintext"] + "\n")
    second = rotated["record"]
    assert second["id"] != first["id"]
    assert second["name"] == "morning"
    assert auth("list-tokens").json == [second]
    revoked = auth("revoke-token", f"--id={second['id']}").json
    assert revoked["revokedAt"]
    assert auth("revoke-token", f"--id={second['id']}").json == revoked
    assert auth("list-tokens").json == []
    everything = auth("list-tokens", "--include-revoked").json
    assert [record["id"] for record in everything] == [first["id"], second["id"]]
    assert "hash" not in json.dumps(everything)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--role=reader", "--projects="), "INVALID_ARGS"),
        (("--role=reader", "--projects=notes,notes"), "INVALID_ARGS"),
        (("--role=reader", "--projects=roads"), "TOKEN_PROJECT_UNKNOWN"),
        (("--role=reader", "--projects=notes:writer"), "TOKEN_ROLE_ABOVE_GLOBAL"),
        (("--role=admin", "--projects=notes:admin"), "ROLE_UPGRADE_DENIED"),
        (("--role=reader", "--projects=*", "--expires=soon"), "INVALID_ARGS"),
        (("--role=reader", "--projects=*", "--expires=2001-01-01"), "INVALID_ARGS"),
    ],
)
def test_what_a_server_would_refuse_to_issue_is_refused_here(
    auth: Any, instance: Path, flags: tuple[str, ...], code: str
) -> None:
    done = auth("issue-token", *flags)
    assert done.code == 1
    assert f"  {code}: " in done.err
    assert not (instance.parent / "_auth/tokens.yaml").exists()


def test_a_token_of_nobody_is_warned_about_or_refused(auth: Any) -> None:
    flags = ("issue-token", "--role=reader", "--projects=*")
    assert "warning: TOKEN_IDENTITY_REQUIRED" in auth(*flags).err
    refused = auth(*flags, env={"MAAD_TOKEN_IDENTITY_REQUIRED": "1"})
    assert refused.code == 1
    assert refused.out == ""


def test_the_last_administrator_is_kept_unless_forced(auth: Any) -> None:
    done = auth("issue-token", "--role=admin", "--projects=*", "--agent=root", "--json")
    token_id = done.json["record"]["id"]
    refused = auth("revoke-token", f"--id={token_id}")
    assert refused.code == 1
    assert "LAST_ADMIN_TOKEN" in refused.err
    assert "--force" in refused.err
    assert auth("revoke-token", f"--id={token_id}", "--force").code == 0


@pytest.mark.parametrize("command", ["show-token", "revoke-token", "rotate-token"])
def test_an_unknown_token_is_not_found(auth: Any, command: str) -> None:
    done = auth(command, "--id=tok-000000000000")
    assert done.code == 1
    assert f"maad auth {command} failed\n  TOKEN_NOT_FOUND: " in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("issue-token", "--projects=*"),
        ("issue-token", "--role=boss", "--projects=*"),
        ("revoke-token",),
        ("polish-token",),
    ],
)
def test_missing_and_invalid_flags_show_the_usage(auth: Any, arguments: tuple[str, ...]) -> None:
    done = auth(*arguments)
    assert done.code == 1
    assert "Usage: maad auth" in done.err


@pytest.mark.parametrize("arguments", [("auth",), ("auth", "help"), ("auth", "--help")])
def test_help_needs_no_instance(maad_here: Any, arguments: tuple[str, ...]) -> None:
    done = maad_here(*arguments)
    assert done.code == 0
    assert "issue-token" in done.out


def test_tokens_need_an_instance(maad_here: Any) -> None:
    done = maad_here("auth", "list-tokens")
    assert done.code == 1
    assert "--instance FILE or set MAAD_INSTANCE" in done.err
    absent = maad_here("auth", "list-tokens", "--instance=absent.yaml")
    assert absent.code == 1
    assert "INSTANCE_CONFIG_NOT_FOUND" in absent.err


def test_the_instance_may_stand_anywhere_and_a_flag_beats_the_other_variable(
    maad_here: Any, instance: Path
) -> None:
    assert maad_here(f"--instance={instance}", "auth", "list-tokens").json == []
    assert maad_here("auth", "--instance", str(instance), "list-tokens").json == []
    assert maad_here("auth", "list-tokens", env={"MAAD_INSTANCE": str(instance)}).json == []
    flag_wins = maad_here(
        "auth", "list-tokens", f"--instance={instance}", env={"MAAD_PROJECT": "x"}
    )
    assert flag_wins.json == []


def test_loose_permissions_are_refused(auth: Any, instance: Path) -> None:
    issue(auth, "--agent=a")
    (instance.parent / "_auth/tokens.yaml").chmod(0o644)
    done = auth("list-tokens")
    assert done.code == 1
    assert "TOKENS_FILE_INVALID" in done.err
    assert auth("list-tokens", env={"MAAD_AUTH_LAX_PERMS": "1"}).code == 0
