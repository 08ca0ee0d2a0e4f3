"""What an engine tells its ops log about the index (spec 01 §3.2, §14; 04 §16)."""

from __future__ import annotations

from collections.abc import Sequence

from maadd_worker.index.layout import LAYOUT_VERSION
from maadd_worker.index.pass_report import ChangedId, ReindexReport
from maadd_worker.instructions.scaffold import Notice

_SHOWN = 20


def reindex_events(report: ReindexReport) -> list[Notice]:
    """The warnings of a pass: files beyond the byte cap, records whose annotations were capped,
    and what the walk had to say; and the ids that were changed in place."""
    lines: list[Notice] = [
        Notice("doc_too_large", dict(error.details or {}))
        for error in report.errors
        if error.code == "DOC_TOO_LARGE"
    ]
    lines += truncated_events(report.partial)
    if report.warnings:
        members = {"count": len(report.warnings), "messages": list(report.warnings[:_SHOWN])}
        lines.append(Notice("index_scan_warnings", members))
    return lines + changed_id_events(report.changed_ids)


def truncated_events(records: int) -> list[Notice]:
    """So many records were indexed without the annotations beyond the cap (spec 01 §5.3)."""
    return [Notice("doc_body_truncated", {"records": records})] if records else []


def changed_id_events(changed: Sequence[ChangedId]) -> list[Notice]:
    """Files whose records got other ids by hand, each a line; of very many the first ones and
    how many there are."""
    lines = [
        Notice(
            "doc_id_changed_in_place",
            {"file": one.path, "old_doc_id": one.before, "doc_id": one.now},
            "info",
        )
        for one in changed[:_SHOWN]
    ]
    if len(changed) > _SHOWN:
        lines.append(Notice("doc_id_changed_in_place", {"count": len(changed)}, "info"))
    return lines


def stale_event(project: str, trigger: str | None, changed: Sequence[str]) -> Notice:
    """The registry or schemas were read again, before a write or because they are watched."""
    return Notice(
        "schema_cache_stale",
        {"project": project, "trigger_op": trigger or "watch", "changed_files": list(changed)},
    )


def layout_event(former: int) -> Notice:
    """The index file of an older or a newer program was set aside and is made anew."""
    made_by = "a newer program" if former > LAYOUT_VERSION else "an older program"
    members = {"former_layout": former, "layout": LAYOUT_VERSION, "made_by": made_by}
    return Notice("index_layout_changed", members)
