"""Caps on page sizes, and the advice that scopes give (spec 02 §2.2, §2.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.scope import Scope
from maadd_worker.outcome import Advice
from maadd_worker.schema.model import Model


class Clamp(msgspec.Struct, frozen=True):
    """A limit as it is applied, and what was asked for when that was above the cap."""

    applied: int
    requested: int | None = None

    def report(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """Add `limitClamped` to `data`; the same for `_meta`, None without a clamp."""
        if self.requested is None:
            return None
        pair = {"requested": self.requested, "applied": self.applied}
        data["limitClamped"] = pair
        return {"limit_clamped": pair}


def clamp(requested: int, cap: int) -> Clamp:
    """At most `cap`; a limit equal to the cap is not clamped."""
    return Clamp(requested) if requested <= cap else Clamp(cap, requested)


def scope_advice(scope: Scope) -> list[Advice]:
    """The scope's warnings as `_meta.warnings` entries."""
    return [Advice(found.field, found.message, found.code) for found in scope.warnings]


def type_advice(model: Model, doc_type: str | None) -> list[Advice]:
    """UNKNOWN_TYPE for a type that is not registered; such a type simply has no records."""
    if doc_type is None or doc_type in model.registry.types:
        return []
    try:
        model.entry(doc_type)
    except MaadError as error:
        return [Advice("docType", error.message, "UNKNOWN_TYPE")]
    return []


def index_advice(
    model: Model, doc_type: str | None, fields: Iterable[str], consequence: str
) -> list[Advice]:
    """FIELD_NOT_INDEXED for names the type's schema does not index; empty without a schema."""
    if doc_type is None:
        return []
    try:
        declared = model.schema(doc_type).fields
    except MaadError:
        return []
    return [
        Advice(
            name, f'"{name}" is no indexed field of "{doc_type}"{consequence}', "FIELD_NOT_INDEXED"
        )
        for name in dict.fromkeys(fields)
        if name not in declared or not declared[name].index
    ]
