"""The response size guard, the last step of every call (spec 04 §1.1, 02 §1.4)."""

from __future__ import annotations

from typing import Any

from maadd.pipeline.shorten import shorten
from maadd.protocol.errors import MaadError
from maadd.protocol.size import result_size
from maadd.protocol.tools import ToolKind, ToolSpec

_CONTRACT_CEILING = 1_048_576
_REST_OF_TOKENS = "maad_show_token shows the token"
_REST_OF_RECORDS = (
    "maad_changes_since lists the records that were changed; fewer items in a call, or a smaller "
    "maxRecords, have shorter answers"
)
_REST_OF_DELETIONS = (
    "maad_changes_since with includeDeletes: true lists the records that were deleted; fewer "
    "items in a call have shorter answers"
)
_REST_OF_PREVIEWS = (
    "what is counted, and a previewToken, are those of the whole scope; a narrower one lists all "
    "that it holds"
)
_REST = {
    "maad_reindex": "maad_reindex of one docType or path lists what concerns it",
    "maad_instance_reload": "maad_projects lists the projects",
    "maad_use_projects": "maad_current_session lists the projects",
    "maad_projects": "the instance file lists the projects",
    "maad_list_tokens": "maad_show_token shows one by its id; `maad auth list-tokens` lists all",
    "maad_bulk_delete": _REST_OF_DELETIONS,
    "maad_delete_where": _REST_OF_DELETIONS,
    "maad_purge_soft_deleted": _REST_OF_DELETIONS,
}
_PATHS_HINT = "Reduce depth, node, edge, or path limits; or add field and extraction-kind filters"


def contract_budget(configured: int) -> int:
    """The bytes that the result of a strict tool may have (spec 05 §8.1)."""
    return min(configured, _CONTRACT_CEILING)


def within_budget(
    spec: ToolSpec,
    kind: ToolKind,
    text: bytes,
    *,
    ordinary_cap: int,
    contract_cap: int,
    structured: bool,
    rows: int | None,
) -> bytes:
    """The envelope of a success whose whole MCP result keeps its budget.

    What a call that changed something has to say is cut until it does, and the preview of one,
    which counts all of it, and what the front itself tells, which no argument could make less;
    of any other, and where no cut is enough, RESPONSE_TOO_LARGE.
    """
    cap = contract_budget(contract_cap) if spec.strict else ordinary_cap
    size = result_size(text, structured=structured)
    if size <= cap:
        return text
    preview = spec.confirm and kind is ToolKind.READ
    if preview or kind is not ToolKind.READ:
        rest = _REST_OF_PREVIEWS if preview else _rest(spec)
        short = shorten(text, lambda one: result_size(one, structured=structured), cap, rest)
        if short is not None:
            return short
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
        if rows and not preview:
            details["rowCount"] = rows
            details["suggestedLimit"] = max(1, int(rows * cap / size * 0.9))
    raise MaadError(
        "RESPONSE_TOO_LARGE", f"the answer has {size} bytes, the budget is {cap}", details
    )


def _rest(spec: ToolSpec) -> str:
    """Where to see what was cut from the answer of a call that was carried out."""
    if spec.name in _REST:
        return _REST[spec.name]
    return _REST_OF_TOKENS if spec.name.endswith("_token") else _REST_OF_RECORDS


def _hint(spec: ToolSpec, kind: ToolKind) -> str:
    if kind is ToolKind.WRITE:
        return "The write may have happened: reconcile by receipt or read, never repeat it blindly"
    if spec.strict:
        return "Retry with compact delivery pages"
    if spec.confirm:
        return "Nothing was written; narrow the scope of the call"
    if spec.name == "maad_relationship_paths":
        return _PATHS_HINT
    return "Ask for a narrower projection, more filters or smaller pages"
