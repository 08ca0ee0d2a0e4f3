"""No secret reaches a log line (spec 04 §16)."""

from __future__ import annotations

from typing import Any

import pytest

from maadd.auth.record import TokenRecord
from maadd.ops.redaction import is_secret_key, scrub_members, scrub_text
from maadd.protocol.roles import Role

TOKEN = "maad_pat_" + "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        (TOKEN, "maad_pat_[redacted]"),
        (f"Bearer {TOKEN}", "Bearer maad_pat_[redacted]"),
        (f"a {TOKEN}, b {TOKEN}.", "a maad_pat_[redacted], b maad_pat_[redacted]."),
        (TOKEN[:20], "maad_pat_[redacted]"),
        (TOKEN[:9] + TOKEN[9:].upper(), "maad_pat_[redacted]"),
        ("Authorization: Bearer sk-abcdefghijklmnop1234", "Authorization: Bearer [redacted]"),
        ("the bearer is missing", "the bearer is missing"),
        ("tok-4be1c07a92d3", "tok-4be1c07a92d3"),
        ("maad_pat_", "maad_pat_"),
    ],
)
def test_texts(text: str, scrubbed: str) -> None:
    assert scrub_text(text) == scrubbed


SECRET_KEYS = """
    authorization Authorization proxy-authorization headers.authorization token args.token
    access_token refreshToken bearer bearerValue secret client_secret api_key apiKey API-KEY
    x-api-key password db_password PASSWD
"""
OTHER_KEYS = """
    token_id bound_token_id tokenId tokens tokens_total author key keys payload_size
"""


@pytest.mark.parametrize("key", SECRET_KEYS.split())
def test_secret_keys(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", OTHER_KEYS.split())
def test_other_keys(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("members", "scrubbed"),
    [
        ({"a": 1, "b": None, "c": True, "d": 1.5}, {"a": 1, "b": None, "c": True, "d": 1.5}),
        ({"token": 7, "token_id": "tok-1"}, {"token": "[redacted]", "token_id": "tok-1"}),
        (
            {"args": {"headers": [{"Authorization": ["x"]}, {"deep": {"secret": None}}]}},
            {
                "args": {
                    "headers": [{"Authorization": "[redacted]"}, {"deep": {"secret": "[redacted]"}}]
                }
            },
        ),
        (
            {"list": [TOKEN, (TOKEN,), {TOKEN}]},
            {"list": ["maad_pat_[redacted]"] + [["maad_pat_[redacted]"]] * 2},
        ),
        ({TOKEN: {TOKEN: 1}}, {"maad_pat_[redacted]": {"maad_pat_[redacted]": 1}}),
        ({"raw": TOKEN.encode(), "bad": b"\xff"}, {"raw": "maad_pat_[redacted]", "bad": "\ufffd"}),
        (
            {"error": ValueError(TOKEN), "role": Role.ADMIN},
            {"error": "maad_pat_[redacted]", "role": 2},
        ),
        ({"map": {1: {2: TOKEN}}}, {"map": {"1": {"2": "maad_pat_[redacted]"}}}),
    ],
)
def test_members_at_any_depth(members: dict[str, Any], scrubbed: dict[str, Any]) -> None:
    assert scrub_members(members) == scrubbed


def test_what_clients_send_is_cut() -> None:
    shown = scrub_members({"tool": "x" * 900_000, "deep": [{"a": "ü" * 5000}], "b": b"y" * 5000})
    assert shown["tool"] == "x" * 4096 + "… (900000 characters)"
    assert shown["deep"][0]["a"] == "ü" * 4096 + "… (5000 characters)"
    assert len(shown["b"]) < 4200
    # A secret does not come back by being cut in the middle.
    assert "abcdef" not in scrub_members({"a": "z" * 4090 + "maad_pat_abcdef" * 9})["a"]


def test_a_token_record_loses_its_hash() -> None:
    record = TokenRecord("tok-1", "9c1d" * 16, Role.ADMIN, (), "2031-01-01T00:00:00Z")
    shown = str(scrub_members({"record": record, "records": [record]}))
    assert "tok-1" in shown
    assert "9c1d" not in shown
