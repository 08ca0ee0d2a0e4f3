"""Commits of single writes that could not be made yet (spec 03 §9.3)."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from maadd_worker.history.outcome import CommitRequest, GitFailure
from maadd_worker.history.retry import Retry

KEPT_BYTES = 16 * 1024 * 1024
"""How much published content is kept for later commits; what is beyond is read from the disk."""


class PendingCommits:
    """The requests that wait, oldest first. Changed by the writer's thread only; `count` may
    be asked from any."""

    __slots__ = ("_requests", "retry")

    def __init__(self) -> None:
        self._requests: tuple[CommitRequest, ...] = ()
        self.retry = Retry()

    @property
    def requests(self) -> tuple[CommitRequest, ...]:
        return self._requests

    @property
    def count(self) -> int:
        """How many writes wait: a bulk of twelve counts twelve."""
        return sum(request.write_count for request in self._requests)

    @property
    def ahead(self) -> tuple[CommitRequest, ...]:
        """What has to be committed before any newer write, since nothing but a lock or an
        unfinished operation of somebody else stands in its way."""
        return self._requests if self.retry.is_temporary else ()

    def replace(
        self,
        tried: Sequence[CommitRequest],
        failed: Sequence[CommitRequest],
        failure: GitFailure | None,
        written: Set[str],
        *,
        is_retry: bool,
    ) -> None:
        """Take note of an attempt: `failed` of `tried` wait on, for `failure`; the paths in
        `written` now have newer commits."""
        gone = {id(request) for request in tried}
        waiting = [request for request in self._requests if id(request) not in gone]
        waiting += failed
        size = sum(_size(request) for request in waiting)
        self._requests = tuple(
            msgspec.structs.replace(request, contents={})
            if size > KEPT_BYTES or not written.isdisjoint(request.paths)
            else request
            for request in waiting
        )
        if failure is not None:
            self.retry.failed(failure, again=is_retry)
        elif not waiting:
            self.retry.clear()


def _size(request: CommitRequest) -> int:
    return sum(len(data) for data in request.contents.values() if data is not None)
