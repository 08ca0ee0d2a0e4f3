"""How far a caller's own token reaches over other tokens (spec 04 §8.2)."""

from __future__ import annotations

import pytest

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.record import TokenRecord
from maadd.auth.scope import Excess, Requester, check_reach, excess, live_requester, sees
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role, parse_role


def token(text: str, token_id: str = "tok-1", **members: str) -> TokenRecord:
    """`admin *,vault:reader`: the role, then the grants."""
    role, grants = text.split(" ")
    parsed = parse_role(role)
    assert parsed is not None
    created = "2026-01-01T00:00:00.000Z"
    return TokenRecord(token_id, "0" * 64, parsed, parse_grants(grants), created, **members)


def spec(text: str, expires_at: str | None = None) -> TokenSpec:
    record = token(text)
    return TokenSpec(record.role, record.projects, expires_at=expires_at)


R, W, A = Role.READER, Role.WRITER, Role.ADMIN


@pytest.mark.parametrize(
    ("holder", "target", "beyond"),
    [
        ("admin *", "admin *", None),
        ("admin *", "reader gamma", None),
        ("admin alpha", "admin alpha", None),
        ("admin alpha", "reader alpha", None),
        ("admin alpha,beta", "admin beta", None),
        ("writer alpha", "admin alpha", Excess("*", A, W)),
        ("admin alpha", "admin beta", Excess("beta", A, None)),
        ("admin alpha", "reader *", Excess("*", R, None)),
        ("admin alpha:writer", "admin alpha", Excess("alpha", A, W)),
        ("admin alpha:writer", "admin alpha:writer", None),
        # A narrower grant beside the wildcard is not lifted by a wildcard of another.
        ("admin *,vault:reader", "admin *", Excess("vault", A, R)),
        ("admin *,vault:reader", "admin *,vault:reader", None),
        ("admin *,vault:reader", "admin alpha,vault:reader", None),
        ("admin *,vault:reader", "reader *", None),
        ("admin *", "admin *,vault:reader", None),
        ("admin *:writer", "writer *", None),
        ("admin *:writer", "admin alpha", Excess("alpha", A, W)),
        # All that is declared is not all that may ever be declared.
        ("admin alpha,beta,vault", "admin *", Excess("*", A, None)),
        ("admin alpha,beta,vault", "admin alpha,beta,vault", None),
        # Names that nobody declared count all the same.
        ("admin *,gone:reader", "admin *", Excess("gone", A, R)),
        ("admin alpha", "reader alpha,gone", Excess("gone", R, None)),
        # A hand-edited grant above the token's role lifts nothing.
        ("writer alpha:admin", "writer alpha", None),
        ("reader *", "writer *:reader", Excess("*", W, R)),
    ],
)
def test_what_fits_in_a_token(holder: str, target: str, beyond: Excess | None) -> None:
    assert excess(token(target), token(holder)) == beyond


def test_the_owner_of_the_files_reaches_everything() -> None:
    assert sees(None, token("admin *"))
    check_reach(None, spec("admin *"))


def test_ones_own_token_is_always_seen() -> None:
    own = token("admin gone", "tok-own")
    requester = Requester(own)
    assert sees(requester, token("admin gone", "tok-own"))
    assert not sees(requester, token("admin *", "tok-other"))
    assert sees(requester, token("reader gone", "tok-third"))


@pytest.mark.parametrize(
    ("holder", "asked", "code", "details"),
    [
        (
            "admin alpha",
            "reader beta",
            "TOKEN_PROJECT_FORBIDDEN",
            {"project": "beta", "requested": "reader", "allowed": None},
        ),
        (
            "admin *,vault:reader",
            "admin *",
            "ROLE_UPGRADE_DENIED",
            {"project": "vault", "requested": "admin", "allowed": "reader"},
        ),
        (
            "writer *",
            "admin *",
            "ROLE_UPGRADE_DENIED",
            {"project": "*", "requested": "admin", "allowed": "writer"},
        ),
    ],
)
def test_a_token_beyond_ones_own_is_not_issued(
    holder: str, asked: str, code: str, details: dict[str, str | None]
) -> None:
    with pytest.raises(MaadError) as caught:
        check_reach(Requester(token(holder)), spec(asked))
    assert (caught.value.code, caught.value.details) == (code, details)


@pytest.mark.parametrize(
    ("own", "asked", "fits"),
    [
        (None, None, True),
        (None, "2030-01-01", True),
        ("2030-01-01T00:00:00.000Z", "2029-12-31", True),
        ("2030-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z", True),
        ("2030-01-01T00:00:00.000Z", "2030-01-01T01:00:00+01:00", True),
        ("2030-01-01T00:00:00.000Z", "2030-01-01T00:00:00.001Z", False),
        ("2030-01-01T00:00:00.000Z", None, False),
    ],
)
def test_no_token_outlives_the_one_that_issued_it(
    own: str | None, asked: str | None, fits: bool
) -> None:
    members = {} if own is None else {"expires_at": own}
    requester = Requester(token("admin *", **members))
    if fits:
        check_reach(requester, spec("reader *", asked))
        return
    with pytest.raises(MaadError) as caught:
        check_reach(requester, spec("reader *", asked))
    assert caught.value.code == "ROLE_UPGRADE_DENIED"
    assert caught.value.details == {"field": "expiresAt", "requested": asked, "allowed": own}


@pytest.mark.parametrize(
    ("registered", "code"),
    [
        ([], "TOKEN_UNKNOWN"),
        ([token("admin *", revoked_at="2026-02-01T00:00:00.000Z")], "TOKEN_REVOKED"),
        ([token("admin *", expires_at="2026-01-02T00:00:00.000Z")], "TOKEN_EXPIRED"),
        ([token("admin *", expires_at="some day")], "TOKEN_EXPIRED"),
    ],
)
def test_a_dead_token_asks_for_nothing(registered: list[TokenRecord], code: str) -> None:
    with pytest.raises(MaadError) as caught:
        live_requester(Requester(token("admin *")), registered, 1_790_000_000.0)
    assert caught.value.code == code


def test_the_record_as_registered_counts_not_the_one_presented() -> None:
    lowered = token("reader alpha")
    live = live_requester(Requester(token("admin *")), [lowered], 1_790_000_000.0)
    assert live is not None
    assert live.token is lowered
    assert live_requester(None, [], 0) is None
