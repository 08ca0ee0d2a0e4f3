"""One open project: its model, index, journal and history, and the calls on them.

Opened, written to and closed on one thread; reads come from several, each with its reader.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import apsw
import msgspec

from maadd.protocol.arguments import ReindexArgs
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call, CallProgress, Event, Reply, WorkerConfig
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments
from maadd_worker.contracts.host import HostContracts
from maadd_worker.contracts.tools import STRICT_TOOLS, shortened
from maadd_worker.disk.journal import Journal
from maadd_worker.disk.owner_lock import OwnerLock
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scaffold import make_backend, make_model_files
from maadd_worker.engine_aftercare import Aftercare, sooner
from maadd_worker.engine_events import layout_event, reindex_events, truncated_events
from maadd_worker.engine_jobs import ENDED_JOBS_KEY, JOBS_KEY, Jobs
from maadd_worker.engine_maintenance import Maintenance
from maadd_worker.engine_model import ModelInUse
from maadd_worker.engine_placement import keep_entries, placement_of, staying
from maadd_worker.engine_report import empty_advisories, free_mb, index_empty, model_advisories
from maadd_worker.engine_watch import Watching
from maadd_worker.engine_writes import RecordWrites, Refused
from maadd_worker.failpoints import arm, reach
from maadd_worker.gate import Gate
from maadd_worker.history.controller import HistoryController
from maadd_worker.history.outcome import HistoryOutcome
from maadd_worker.index.connection import backend_error
from maadd_worker.index.empty_guard import has_no_file, may_have_lost, unindexed_files
from maadd_worker.index.full_pass import PassSteps, run_steps
from maadd_worker.index.layout import INDEX_PATH
from maadd_worker.index.pass_report import ReindexReport
from maadd_worker.index.rebuilt import note_nothing_lost
from maadd_worker.index.store import Index, IndexReader
from maadd_worker.instructions.files import InstructionFiles
from maadd_worker.instructions.refresh import check_refresh
from maadd_worker.instructions.scaffold import Notice, bind_notices, scaffold
from maadd_worker.outcome import Backlog, Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.record_cache import RecordCache
from maadd_worker.read.tools import is_quick, read
from maadd_worker.replies import failure_reply, reply_of
from maadd_worker.schema.model import ModelRefresh, load_model
from maadd_worker.semantic.providers.embedder import Embedder
from maadd_worker.semantic.service import SemanticIndex
from maadd_worker.write.activity import WriteActivity
from maadd_worker.write.answer import event_of
from maadd_worker.write.bulk.tools import BULK_WRITES
from maadd_worker.write.context import WriteContext
from maadd_worker.write.group import Execution
from maadd_worker.write.maintenance import changes_nothing, lists_backups
from maadd_worker.write.outside_edit import index_outside_edit
from maadd_worker.write.planner import RECORD_WRITES
from maadd_worker.write.recovery import recover
from maadd_worker.write.reindex import check_scope, reindex_outcome, reindex_steps

_CACHE_BYTES = 32 * 1024 * 1024


class Engine:
    """An open project. `open` makes one; `close` gives everything back."""

    def __init__(
        self,
        config: WorkerConfig,
        root: ProjectRoot,
        lock: OwnerLock | None,
        model: ModelRefresh,
        index: Index,
        journal: Journal | None,
        history: HistoryController,
        semantic: SemanticIndex,
    ) -> None:
        self._config = config
        self._settings = config.settings
        self._root = root
        self._lock = lock
        self._index = index
        self._journal = journal
        self._history = history
        self._semantic = semantic
        self._cache = RecordCache(root, _CACHE_BYTES, config.settings.max_doc_bytes, time.time_ns)
        self._instructions = InstructionFiles(root)
        self._notices: list[Notice] = []
        self._events: deque[Event] = deque()
        self._activity = WriteActivity()
        self._gate: Gate | None = None
        in_use = ModelInUse(config.project, root, model, self._activity, self._notices.append)
        self._in_use = in_use
        self._watching = Watching(config, root, index, history, in_use.plans, self._write_context)
        in_use.changed = self._watching.model_changed
        self._aftercare = Aftercare(
            index, journal, history, in_use.record_paths, self._watching.adopt
        )
        self._maintenance = Maintenance(
            config, root, index, history, in_use, self._instructions, self._aftercare.keep_meta
        )
        self.jobs = Jobs(
            self,
            lambda: in_use.model,
            lambda: self._index.writer().stamps.now(),
            self._aftercare.keep_meta,
        )
        self._writes = RecordWrites(journal, history, config, self._admitted_under, self._finish)
        self._closed = False
        self.read_only = config.history.effective_mode == "read"
        self._placement = placement_of(root, read_only=self.read_only)
        self._contracts = HostContracts(
            config, root, index, lambda: in_use.model, self._write_context
        )
        self.forget_session = self._contracts.forget_session
        self.recovery_actions: list[str] = []
        self.index_empty: int | None = None
        self._may_have_lost = False

    @classmethod
    def open(
        cls, config: WorkerConfig, progress: Callable[[str], None], embedder: Embedder | None = None
    ) -> Engine:
        """Open the project in the order of spec 01 §1.1; `embedder` wins over the settings.

        Raises MaadError or MaadErrors: PROJECT_LOCKED, READ_ONLY, BACKEND_ERROR,
        GIT_NOT_INITIALIZED, INSTANCE_CONFIG_INVALID, and the load errors of registry and schemas.
        """
        read_only = config.history.effective_mode == "read"
        armed = arm(os.environ)
        with contextlib.ExitStack() as undo:
            root = ProjectRoot.open(config.root)
            undo.callback(root.close)
            undo.enter_context(staying(root))
            make_backend(root, read_only=read_only, served=config.served)
            held = root.held_path
            lock = OwnerLock.acquire(
                held, config.control_endpoint, config.server, read_only=read_only
            )
            undo.callback(lock.release)
            make_model_files(root, read_only=read_only)
            progress("model")
            model = ModelRefresh(load_model(root), {})
            progress("index")
            index = Index.open(os.path.join(root.path, INDEX_PATH), read_only=read_only)
            undo.callback(index.close)
            semantic = SemanticIndex.open(index, root, config, embedder)
            progress("journal")
            journal = None
            if not read_only:
                journal = Journal.open(root.path, fsync=config.settings.fsync)
                undo.callback(journal.close)
            history = HistoryController.open(held, config.history, config.settings, journal)
            undo.callback(history.close)
            engine = cls(config, root, lock, model, index, journal, history, semantic)
            if lock.ended is not None:
                members = {"worker_pid": lock.ended.pid, "of": str(lock.ended)}
                engine._notices.append(Notice("abandoned_worker_killed", members))
            if armed:
                engine._notices.append(Notice("failpoints_armed", {"names": list(armed)}))
            if journal is not None:
                progress("recovery")
                engine.recovery_actions = recover(
                    journal, index.writer(), model.model, root, history, config.settings
                )
                if engine.recovery_actions:
                    engine._aftercare.owe_forgetting()
            engine._look_for_unindexed_files(progress)
            undo.pop_all()
        return engine

    def _look_for_unindexed_files(self, progress: Callable[[str], None]) -> None:
        """The false-empty guard (spec 01 §14.6)."""
        model = self._in_use.model
        with contextlib.closing(self._index.reader()) as reader:
            created = self._index.created
            self.index_empty = unindexed_files(reader, model, self._root, created=created)
            self._may_have_lost = may_have_lost(reader)
        if created and not self._index.carried and has_no_file(model, self._root):
            note_nothing_lost(self._index.writer())
        asked = self.index_empty is not None and self._settings.boot_reindex and not self.read_only
        if (former := self._index.former_layout) is not None:
            # Nothing was lost: another version of the program has left the files to be read again.
            self._notices.append(layout_event(former))
        if asked or former is not None:
            steps = reindex_steps(self._write_context(), ReindexArgs(), unread=True)
            report = run_steps(steps, lambda at: progress(f"reindex {at.doc_type} {at.scanned}"))
            self._notices += reindex_events(report)
            self.index_empty = None

    def offer_instructions(self) -> None:
        """At the start of a server: make the managed files that are absent (spec 03 §11.1)."""
        failures: list[MaadError] = []
        if not self.read_only:
            failures = scaffold(self._root, self._instructions, fsync=self._settings.fsync)
        self._notices += bind_notices(
            self._root, self._instructions, failures, read_only=self.read_only
        )

    def start_watching(self, progress: Callable[[str], None]) -> None:
        """At the start of a server: follow what others change on the disk (spec 01 §14.7)."""
        if self.read_only:
            return
        self._watching.wanted = True
        if self.index_empty is not None and not self._may_have_lost:
            # It never had a record, so it has lost none: the files are new.
            self._events += self._watching.take_over_first(progress)
            self.index_empty = None
        self._watch_when_served()

    def _watch_when_served(self) -> None:
        # Until the index is served, only the pass that fills it may write to it.
        if self.index_empty is None:
            self._watching.start()

    @property
    def documents(self) -> int:
        """Live records in the index."""
        with contextlib.closing(self._index.reader()) as reader:
            return reader.counters().documents

    @property
    def backlog(self) -> Backlog:
        """For the heartbeat."""
        return Backlog(self._history.pending_writes, self._watching.findings.pending)

    @property
    def doc_types(self) -> list[str]:
        """The registered types."""
        return list(self._in_use.model.registry.types)

    # -- reads ---------------------------------------------------------------------------

    def open_reader(self) -> IndexReader:
        """A reader for one more thread; the caller closes it."""
        return self._semantic.prepare(self._index.reader())

    def is_short(self, call: Call, reader: IndexReader) -> bool:
        """Whether the read is quick enough for the thread that takes messages."""
        return is_quick(reader, self._in_use.model, call.tool, call.args)

    def read(self, call: Call, reader: IndexReader) -> Reply:
        """Answer a read; domain failures are answers too."""

        def answer() -> Outcome:
            self._refuse_empty(call)
            args = check_arguments(TOOLS[call.tool], call.args)
            with reader.snapshot(), reader.deadline(call.deadline_ms / 1000):
                reach("read.slow")
                outcome = read(self._read_context(call, reader), call.tool, args, call.args)
            return self._watching.advise(call.tool, outcome)

        return reply_of(call, answer)

    def _read_context(self, call: Call, reader: IndexReader) -> ReadContext:
        return ReadContext(
            reader=reader,
            plans=self._in_use.plans(),
            root=self._root,
            cache=self._cache,
            settings=self._settings,
            history=self._config.history,
            read_only=self.read_only,
            pending_writes=lambda: self._history.pending_writes,
            keep_sweep=self._aftercare.keep_sweep,
            instructions=self._instructions,
            engine_report=self.health,
            note=partial(self._watching.note, call.request_id),
            index_behind=self.jobs.running > 0,
            semantic=self._semantic.reads,
        )

    def _refuse_empty(self, call: Call) -> None:
        excused = call.unguarded or call.tool in ("maad_reindex", "maad_health")
        if self.index_empty is not None and not excused:
            raise index_empty(self.index_empty, read_only=self.read_only)

    # -- writes --------------------------------------------------------------------------

    def write_group(
        self, calls: Sequence[Call], gate: Gate, deliver: Callable[[Reply], None]
    ) -> None:
        """Perform writes in arrival order and deliver one Reply for each admitted one."""
        self._gate = gate
        self._semantic.hold()
        waiting = deque(calls)
        while waiting:
            call = waiting[0]
            if call.tool not in RECORD_WRITES:
                # It may take long, or wait for the front: no lock is held meanwhile.
                self._history.release()
            if call.tool in STRICT_TOOLS:
                self._answer_strict(waiting.popleft(), gate, deliver)
                continue
            refusal = self._refusal(call)
            if refusal is not None:
                waiting.popleft()
                deliver(failure_reply(call.request_id, refusal))
            elif call.tool in RECORD_WRITES:
                self._activity.begin(call.tool)
                self._writes.group(waiting, gate, deliver)
            elif call.tool in BULK_WRITES:
                waiting.popleft()
                self._activity.begin(call.tool)
                self._writes.bulk(call, gate, deliver)
            else:
                waiting.popleft()
                self._activity.begin(call.tool)
                if gate.admit(call.request_id):
                    reply = self._maintain(call, deliver)
                    if reply is None:
                        gate.defer(call.request_id)
                    else:
                        deliver(reply)
            self._activity.end()

    def _answer_strict(self, call: Call, gate: Gate, deliver: Callable[[Reply], None]) -> None:
        """Answer a host contract, which needs the project to stand still (spec 05)."""
        done = self._contracts.answer(call, gate, index_empty=self.index_empty is not None)
        if isinstance(done, Reply):
            deliver(done)
        if isinstance(done, Reply) or not gate.admit(call.request_id):
            return
        self._activity.begin(call.tool)
        if done.model.stamps != self._in_use.model.stamps:
            self._in_use.adopt(ModelRefresh(done.model, {}))
        self._writes.planned(
            call, done.context, done.plan, lambda reply: deliver(shortened(reply, call.budget))
        )
        self._activity.end()

    def _refusal(self, call: Call) -> MaadError | None:
        try:
            self._refuse_empty(call)
            if call.tool == "maad_instructions":
                check_refresh(Role(call.role), self._config.project, read_only=self.read_only)
        except MaadError as failure:
            return failure
        if self.read_only and not changes_nothing(call):
            return MaadError(
                "PROJECT_READ_ONLY",
                "this project is served in history mode read; nothing can be written",
            )
        return None

    def _maintain(self, call: Call, deliver: Callable[[Reply], None]) -> Reply | None:
        """Writes that concern the whole project; None when a job will answer."""
        if call.dry_run and not lists_backups(call):
            return Reply(call.request_id, ok=True, body=b"")
        if call.tool != "maad_reindex":
            reply = reply_of(call, lambda: self._maintenance.answer(call))
            if call.tool == "maad_reload" and reply.ok:
                self._contracts.reloaded()
            return reply
        try:
            args: Any = check_arguments(TOOLS[call.tool], call.args)
            self._in_use.refresh()
            return self.jobs.submit(call, args, deliver)
        except (MaadError, MaadErrors) as failure:
            return failure_reply(call.request_id, failure)
        except apsw.Error as failure:
            return failure_reply(call.request_id, backend_error(failure, "used"))

    # -- jobs ----------------------------------------------------------------------------

    def resume_jobs(self) -> None:
        """At the start of a server: go on with the jobs that an earlier process did not end, and
        know those that ended."""
        with contextlib.closing(self._index.reader()) as reader:
            noted, ended = reader.meta_get(JOBS_KEY), reader.meta_get(ENDED_JOBS_KEY)
        self.jobs.resume(noted, ended, read_only=self.read_only)

    def check_job(self, args: ReindexArgs) -> None:
        """See JobHost."""
        check_scope(self._write_context(), args)

    def job_steps(self, args: ReindexArgs, made_since: str | None) -> PassSteps:
        """See JobHost."""
        self._in_use.refresh()
        unread = self.index_empty is not None
        steps = reindex_steps(self._write_context(), args, made_since=made_since, unread=unread)
        return self._semantic.embed_after(steps) if args.embeddings else steps

    def job_outcome(self, args: ReindexArgs, report: ReindexReport) -> Outcome:
        """See JobHost."""
        whole = args.doc_id is None and args.doc_type is None and args.path is None
        if whole and report.indexed + report.skipped:
            # What could not be indexed is in the report; the rest is served.
            self.index_empty = None
            self._watch_when_served()
        if self._watching.commits_edits:
            self._aftercare.inspect_again()
        broken = dict.fromkeys(e for errors in self._in_use.taken.refused.values() for e in errors)
        report = msgspec.structs.replace(report, errors=(*broken, *report.errors))
        self._notices += reindex_events(report)
        return reindex_outcome(report, args)

    def _admitted_under(self) -> tuple[WriteContext, Refused]:
        """What a group of writes runs with, under the registry and schemas as they are now."""
        self._in_use.refresh()
        return self._write_context(), self._in_use.taken.refused

    def _write_context(self) -> WriteContext:
        return WriteContext(
            writer=self._index.writer(),
            model=self._in_use.model,
            root=self._root,
            settings=self._settings,
            year=dt.datetime.now(dt.UTC).year,
            reindex_external=self._take_over_edit,
        )

    def _take_over_edit(self, path: str) -> None:
        """Index a file that was edited outside, and tell subscribers."""
        changes = index_outside_edit(self._write_context(), path)
        self._events += self._watching.took_over(changes)

    def _finish(self, done: Execution, outcome: HistoryOutcome) -> None:
        """Let go of what was kept about a record that is written, and note its event."""
        change = done.plan.change
        if change is not None:
            self._cache.forget(change.path)
            self._watching.wrote(change.path)
            if change.kind in ("unlink", "forget"):
                self._aftercare.owe_forgetting()
            if change.kind in ("unlink", "forget", "rename"):
                self._watching.findings.retry_duplicates()
        row = None if done.change is None else done.change.row
        if row is not None and row.partial and not row.deleted:
            self._notices += truncated_events(1)
        event = event_of(done)
        if event is not None and outcome.failure is None:
            self._events.append(event)

    # -- between calls -------------------------------------------------------------------

    def settle(self, idle: bool) -> float | None:
        """Finish what lags behind the answers; seconds until it wants to be called again."""
        # Commits come first: what they lock is free again before anything else is done.
        self._watching.commit_edits()
        # Quiet work would find no quiet between the steps of a job.
        wait = self._aftercare.settle(idle and not self.jobs.running)
        if idle and (self.jobs.running or self._watching.findings.pending):
            self._history.release()
        if self._watching.findings.take_model_change():
            self._in_use.refresh()
        self._events += self._watching.take_over(idle)
        more = self.jobs.step()
        self._tell_notices()
        wait = sooner(sooner(wait, self._semantic.settle(idle)), self._watching.next_wait())
        return 0.0 if more else wait

    def connect_log(
        self, warn: Callable[..., None], info: Callable[..., None] | None = None
    ) -> None:
        """Hand over what logs a warning and what logs something to know, by name and members;
        failed commits, and what the start has to tell, are logged too."""
        self._history.connect_log(warn)
        self._semantic.connect_log(warn)
        self._watching.warn = warn
        self._watching.info = info or warn
        self._tell_notices()

    def _tell_notices(self) -> None:
        while self._notices:
            notice = self._notices.pop(0)
            write = self._watching.info if notice.level == "info" else self._watching.warn
            write(notice.event, **notice.members)

    def connect_wake(self, wake: Callable[[], None]) -> None:
        """Hand over what has the writer thread call `settle`."""
        self._aftercare.connect_wake(wake)
        self._watching.wake = wake
        self._semantic.connect_wake(wake)
        self.jobs.wake = wake

    def connect_progress(self, report: Callable[[CallProgress], None]) -> None:
        """Hand over what takes the progress of a call that asked for it."""
        self.jobs.report_progress = report

    def poll_events(self) -> list[Event]:
        """The changes since the last call."""
        events = list(self._events)
        self._events.clear()
        return events

    def lost(self) -> str | None:
        """What somebody took away of the files that this engine works with, if anything: then
        another one has to take its place. From any thread."""
        return self._placement.lost()

    def health(self) -> dict[str, Any]:
        """The engine's part of `maad_health` (spec 03 §6.3)."""
        report: dict[str, Any] = {
            "projectRoot": self._root.path,
            "initialized": not self._closed,
            "readOnly": self.read_only,
            "recoveryActions": self.recovery_actions,
            "registeredTypes": len(self._in_use.model.registry.types),
            "writeQueueDepth": 0 if self._gate is None else self._gate.depth(),
            "diskHeadroomMb": free_mb(self._root.path),
            "watcher": self._watching.health(),
            "jobs": msgspec.to_builtins(self.jobs.views),
        }
        report |= self._activity.health() | self._history.health()
        report["advisories"] = [
            *empty_advisories(self.index_empty, read_only=self.read_only),
            *model_advisories(self._in_use.taken),
            *self._watching.advisories(),
            *report.get("advisories", []),
        ]
        return report

    def close(self) -> bool:
        """Give everything back; False when history stays for the next start."""
        if self._closed:
            return True
        self._closed = True
        self._watching.stop()
        self.jobs.close()
        self._semantic.close()
        self._watching.finish_edits()
        clean = self._history.close()
        self._index.close()
        if self._journal is not None:
            if not keep_entries(self._journal, self._root, self._placement):
                self._watching.warn("journal_entries_lost", writes=self._history.pending_writes)
            self._journal.close()
        if self._lock is not None:
            self._lock.release()
        self._root.close()
        return clean
