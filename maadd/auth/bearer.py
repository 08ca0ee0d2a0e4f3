"""The `Authorization` header (spec 04 §9.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from maadd.auth.record import TokenRecord

AuthFailure = Literal["missing", "malformed", "unknown", "revoked", "expired"]

PLAINTEXT = re.compile(r"maad_pat_[0-9a-f]{32}", re.ASCII)
"""A bearer of ours; match it whole."""


class Authentication(msgspec.Struct, frozen=True):
    """Either a live `token`, or the `failure` and, where one was found, the dead token's id.

    Clients get the same answer for every failure; the reason is for the log.
    """

    token: TokenRecord | None = None
    failure: AuthFailure | None = None
    token_id: str | None = None


def bearer_text(values: Sequence[bytes | str]) -> str | None:
    """The credential of the one `Authorization` header; None counts as missing."""
    if len(values) != 1:
        return None
    value = values[0]
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    scheme, _, credential = text.partition(" ")
    if scheme.lower() != "bearer":
        return None
    return credential.strip() or None
