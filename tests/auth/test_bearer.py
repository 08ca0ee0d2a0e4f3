"""Authentication of the Authorization header (spec 04 §9.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from maadd.auth.bearer import Authentication, bearer_text
from maadd.auth.issue import TokenSpec
from maadd.auth.record import ProjectGrant, hash_plaintext, new_plaintext, new_token_id
from maadd.auth.registry import IssuedToken, TokenRegistry
from maadd.auth.timestamps import parse_timestamp
from maadd.protocol.roles import Role

SPEC = TokenSpec(Role.READER, (ProjectGrant("*"),))
NEVER_ISSUED = "maad_pat_" + "0" * 32


def test_the_lookup_key_of_a_plaintext() -> None:
    plaintext = "maad_pat_" + "a" * 32
    assert len(plaintext) == 41
    assert hash_plaintext(plaintext) == (
        "07efacbce661ebdf89c27b7e730be8abc6a320bdcc2f0727e1adc18355e9169e"
    )


def test_fresh_tokens_have_their_form_and_are_all_different() -> None:
    plaintexts = {new_plaintext() for _ in range(100)}
    ids = {new_token_id() for _ in range(100)}
    assert len(plaintexts) == len(ids) == 100
    assert all(len(text) == 41 and bearer_text([f"Bearer {text}"]) for text in plaintexts)
    assert all(len(text) == 16 and text.startswith("tok-") for text in ids)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["Bearer x"], "x"),
        (["bearer x"], "x"),
        (["BEARER   x  "], "x"),
        ([b"Bearer x"], "x"),
        ([b"Bearer \xff"], "ÿ"),
        ([], None),
        (["Bearer x", "Bearer x"], None),
        (["Basic x"], None),
        (["Bearer"], None),
        (["Bearer "], None),
        (["Bearerx"], None),
        (["x"], None),
        ([""], None),
    ],
)
def test_the_credential_of_a_header(values: list[bytes | str], text: str | None) -> None:
    assert bearer_text(values) == text


@pytest.fixture
def registry(tokens_path: Path) -> TokenRegistry:
    return TokenRegistry.load(str(tokens_path))


@pytest.fixture
def issued(registry: TokenRegistry) -> IssuedToken:
    return registry.issue(SPEC)


def test_a_live_token(registry: TokenRegistry, issued: IssuedToken) -> None:
    for value in (f"Bearer {issued.plaintext}", f"bearer {issued.plaintext} ".encode()):
        assert registry.authenticate([value]) == Authentication(token=issued.record)


def test_missing_malformed_and_unknown(registry: TokenRegistry, issued: IssuedToken) -> None:
    def failure(*values: str) -> str | None:
        found = registry.authenticate(values)
        assert found.token is None
        assert found.token_id is None
        return found.failure

    good = issued.plaintext
    assert failure() == "missing"
    assert failure(f"Bearer {good}", f"Bearer {good}") == "missing"
    assert failure(f"Token {good}") == "missing"
    assert failure("Bearer ") == "missing"
    for malformed in (good.upper(), good[:-1], good + "0", f"{good} x", "maad_pat_" + "g" * 32):
        assert failure(f"Bearer {malformed}") == "malformed"
    assert failure(f"Bearer {NEVER_ISSUED}") == "unknown"


def test_revoked(registry: TokenRegistry, issued: IssuedToken) -> None:
    registry.revoke(issued.record.id)
    found = registry.authenticate([f"Bearer {issued.plaintext}"])
    assert found == Authentication(failure="revoked", token_id=issued.record.id)


def test_expired(registry: TokenRegistry) -> None:
    issued = registry.issue(
        TokenSpec(Role.READER, (ProjectGrant("*"),), expires_at="2032-01-01T00:00:00Z")
    )
    expiry = parse_timestamp("2032-01-01T00:00:00Z")
    assert expiry is not None
    header = [f"Bearer {issued.plaintext}"]
    assert registry.authenticate(header, now=expiry - 1).token == issued.record
    assert registry.authenticate(header, now=expiry).token == issued.record
    assert registry.authenticate(header, now=expiry + 0.001) == Authentication(
        failure="expired", token_id=issued.record.id
    )


def test_revoked_goes_before_expired(registry: TokenRegistry) -> None:
    issued = registry.issue(TokenSpec(Role.READER, (ProjectGrant("*"),), expires_at="2032-01-01"))
    registry.revoke(issued.record.id)
    found = registry.authenticate([f"Bearer {issued.plaintext}"], now=4e9)
    assert found.failure == "revoked"
