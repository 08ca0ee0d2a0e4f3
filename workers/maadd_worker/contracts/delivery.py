"""Complete delivery in pages: `compact-json-v1` asked, `complete-json-v1` given (spec 05 §9).

The read behind it always runs first, fresh and complete; a page shows a part of what the
first of them saw, for as long as a fresh look sees the same.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from maadd.protocol.arguments import Delivery
from maadd.protocol.canonical_json import DELIVERY, canonical_json, scalar_json, sha256_hex
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import ResultBudget
from maadd.protocol.shape_json import ENCODING, pack_canonical
from maadd.protocol.size import result_size, success_text
from maadd_worker.contracts.snapshots import (
    LIFETIME_MS,
    Snapshot,
    Snapshots,
    new_snapshot_units,
)

FORMAT = "complete-json-v1"
MAX_PACKED_BYTES = 1_048_576
_CURSOR = re.compile(r"([0-9a-f-]{36}):([0-9]{1,7})", re.ASCII)
_REQUEST_ID = "0" * 36


class Observed(msgspec.Struct, frozen=True):
    """The answer of a strict read, before it is cut.

    `parameters` are the canonical arguments without `delivery`, `moving` the members that tell
    of the look itself (the time of it) and not of what was seen.
    """

    tool: str
    session_id: str
    epoch: int
    parameters: str
    data: dict[str, Any]
    moving: tuple[str, ...] = ()
    meta: dict[str, Any] | None = None


def measured(data: bytes, budget: ResultBudget, meta: dict[str, Any] | None) -> int:
    """The size of the MCP result around this data, as the front will put it together."""
    stamped = {"request_id": _REQUEST_ID, **(meta or {})} if budget.emits_request_id else meta
    text = success_text(data, source=budget.source, meta=stamped)
    return result_size(text, structured=budget.structured)


def parse_cursor(cursor: str) -> tuple[str, int] | None:
    """Snapshot id and offset of a cursor, None when it is none."""
    match = _CURSOR.fullmatch(cursor)
    return None if match is None else (match[1], int(match[2]))


def delivery_text(tool: str, data: dict[str, Any]) -> str:
    """The canonical text of an answer; the bounds of delivery in the details of a refusal."""
    try:
        return canonical_json(data, DELIVERY)
    except MaadError as failure:
        details = {
            "tool": tool,
            "capNodes": DELIVERY.nodes,
            "maxDepth": DELIVERY.depth,
            "capScalarBytes": DELIVERY.scalar_bytes,
            "hint": "The content is too large to be delivered",
        }
        raise MaadError(failure.code, failure.message, details) from failure


def deliver(
    snapshots: Snapshots, observed: Observed, delivery: Delivery, budget: ResultBudget
) -> str:
    """One page as JSON.

    Raises RECEIPT_OBSERVATION_CHANGED for a cursor that does not lead on: throw all pages
    away and start over; RESPONSE_TOO_LARGE where no page can fit.
    """
    text = delivery_text(observed.tool, observed.data)
    still = {**observed.data, **dict.fromkeys(observed.moving)} if observed.moving else None
    seen = sha256_hex(text if still is None else delivery_text(observed.tool, still))
    if delivery.cursor is not None:
        return _next_page(snapshots, observed, delivery, budget, seen)
    snapshots.prune(observed.epoch)
    packed = pack_canonical(text)
    units, total_bytes = new_snapshot_units(packed)
    if total_bytes > MAX_PACKED_BYTES:
        raise _too_large(observed.tool, total_bytes, MAX_PACKED_BYTES)
    cap = budget.cap_bytes if delivery.max_bytes is None else delivery.max_bytes
    snapshot = Snapshot(
        id=snapshots.new_id(),
        epoch=observed.epoch,
        session_id=observed.session_id,
        tool=observed.tool,
        parameters=observed.parameters,
        units=units,
        total_bytes=total_bytes,
        digest=sha256_hex(text),
        packed_digest=sha256_hex(packed),
        observation=seen,
        expires_at=snapshots.now_ms() + LIFETIME_MS,
        cap=min(cap, budget.cap_bytes),
        first_cap=budget.cap_bytes,
    )
    page = _Cutter(snapshot, budget, observed.meta).cut(0, snapshot.cap)
    if snapshot.issued:
        snapshots.keep(snapshot)
    return page


def _next_page(
    snapshots: Snapshots,
    observed: Observed,
    delivery: Delivery,
    budget: ResultBudget,
    seen: str,
) -> str:
    assert delivery.cursor is not None
    cursor = parse_cursor(delivery.cursor)
    snapshot = None if cursor is None else snapshots.find(cursor[0], observed.epoch)
    if (
        cursor is None
        or snapshot is None
        or snapshot.session_id != observed.session_id
        or snapshot.tool != observed.tool
        or snapshot.parameters != observed.parameters
    ):
        raise _start_over(observed.tool, "the cursor does not belong to this request")
    if snapshot.observation != seen:
        snapshots.drop(snapshot)
        raise _start_over(observed.tool, "what the pages show has changed")
    wanted = delivery.max_bytes
    if wanted is not None and min(wanted, snapshot.first_cap) != snapshot.cap:
        raise _start_over(observed.tool, "maxBytes differs from that of the first page")
    if cursor[1] not in snapshot.issued:
        raise _start_over(observed.tool, "no page ended there")
    cutter = _Cutter(snapshot, budget, observed.meta)
    return cutter.cut(cursor[1], min(snapshot.cap, budget.cap_bytes))


class _Cutter:
    """Cuts the largest page that fits, measuring whole results."""

    __slots__ = ("_budget", "_meta", "_snapshot")

    def __init__(
        self, snapshot: Snapshot, budget: ResultBudget, meta: dict[str, Any] | None
    ) -> None:
        self._snapshot = snapshot
        self._budget = budget
        self._meta = meta

    def cut(self, start: int, cap: int) -> str:
        """The page from `start` on; its end is noted as a cursor where more follows."""
        snapshot = self._snapshot
        total = snapshot.total_characters
        # A character takes at least one byte of the result.
        if total - start <= cap:
            page = self._page(start, total)
            if self._size(page) <= cap:
                return page
        fits, beyond = start, min(total, start + cap)
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            if self._size(self._page(start, middle)) <= cap:
                fits = middle
            else:
                beyond = middle
        if snapshot.splits_pair(fits) and fits - 1 > start:
            fits -= 1
        if fits == start:
            smallest = self._size(self._page(start, min(start + 1, total)))
            raise _too_large(snapshot.tool, smallest, cap)
        snapshot.issued.add(fits)
        return self._page(start, fits)

    def _size(self, page: str) -> int:
        return measured(page.encode(), self._budget, self._meta)

    def _page(self, start: int, end: int) -> str:
        snapshot = self._snapshot
        total = snapshot.total_characters
        complete = end == total
        cursor = "null" if complete else f'"{snapshot.id}:{end}"'
        return (
            f'{{"delivery":"{FORMAT}","encoding":"{ENCODING}","snapshotId":"{snapshot.id}",'
            f'"digest":"{snapshot.digest}","packedDigest":"{snapshot.packed_digest}",'
            f'"totalBytes":{snapshot.total_bytes},"totalCharacters":{total},'
            f'"offset":{start},"endOffset":{end},"expiresAt":{snapshot.expires_at},'
            f'"complete":{"true" if complete else "false"},"nextCursor":{cursor},'
            f'"chunk":{scalar_json(snapshot.chunk(start, end))}}}'
        )


def _start_over(tool: str, problem: str) -> MaadError:
    return MaadError(
        "RECEIPT_OBSERVATION_CHANGED",
        f"{problem}; throw away all pages and begin again without a cursor",
        {"tool": tool, "hint": "Discard every page and restart without a cursor"},
    )


def _too_large(tool: str, observed: int, cap: int) -> MaadError:
    return MaadError(
        "RESPONSE_TOO_LARGE",
        f"the answer has {observed} bytes packed, {cap} are allowed",
        {
            "tool": tool,
            "observedBytes": observed,
            "capBytes": cap,
            "hint": "Raise maxBytes or MAAD_CONTRACT_RESPONSE_MAX_BYTES"
            if cap != MAX_PACKED_BYTES
            else "The answer is too large to be delivered",
        },
    )
