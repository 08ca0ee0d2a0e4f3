"""Arguments as the ops log may show them: names, sizes and ids, never content (spec 03 §2.6)."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import msgspec

from maadd.protocol.arguments.base import Arguments
from maadd.protocol.arguments.read import SemanticSearchArgs
from maadd.protocol.tools import ToolSpec

_CONTENT = frozenset({"body", "appendBody", "expected", "value", "query", "contains", "message"})
"""Arguments that hold record content or free text: logged as a byte count."""

_NAMES = {"fields": "fieldNames", "filters": "filterFields"}
"""Arguments whose keys may be shown, but not their values."""

_MAX_NAMES = 100
_MAX_CHARACTERS = 200


def project_arguments(spec: ToolSpec, arguments: Arguments) -> dict[str, Any]:
    """The loggable form of a call's arguments, by wire name; defaults are left out.

    Content becomes `<name>Bytes`, `fields` becomes `fieldNames`, lists (records, updates, ids)
    become `<name>Count` and `<name>Bytes`; other scalars stay, long ones cut. A tool with the
    confirm contract also tells its `confirm_mode`.
    """
    projected: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(arguments).items():
        projected |= _projection(name, value)
    if spec.confirm:
        projected.pop("confirm", None)
        confirmed = getattr(arguments, "confirm", None) is True
        projected["confirm_mode"] = "confirmed" if confirmed else "dry_run"
    return projected


def search_members(arguments: Arguments) -> dict[str, Any]:
    """What the log tells of a search of bodies: how it was asked, never for what (spec 02 §1.8);
    empty for any other call."""
    if not isinstance(arguments, SemanticSearchArgs):
        return {}
    scoped = arguments.doc_type is not None or arguments.filters is not None
    return {"mode": arguments.mode, "k": arguments.k, "scoped": scoped}


def _projection(name: str, value: Any) -> dict[str, Any]:
    if name in _NAMES and isinstance(value, dict):
        return {_NAMES[name]: [_cut(key) for key in islice(value, _MAX_NAMES)]}
    if isinstance(value, (list, tuple)):
        return {f"{name}Count": len(value), f"{name}Bytes": _size(value)}
    if name in _CONTENT or name in _NAMES or isinstance(value, dict):
        return {f"{name}Bytes": _size(value)}
    return {name: _cut(value) if isinstance(value, str) else value}


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"


def _size(value: Any) -> int:
    """UTF-8 bytes of a text, else of the compact JSON of a value."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
    return len(text.encode("utf-8", "surrogatepass"))
