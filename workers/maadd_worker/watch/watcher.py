"""The thread that follows the files of a project (spec 01 §14.7, design §8).

It finds and never writes: paths that may have changed go to the writer. Events are hints; a
survey of all files stands behind them at the start, after a large burst, when a watched folder
was replaced, and every so often.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from watchfiles import Change
from watchfiles._rust_notify import RustNotify

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.documents import find_documents_by_path
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.reader import IndexReader
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.schema.model import stale_files
from maadd_worker.watch.findings import Findings
from maadd_worker.watch.places import (
    interest,
    is_tombstone,
    is_walked,
    watched_folders,
    watched_places,
)
from maadd_worker.watch.survey import Survey, survey

_DEBOUNCE_MS = 400
_STEP_MS = 100
_LOOK_AROUND_MS = 1_000
"""How often the watched folders are compared with those there are."""

_MOVE_S = 0.5
"""How long a file may be missing before it counts as deleted: a moved one appears elsewhere."""

_LARGE_BURST = 1_000
"""Events at once, above which some may have been lost: everything is looked at."""

_POLL_S = 2.0
_POLL_SHARE = 20
"""Polling takes at most one part in so many of a processor."""

_RETRY_S = 60.0

Mode = Literal["native", "poll"]


class Watcher:
    """Follows one project. `start` and `stop` are for its owner, the rest for any thread."""

    def __init__(
        self,
        root: ProjectRoot,
        findings: Findings,
        plans: Callable[[], TypePlans],
        open_reader: Callable[[], IndexReader],
        settings: WorkerSettings,
        wake: Callable[[], None],
        warn: Callable[..., None],
    ) -> None:
        self._root = root
        self._findings = findings
        self._plans = plans
        self._open_reader = open_reader
        self._settings = settings
        self._wake = wake
        self._warn = warn
        self._stop = threading.Event()
        self._survey_wanted = threading.Event()
        self._mode: Mode = "poll" if settings.watch == "poll" else "native"
        self._degraded: str | None = None
        self._kept: tuple[str, ...] = ()
        self._last_event_at: str | None = None
        self._overflows = 0
        self._covered: tuple[str, ...] = ()
        self._missing: dict[str, float] = {}
        """Paths that an event of theirs told of and that are not there, with the time."""
        self._next_survey = 0.0
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it; safe without a start."""
        self._stop.set()
        self._survey_wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def covers(self, rel: str) -> bool:
        """Whether a project-relative path lies in a watched folder."""
        return rel.startswith(self._covered)

    def request_survey(self) -> None:
        """Have everything looked at soon: the model changed, or rows may be behind."""
        self._survey_wanted.set()

    def health(self) -> dict[str, Any]:
        """The member `watcher` of `maad_health` (spec 03 §6.3)."""
        return {
            "enabled": True,
            "mode": self._mode,
            "lastEventAt": self._last_event_at,
            "pendingEvents": self._findings.pending,
            "overflowTotal": self._overflows,
        }

    def advisories(self) -> list[dict[str, Any]]:
        """What a person should know: no native events, and rows kept without a file."""
        found = [{"code": "ROWS_KEPT", "message": text} for text in self._kept]
        if self._degraded is not None:
            found.append({"code": "WATCH_DEGRADED", "message": self._degraded})
        return found

    # -- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.closing(self._open_reader()) as reader:
            while not self._stop.is_set():
                try:
                    if self._mode == "poll":
                        self._poll(reader)
                    else:
                        self._watch(reader)
                except Exception as failure:
                    # The watch is lost; what it missed is found by the survey of the next one.
                    self._warn("watch_lost", error=f"{type(failure).__name__}: {failure}")
                    self._stop.wait(_POLL_S)

    def _watch(self, reader: IndexReader) -> None:
        """Follow the folders that there are now, until there are others."""
        places = watched_places(self._root, self._plans().model)
        folders = watched_folders(places)
        self._covered = tuple(
            f"{os.path.relpath(place.path, self._root.path)}/" for place in places
        )
        try:
            notify = RustNotify(
                [place.path for place in places] if folders is None else folders,
                False,
                False,
                0,
                folders is None,
                True,
            )
        except OSError as failure:
            if isinstance(failure, FileNotFoundError):
                return
            self._fall_back(failure)
            return
        self._degraded = None
        with notify:
            self._look_at_model()
            self._survey_wanted.set()
            while not self._stop.is_set():
                if self._survey_wanted.is_set() or _now() >= self._next_survey:
                    found = self._survey(reader)
                    # What stands in a folder that is not watched yet is left to the next watch,
                    # which will see it go.
                    if places != watched_places(self._root, self._plans().model):
                        return
                    self._add(found)
                patience_ms = int(_MOVE_S * 1000) if self._missing else _LOOK_AROUND_MS
                events = notify.watch(_DEBOUNCE_MS, _STEP_MS, patience_ms, self._stop)
                self._give_up_missing()
                self._look_at_model()
                if isinstance(events, set):
                    new_folders = self._take_events(reader, events)
                    if new_folders and folders is not None:
                        return
                if places != watched_places(self._root, self._plans().model):
                    return

    def _fall_back(self, failure: OSError) -> None:
        """No native events, most often because of a limit of the system: poll."""
        self._mode = "poll"
        self._degraded = (
            f"the system gives no events for the files of this project ({failure}); they are "
            "polled. Raise fs.inotify.max_user_watches and fs.inotify.max_user_instances"
        )
        self._warn("watch_degraded", reason=str(failure), mode="poll")

    def _poll(self, reader: IndexReader) -> None:
        began = time.monotonic()
        self._look_at_model()
        self._add(self._survey(reader))
        took = time.monotonic() - began
        self._survey_wanted.wait(max(_POLL_S, took * _POLL_SHARE))
        if self._degraded is not None and _now() >= self._next_survey:
            self._mode = "native"

    def _survey(self, reader: IndexReader) -> Survey:
        self._survey_wanted.clear()
        period = self._settings.reconcile_s or float("inf")
        self._next_survey = _now() + (min(period, _RETRY_S) if self._degraded else period)
        return survey(reader, self._root, self._plans(), self._findings.failed)

    def _add(self, result: Survey) -> None:
        for warning in result.warnings:
            if warning not in self._kept:
                self._warn("rows_kept", message=warning)
        self._kept = result.warnings
        failed = [path for path, _ in self._findings.failures()]
        ended = [path for path in failed if not os.path.lexists(self._absolute(path))]
        found = self._findings.add((*result.changed, *result.tombstones, *ended), "seen")
        if self._findings.add(result.gone, "absent") or found:
            self._wake()

    def _take_events(self, reader: IndexReader, events: set[tuple[int, str]]) -> bool:
        """Turn events into findings; whether folders were added."""
        model = self._plans().model
        records: set[str] = set()
        deleted: set[str] = set()
        folders = added = False
        for change, path in events:
            rel = os.path.relpath(path, self._root.path)
            kind = interest(rel, model)
            if kind == "record":
                records.add(rel)
                if change == Change.deleted:
                    deleted.add(rel)
            elif kind == "folder":
                came = change == Change.added and os.path.isdir(path)
                folders |= came or change == Change.deleted
                added |= came
        if records or folders:
            self._last_event_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if len(events) > _LARGE_BURST:
            self._overflows += 1
            folders = True
        if self._findings.add(self._foreign(reader, sorted(records), deleted), "seen"):
            self._wake()
        if folders:
            self._survey_wanted.set()
        return added

    def _look_at_model(self) -> None:
        """Have the registry and schemas read again when they are others. A few files, looked at
        whether or not events told of them: folders that go and come back tell of nothing."""
        if stale_files(self._root, self._plans().model):
            self._findings.note_model_change()
            self._wake()

    def _give_up_missing(self) -> None:
        """Files that stay away are taken for deleted."""
        long_ago = time.monotonic() - _MOVE_S
        lost = [path for path, since in self._missing.items() if since <= long_ago]
        for path in lost:
            del self._missing[path]
        if self._findings.add(lost, "deleted"):
            self._wake()

    def _foreign(self, reader: IndexReader, paths: list[str], deleted: set[str]) -> list[str]:
        """Those of the paths whose content the index does not hold: the program's own writes
        come back as events too. Of those that are not there, only the `deleted` ones count: the
        others went with their folder, which a survey judges. A file without a row that has failed
        is complained of no longer when it is not there."""
        known = find_documents_by_path(reader.connection, paths)
        model = self._plans().model
        foreign = []
        for path in paths:
            if is_tombstone(path):
                continue
            row = known.get(path)
            try:
                content = self._root.read(path, self._settings.max_doc_bytes or None)
            except MaadError:
                complained_of = row is None and self._findings.failed(path) is not None
                if complained_of or os.path.lexists(self._absolute(path)):
                    foreign.append(path)
                elif row is not None and path in deleted:
                    self._missing.setdefault(path, time.monotonic())
                continue
            if (row is None or row.file_hash != content_hash(content.data)) and is_walked(
                self._root, path, model
            ):
                foreign.append(path)
        return foreign

    def _absolute(self, path: str) -> str:
        return os.path.join(self._root.path, path)


def _now() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
