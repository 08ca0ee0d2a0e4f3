"""Writes that wait for a shared commit (spec 03 §7.3)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from maadd_worker.history.outcome import CommitRequest, LogicalWrite
from maadd_worker.history.pending import KEPT_BYTES


class DeferredWrites:
    """The writes since the last boundary, oldest first, and what they left at each path.

    Changed by the writer's thread only; `count` and `since` may be read from any.
    """

    __slots__ = ("_contents", "_kept_bytes", "_requests", "count", "since")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A boundary holds them all."""
        self._requests: list[CommitRequest] = []
        self._contents: dict[str, bytes | None] = {}
        self._kept_bytes = 0
        self.count = 0
        """A bulk of twelve counts twelve."""
        self.since = 0.0
        """Monotonic time of the oldest."""

    def append(self, request: CommitRequest) -> None:
        """One more write. Its content stays here while there is room, so that an edit made by
        hand until the boundary is not committed with it."""
        if not self._requests:
            self.since = time.monotonic()
        for path in request.paths:
            self._kept_bytes -= len(self._contents.pop(path, None) or b"")
            if path not in request.contents:
                continue
            data = request.contents[path]
            size = len(data or b"")
            if self._kept_bytes + size <= KEPT_BYTES:
                self._contents[path] = data
                self._kept_bytes += size
        self._requests.append(msgspec.structs.replace(request, contents={}))
        self.count += request.write_count

    @property
    def requests(self) -> Sequence[CommitRequest]:
        """Without their contents."""
        return self._requests

    def combined(self) -> CommitRequest:
        """One request for all of them; there is at least one."""
        return msgspec.structs.replace(combine(self._requests), contents=self._contents)


def combine(requests: Sequence[CommitRequest]) -> CommitRequest:
    """One request for several, which names every write and who made it; contents are left out.

    A single one keeps its own message.
    """
    first = requests[0]
    if len(requests) == 1:
        return first
    writes = tuple(write for request in requests for write in _writes_of(request))
    return CommitRequest(
        action=first.action,
        doc_id=first.doc_id,
        doc_type=first.doc_type,
        detail=f"batch:{len(writes)}",
        summary=f"Flushed {len(writes)} writes",
        paths=tuple(dict.fromkeys(path for request in requests for path in request.paths)),
        identity=first.identity,
        journal_ids=tuple(entry for request in requests for entry in request.journal_ids),
        writes=writes,
    )


def joined(requests: Sequence[CommitRequest]) -> list[list[CommitRequest]]:
    """The requests in the groups that can have one commit each, by the last member in order.

    What a request says of a file whose content is not known any more is read from the disk:
    that is what the last write left, so all writes of such a file share its commit.
    """
    groups: dict[int, list[CommitRequest]] = {}
    group_at: dict[str, int] = {}
    for number, request in enumerate(requests):
        met = {group_at[path] for path in request.paths if path in group_at}
        earlier = [one for key in sorted(met) for one in groups.pop(key)]
        groups[number] = [*earlier, request]
        for path in request.paths:
            if earlier or path not in request.contents:
                group_at[path] = number
        for one in earlier:
            group_at |= dict.fromkeys(one.paths, number)
    return list(groups.values())


def _writes_of(request: CommitRequest) -> list[LogicalWrite]:
    """The members of a request, each with who made it; none for files that are no records."""
    if not request.doc_id:
        return []
    if not request.writes:
        return [
            LogicalWrite(
                request.action, request.doc_id, request.doc_type, request.detail, request.identity
            )
        ]
    return [
        write
        if write.identity is not None
        else msgspec.structs.replace(write, identity=request.identity)
        for write in request.writes
    ]
