"""An engine's share in watching: its watcher, the backlog, and what is taken over of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec

from maadd.protocol.messages import Event, WorkerConfig
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.engine_events import changed_id_events, truncated_events
from maadd_worker.history.controller import HistoryController
from maadd_worker.history.external import ExternalEdits
from maadd_worker.index.connection import backend_error
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.store import Index
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.watch.findings import Findings
from maadd_worker.watch.lost_rows import look_for_lost_rows
from maadd_worker.watch.survey import survey
from maadd_worker.watch.watcher import Watcher
from maadd_worker.write.context import WriteContext
from maadd_worker.write.external import (
    ExternalChange,
    edited_record,
    event_of,
    take_over,
    uncommitted_records,
)

_IDLE_FILES = 250
_BUSY_FILES = 32
"""Files taken over before the next write gets its turn."""

_SHOWN_FAILURES = 20

_OFF = {
    "enabled": False, "mode": "off", "lastEventAt": None, "pendingEvents": 0, "overflowTotal": 0,
}  # fmt: skip


class Watching:
    """Made with the engine; watches only after `start`."""

    def __init__(
        self,
        config: WorkerConfig,
        root: ProjectRoot,
        index: Index,
        history: HistoryController,
        plans: Callable[[], TypePlans],
        context: Callable[[], WriteContext],
    ) -> None:
        self.findings = Findings()
        self.wanted = False
        """Whether a server wants its files followed."""
        self.wake: Callable[[], None] = _nobody
        self.warn: Callable[..., None] = _nobody_reads
        self.info: Callable[..., None] = _nobody_reads
        self._root = root
        self._index = index
        self._settings = config.settings
        self._plans = plans
        self._context = context
        self._edits = ExternalEdits.asked_for(config.history, root.held_path, history)
        self._watcher: Watcher | None = None
        self._look: threading.Thread | None = None

    def start(self) -> None:
        """Begin to follow the files; where the settings say off, look at them once."""
        if not self.wanted or self._watcher is not None:
            return
        if self._settings.watch == "off":
            if self._look is None:
                self._look = threading.Thread(target=self._look_once, name="look", daemon=True)
                self._look.start()
            return
        self._watcher = Watcher(
            self._root,
            self.findings,
            self._plans,
            self._index.reader,
            self._settings,
            lambda: self.wake(),
            lambda event, **members: self.warn(event, **members),
        )
        self._watcher.start()

    def take_over_first(self, progress: Callable[[str], None]) -> list[Event]:
        """Writer, at the start: take over every file as if it had just appeared, before anybody
        is told that there is none; what to tell subscribers. BACKEND_ERROR."""
        events: list[Event] = []
        try:
            with contextlib.closing(self._index.reader()) as reader:
                found = survey(reader, self._root, self._plans(), self.findings.failed)
            self.findings.add((*found.changed, *found.tombstones), "seen")
            while waiting := self.findings.pending:
                progress(f"{waiting} files to index")
                events += self.take_over(idle=True)
        except apsw.Error as failure:
            raise backend_error(failure, "filled") from failure
        return events

    def stop(self) -> None:
        """End watching."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._look is not None:
            self._look.join()

    def _look_once(self) -> None:
        look_for_lost_rows(self._root, self._index.reader, self._plans(), self.findings, self.warn)
        if self.findings.pending:
            self.wake()

    def wrote(self, path: str) -> None:
        """A file of our own: its folder may be one that nobody watches yet."""
        if self._watcher is not None and not self._watcher.covers(path):
            self._watcher.request_survey()

    def note(self, request_id: str, event: str, **members: object) -> None:
        """Log something to know of a call; any thread may."""
        self.info(event, request_id=request_id, **members)

    def model_changed(self) -> None:
        """Other rows may be due now, and files that failed may be in order."""
        self.findings.forget_failures()
        if self._watcher is not None:
            self._watcher.request_survey()

    @property
    def commits_edits(self) -> bool:
        """Whether edits are to be committed."""
        return self._edits is not None

    def commit_edits(self) -> None:
        """Writer: commit edits when it is quiet."""
        if self._edits is not None and not self.findings.pending:
            self._edits.settle()

    def next_wait(self) -> float | None:
        """Writer: seconds until edits want to be taken over or committed."""
        if self.findings.pending:
            return 0.0
        return self._edits.next_wait() if self._edits is not None else None

    def take_over(self, idle: bool) -> list[Event]:
        """Writer: index some of the backlog; what to tell subscribers."""
        findings = self.findings.take(_IDLE_FILES if idle else _BUSY_FILES)
        if not findings:
            return []
        try:
            done = take_over(self._context(), findings)
        except BaseException:
            self.findings.done({}, ())
            self.findings.put_back(findings)
            raise
        for path, failure in done.failed.items():
            self.warn("external_edit_failed", file=path, code=failure.error.code)
        capped = sum(one.row.partial for one in done.changes if one.action != "delete")
        for notice in truncated_events(capped):
            self.warn(notice.event, **notice.members)
        for notice in changed_id_events(done.changed_ids):
            self.info(notice.event, **notice.members)
        self.findings.done(done.failed, done.settled)
        if any(change.action == "delete" for change in done.changes):
            self.findings.retry_duplicates()
        return self.took_over(done.changes)

    def adopt(self, changed: set[str]) -> set[str]:
        """Writer: these files differ from Git although the index may have them, as when a stop
        came before the commit of edits. Those of them that will be committed."""
        if self._edits is None or not changed:
            return set()
        found = uncommitted_records(self._context(), sorted(changed))
        self._edits.add(found)
        return changed.intersection(path for edit in found for path in edit.paths)

    def finish_edits(self) -> None:
        """Writer: the project is being closed; edits are committed without the quiet moment."""
        if self._edits is not None:
            self._edits.settle(at_once=True)

    def took_over(self, changes: Sequence[ExternalChange]) -> list[Event]:
        """Writer: the index has these edits; what to tell subscribers."""
        if self._edits is not None:
            writer = self._index.writer()
            self._edits.add([edited_record(writer, change) for change in changes])
        return [event_of(change) for change in changes]

    def advise(self, tool: str, outcome: Outcome) -> Outcome:
        """The answer of a read, which says so when changed files are not in the index yet."""
        pending = self.findings.pending
        if not pending or tool in ("maad_health", "maad_get"):
            return outcome
        advice = Advice(
            "",
            f"{pending} files may have changed since they were indexed and are being looked at; "
            "ask again soon",
            "INDEX_BEHIND",
        )
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, advice))

    def health(self) -> dict[str, Any]:
        """The member `watcher` of `maad_health`."""
        if self._watcher is None:
            return {**_OFF, "pendingEvents": self.findings.pending}
        return self._watcher.health()

    def advisories(self) -> list[dict[str, Any]]:
        """Files that could not be taken over, and what is wrong with watching."""
        failed = self.findings.failures()
        found = [
            {"code": failure.error.code, "message": failure.error.message, "file": path}
            for path, failure in failed[:_SHOWN_FAILURES]
        ]
        if len(failed) > _SHOWN_FAILURES:
            more = len(failed) - _SHOWN_FAILURES
            found.append({"code": "FILES_NOT_INDEXED", "message": f"{more} more; see maad_reindex"})
        if self._edits is not None:
            found += self._edits.advisories()
        return found + ([] if self._watcher is None else self._watcher.advisories())


def _nobody() -> None:
    """Nobody waits."""


def _nobody_reads(_event: str, **_members: object) -> None:
    """Nobody reads the log."""
