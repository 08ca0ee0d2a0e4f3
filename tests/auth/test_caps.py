"""Role composition: the vectors of spec 04 §5.1."""

from __future__ import annotations

import pytest

from maadd.auth.caps import bind_role, ceiling, effective_role, token_cap
from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.config.instance import ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role

READER, WRITER, ADMIN = Role


def token(role: Role, *grants: tuple[str, Role | None]) -> TokenRecord:
    return TokenRecord(
        id="tok-1",
        hash="0" * 64,
        role=role,
        projects=tuple(ProjectGrant(name, cap) for name, cap in grants),
        created_at="2031-01-01T00:00:00.000Z",
    )


def project(role: Role, name: str = "p") -> ProjectConfig:
    return ProjectConfig(name, "/srv/p", role, None, HistorySettings("feed", None, "inferred"))


@pytest.mark.parametrize(
    ("bearer", "caps"),
    [
        (token(ADMIN, ("*", READER), ("alpha", ADMIN)), {"alpha": ADMIN, "beta": READER}),
        (token(ADMIN, ("alpha", ADMIN), ("*", READER)), {"alpha": ADMIN, "beta": READER}),
        (token(ADMIN, ("*", None), ("vault", READER)), {"vault": READER, "beta": ADMIN}),
        (token(ADMIN, ("alpha", None)), {"alpha": ADMIN, "beta": None}),
        (token(WRITER, ("alpha", ADMIN)), {"alpha": WRITER}),
        (token(READER, ("*", WRITER)), {"alpha": READER}),
        (token(ADMIN), {"alpha": None}),
    ],
)
def test_token_caps(bearer: TokenRecord, caps: dict[str, Role | None]) -> None:
    assert {name: token_cap(bearer, name) for name in caps} == caps


@pytest.mark.parametrize(
    ("project_role", "cap", "requested", "result"),
    [
        (WRITER, READER, None, READER),
        (WRITER, READER, WRITER, "ROLE_UPGRADE_DENIED"),
        (ADMIN, WRITER, READER, READER),
        (ADMIN, WRITER, None, WRITER),
        (ADMIN, WRITER, WRITER, WRITER),
        (READER, ADMIN, None, READER),
        (READER, ADMIN, WRITER, "ROLE_UPGRADE_DENIED"),
    ],
)
def test_binding_with_a_token(
    project_role: Role, cap: Role, requested: Role | None, result: Role | str
) -> None:
    bearer = token(cap, ("p", None))
    if isinstance(result, Role):
        assert bind_role(project(project_role), bearer, requested) is result
        return
    with pytest.raises(MaadError) as caught:
        bind_role(project(project_role), bearer, requested)
    assert caught.value.code == result


@pytest.mark.parametrize("requested", [None, READER, ADMIN])
def test_a_token_without_the_project_is_forbidden(requested: Role | None) -> None:
    stranger = token(ADMIN, ("other", None))
    with pytest.raises(MaadError) as caught:
        bind_role(project(ADMIN), stranger, requested)
    assert caught.value.code == "TOKEN_PROJECT_FORBIDDEN"
    assert ceiling(project(ADMIN), stranger) is None
    assert effective_role(project(ADMIN), stranger, requested) is None


def test_on_stdio_the_project_is_the_ceiling() -> None:
    assert bind_role(project(WRITER), None, None) is WRITER
    assert bind_role(project(WRITER), None, READER) is READER
    with pytest.raises(MaadError) as caught:
        bind_role(project(READER), None, ADMIN)
    assert caught.value.code == "ROLE_UPGRADE_DENIED"
    assert caught.value.details == {"project": "p", "requested": "admin", "allowed": "reader"}


def test_a_lowered_ceiling_or_token_takes_effect_at_the_next_call() -> None:
    bearer = token(ADMIN, ("p", None))
    assert effective_role(project(ADMIN), bearer, ADMIN) is ADMIN
    assert effective_role(project(WRITER), bearer, ADMIN) is WRITER
    assert effective_role(project(ADMIN), token(READER, ("p", None)), ADMIN) is READER
    assert effective_role(project(ADMIN), bearer, READER) is READER
