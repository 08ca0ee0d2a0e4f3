"""The arguments of the strict tools as the engine itself judges them (spec 05 §1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maadd.protocol.arguments.base import Arguments
from maadd.protocol.errors import MaadError
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments


def strict_arguments(tool: str, raw: Mapping[str, Any]) -> Arguments:
    """The typed arguments; INVALID_FIELDS for whatever does not fit.

    No name is passed over here: those that begin with `_` are unknown like any other.
    """
    hidden = [name for name in raw if name.startswith("_")]
    if hidden:
        raise MaadError("INVALID_FIELDS", f"{tool}: unknown argument {hidden[0][:128]!r}")
    try:
        return check_arguments(TOOLS[tool], dict(raw))
    except MaadError as failure:
        raise MaadError("INVALID_FIELDS", failure.message) from failure
