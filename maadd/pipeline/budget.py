"""The response size guard, the last step of every call (spec 04 §1.1, 02 §1.4)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.errors import MaadError
from maadd.protocol.size import result_size
from maadd.protocol.tools import ToolKind, ToolSpec

_CONTRACT_CEILING = 1_048_576
_PATHS_HINT = "Reduce depth, node, edge, or path limits; or add field and extraction-kind filters"


def contract_budget(configured: int) -> int:
    """The bytes that the result of a strict tool may have (spec 05 §8.1)."""
    return min(configured, _CONTRACT_CEILING)


def check_budget(
    spec: ToolSpec,
    kind: ToolKind,
    text: bytes,
    *,
    ordinary_cap: int,
    contract_cap: int,
    structured: bool,
    rows: int | None,
) -> None:
    """RESPONSE_TOO_LARGE when the whole MCP result of a success exceeds its budget."""
    cap = contract_budget(contract_cap) if spec.strict else ordinary_cap
    size = result_size(text, structured=structured)
    if size <= cap:
        return
    details: dict[str, Any] = {
        "tool": spec.name,
        "observedBytes": size,
        "capBytes": cap,
        "accounting": "mcp-result-utf8",
        "writeOutcome": "unknown_reconcile" if kind is ToolKind.WRITE else "read_only",
        "hint": _hint(spec, kind),
    }
    if kind is not ToolKind.WRITE and not spec.strict:
        details["projectedBytes"] = size
        if rows:
            details["rowCount"] = rows
            details["suggestedLimit"] = max(1, int(rows * cap / size * 0.9))
    raise MaadError(
        "RESPONSE_TOO_LARGE", f"the answer has {size} bytes, the budget is {cap}", details
    )


def _hint(spec: ToolSpec, kind: ToolKind) -> str:
    if kind is ToolKind.WRITE:
        return "The write may have happened: reconcile by receipt or read, never repeat it blindly"
    if spec.strict:
        return "Retry with compact delivery pages"
    if spec.name == "maad_relationship_paths":
        return _PATHS_HINT
    return "Ask for a narrower projection, more filters or smaller pages"
