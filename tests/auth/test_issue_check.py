"""What a token may be issued for (spec 04 §8.1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maadd.auth.issue import TokenSpec, check_issue, parse_grants
from maadd.auth.record import ProjectGrant
from maadd.auth.timestamps import format_timestamp, parse_timestamp
from maadd.config.instance import ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role

READER, WRITER, ADMIN = Role
NOW = 1_900_000_000.0
FEED = HistorySettings("feed", None, "inferred")
PROJECTS = {
    "permits": ProjectConfig("permits", "/srv/permits", Role.WRITER, None, FEED),
    "roads": ProjectConfig("roads", "/srv/roads", Role.READER, None, FEED),
}
GOOD = TokenSpec(Role.WRITER, (ProjectGrant("permits"),), agent_id="agt-1")


def check(spec: TokenSpec, *, identity_required: bool = False) -> list[str]:
    warnings = check_issue(spec, PROJECTS, now=NOW, identity_required=identity_required)
    return [warning.code for warning in warnings]


def refusal(spec: TokenSpec, *, identity_required: bool = False) -> MaadError:
    with pytest.raises(MaadError) as caught:
        check(spec, identity_required=identity_required)
    return caught.value


def with_grants(*grants: ProjectGrant, role: Role = Role.ADMIN) -> TokenSpec:
    return msgspec.structs.replace(GOOD, role=role, projects=grants)


@pytest.mark.parametrize(
    "spec",
    [
        GOOD,
        msgspec.structs.replace(GOOD, agent_id=None, user_id="u-1"),
        msgspec.structs.replace(GOOD, expires_at="2032-01-01T00:00:00+02:00", name="nightly"),
        with_grants(ProjectGrant("*")),
        with_grants(ProjectGrant("*", ADMIN), ProjectGrant("roads", READER)),
        with_grants(ProjectGrant("roads")),
    ],
)
def test_what_is_accepted(spec: TokenSpec) -> None:
    assert check(spec, identity_required=True) == []


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (with_grants(), "INVALID_ARGS"),
        (with_grants(ProjectGrant("roads"), ProjectGrant("roads", READER)), "INVALID_ARGS"),
        (with_grants(ProjectGrant("*"), ProjectGrant("*")), "INVALID_ARGS"),
        (with_grants(ProjectGrant("vault")), "TOKEN_PROJECT_UNKNOWN"),
        (with_grants(ProjectGrant("roads", WRITER), role=READER), "TOKEN_ROLE_ABOVE_GLOBAL"),
        (with_grants(ProjectGrant("*", ADMIN), role=WRITER), "TOKEN_ROLE_ABOVE_GLOBAL"),
        (with_grants(ProjectGrant("roads", WRITER)), "ROLE_UPGRADE_DENIED"),
        (with_grants(ProjectGrant("permits", ADMIN)), "ROLE_UPGRADE_DENIED"),
        (msgspec.structs.replace(GOOD, expires_at="next year"), "INVALID_ARGS"),
        (msgspec.structs.replace(GOOD, expires_at="2032-01-01T00:00:00"), "INVALID_ARGS"),
        (msgspec.structs.replace(GOOD, expires_at=format_timestamp(NOW)), "INVALID_ARGS"),
        (msgspec.structs.replace(GOOD, expires_at="2001-01-01T00:00:00Z"), "INVALID_ARGS"),
        (msgspec.structs.replace(GOOD, agent_id="a\nrole: admin"), "INVALID_ARGS"),
        (msgspec.structs.replace(GOOD, user_id="\ud800"), "INVALID_ARGS"),
        (msgspec.structs.replace(GOOD, name="a\x1b[2J"), "INVALID_ARGS"),
    ],
)
def test_what_is_refused(spec: TokenSpec, code: str) -> None:
    assert refusal(spec).code == code


def test_the_first_broken_rule_decides() -> None:
    everything = TokenSpec(
        READER,
        (ProjectGrant("roads", WRITER), ProjectGrant("vault"), ProjectGrant("vault")),
        expires_at="no",
    )
    order = [
        "INVALID_ARGS",
        "TOKEN_PROJECT_UNKNOWN",
        "TOKEN_ROLE_ABOVE_GLOBAL",
        "ROLE_UPGRADE_DENIED",
        "INVALID_ARGS",
        "TOKEN_IDENTITY_REQUIRED",
    ]
    fixes: list[dict[str, Any]] = [
        {"projects": (ProjectGrant("roads", WRITER), ProjectGrant("vault"))},
        {"projects": (ProjectGrant("roads", WRITER),)},
        {"role": ADMIN},
        {"projects": (ProjectGrant("roads", READER),)},
        {"expires_at": None},
        {},
    ]
    for code, fix in zip(order, fixes, strict=True):
        assert refusal(everything, identity_required=True).code == code
        everything = msgspec.structs.replace(everything, **fix)


def test_a_role_above_the_ceiling_says_what_is_allowed() -> None:
    error = refusal(with_grants(ProjectGrant("roads", ADMIN)))
    assert error.details == {"project": "roads", "requested": "admin", "allowed": "reader"}


def test_an_argument_error_names_the_argument() -> None:
    error = refusal(msgspec.structs.replace(GOOD, expires_at="soon"))
    assert error.details is not None
    assert error.details["issues"][0]["path"] == "expiresAt"


def test_a_token_without_identity_is_warned_of_or_refused() -> None:
    anonymous = msgspec.structs.replace(GOOD, agent_id=None)
    assert check(anonymous) == ["TOKEN_IDENTITY_REQUIRED"]
    assert check(msgspec.structs.replace(anonymous, agent_id="")) == ["TOKEN_IDENTITY_REQUIRED"]
    assert refusal(anonymous, identity_required=True).code == "TOKEN_IDENTITY_REQUIRED"


@pytest.mark.parametrize(
    ("text", "grants"),
    [
        ("*", [ProjectGrant("*")]),
        ("a", [ProjectGrant("a")]),
        ("a:reader, *:admin", [ProjectGrant("a", READER), ProjectGrant("*", ADMIN)]),
        ("", []),
        (" , ", []),
    ],
)
def test_grants_of_the_command_line(text: str, grants: list[ProjectGrant]) -> None:
    assert parse_grants(text) == tuple(grants)


@pytest.mark.parametrize("text", ["a:", "a:owner", ":reader", "a:reader:writer"])
def test_bad_grants_of_the_command_line(text: str) -> None:
    with pytest.raises(MaadError) as caught:
        parse_grants(f"ok,{text}")
    assert caught.value.code == "INVALID_ARGS"
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.500z", 1.5),
        ("1970-01-01 00:00:01+00:00", 1.0),
        ("1970-01-01T02:00:00.000+02:00", 0.0),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T00:00:00.123456789Z", 0.123456),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_timestamp(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "never",
        "19700101",
        "1970-1-1",
        "1970-W01-1",
        "1970-01-01T00:00Z",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00Zx",
        "1970-01-01T25:00:00Z",
        "1970-13-01T00:00:00Z",
        "9999-12-31T23:59:59-12:00",
        "9999-12-31T23:59:59.9999999Z",
        "0001-01-01T00:00:00+12:00",
        "0000-01-01",
    ],
)
def test_what_is_no_time(text: str) -> None:
    assert parse_timestamp(text) is None


def test_times_are_written_in_milliseconds() -> None:
    assert format_timestamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert format_timestamp(1.2345) == "1970-01-01T00:00:01.234Z"
