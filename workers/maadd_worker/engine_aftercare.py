"""What an engine still owes after its answers: the lag of the history, the write-back of the
log, the ends of integrity sweeps and the traces of deleted text."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from maadd_worker.disk.journal import Journal
from maadd_worker.history.controller import HistoryController
from maadd_worker.index.store import Index
from maadd_worker.read.context import IntegritySweep
from maadd_worker.read.health import SWEEP_AT_KEY, SWEEP_FINDINGS_KEY

_AFTER_LOAD_S = 0.05
_FORGET_AFTER_S = 0.05
_FORGET_RETRY_S = 1.0
_LONG_LOG_BYTES = 1024 * 1024
_QUIET_S = 1.0
"""Without a change for so long, a long log is not worth its space any more."""


class Aftercare:
    """The work between calls. `settle` runs on the writer thread, `keep_sweep` on any. `adopt`
    takes files that differ from Git for edits to commit, and gives those that it took."""

    def __init__(
        self,
        index: Index,
        journal: Journal | None,
        history: HistoryController,
        record_paths: Callable[[], list[str]],
        adopt: Callable[[set[str]], set[str]],
    ) -> None:
        self._index = index
        self._journal = journal
        self._history = history
        self._record_paths = record_paths
        self._adopt = adopt
        self._sweeps: deque[IntegritySweep] = deque(maxlen=1)
        self._wake: Callable[[], None] = _nobody
        self._inspected = False
        self._must_forget = False
        self._last_change = (0, 0.0)
        """How many changes the index had seen, and when that was noticed."""

    def connect_wake(self, wake: Callable[[], None]) -> None:
        """Hand over what has the writer thread call `settle`; a finished sweep uses it."""
        self._wake = wake

    def keep_sweep(self, sweep: IntegritySweep) -> None:
        """Have the writer thread keep the end of an integrity sweep."""
        self._sweeps.append(sweep)
        self._wake()

    def owe_forgetting(self) -> None:
        """A record was deleted for good: its text must leave the logs of SQLite too."""
        self._must_forget = True

    def inspect_again(self) -> None:
        """The index has taken files over that nobody watched: they may not be committed."""
        self._inspected = False

    def keep_meta(self, values: Mapping[str, str | None]) -> None:
        """Remember values about the project in the index; None forgets one."""
        writer = self._index.writer()
        with writer.transaction():
            for key, value in values.items():
                writer.meta_set(key, value)

    def settle(self, idle: bool) -> float | None:
        """Finish what lags behind the answers; seconds until it wants to be called again."""
        read_only = self._journal is None
        if self._sweeps and not read_only:
            sweep = self._sweeps.pop()
            findings = msgspec.json.encode(sweep.findings).decode()
            self.keep_meta({SWEEP_AT_KEY: sweep.completed_at, SWEEP_FINDINGS_KEY: findings})
        wait = self._history.settle(idle)
        if idle and not self._inspected:
            self._inspected = self._history.inspect_worktree(self._record_paths(), self._adopt)
        if not read_only and self._index.writer().log_held:
            if idle:
                self._index.writer().write_log_back()
            else:
                wait = sooner(wait, _AFTER_LOAD_S)
        if not read_only and self._index.log_bytes > _LONG_LOG_BYTES:
            wait = sooner(wait, self._cut_log(idle))
        if self._must_forget:
            wait = sooner(wait, self._forget_deleted(idle))
        return wait

    def _cut_log(self, idle: bool) -> float | None:
        """Once it is quiet: give the space of a long log back."""
        changes, now = self._index.writer().connection.total_changes(), time.monotonic()
        if changes != self._last_change[0] or not idle:
            self._last_change = (changes, now)
        quiet = now - self._last_change[1]
        if quiet < _QUIET_S:
            return _QUIET_S - quiet
        return None if self._index.cut_log() else _FORGET_RETRY_S

    def _forget_deleted(self, idle: bool) -> float | None:
        """After hard deletes and purges: no copy of the text stays in a log of SQLite, once the
        history step has let go of it and nobody reads."""
        assert self._journal is not None
        if not idle:
            return _FORGET_AFTER_S
        if not self._journal.is_empty() or not self._index.forget_deleted():
            return _FORGET_RETRY_S
        self._journal.forget_completed()
        self._must_forget = False
        return None


def sooner(one: float | None, other: float | None) -> float | None:
    """The shorter of two waits, where None is no wait at all."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _nobody() -> None:
    """Nobody waits for a wake-up: an engine without a worker process settles by itself."""
