"""An engine's background jobs: reindexes that run in slices between the writes (spec 03 §6.1).

One job runs at a time, the others wait in order. Calls may wait for a job, none need to: it goes
on when they have left, and after a restart. A call that asks for what a job already does joins it.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import apsw
import msgspec

from maadd.protocol.arguments import ReindexArgs
from maadd.protocol.errors import MaadError, MaadErrors, WireError, errors_of
from maadd.protocol.messages import Call, CallProgress, Reply
from maadd_worker.index.connection import backend_error
from maadd_worker.index.full_pass import PassSteps, rare_collections
from maadd_worker.index.pass_report import PassProgress, ReindexReport
from maadd_worker.markdown.text import iso_milliseconds
from maadd_worker.outcome import Outcome
from maadd_worker.replies import failure_reply, reply_of
from maadd_worker.schema.model import Model

JOBS_KEY = "jobs"
"""`engine_meta`: the jobs that have not ended, as JSON."""

ENDED_JOBS_KEY = "ended_jobs"
"""`engine_meta`: the views of the last that ended, the latest first, as JSON."""

_MOST_JOBS = 8
_RETRY_MS = 1000
_KEPT = 10
_SHOWN = 5
_MOST_STARTS = 3
"""A job whose process died so many times under it is given up."""

_encode = msgspec.json.encode

Deliver = Callable[[Reply], None]


class JobView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job as health shows it. `total` is None while nobody knows it; `result` is the report of
    one that is done, in short."""

    job_id: str
    kind: str
    state: str
    started_at: str
    done: int
    total: int | None
    ended_at: str | None = None
    result: dict[str, Any] | None = None
    errors: list[WireError] | None = None


class JobNote(msgspec.Struct, frozen=True):
    """What of a job outlives its process. `made_since` is a stamp of the index: what is newer was
    made by this job or after it. `deaths` counts processes that died under it."""

    job_id: str
    args: dict[str, Any]
    started_at: str
    made_since: str
    deaths: int = 0


class JobHost(Protocol):
    """The engine, as far as jobs need it; on the writer's thread."""

    def check_job(self, args: ReindexArgs) -> None:
        """Refuse what could not begin. Raises MaadError."""
        ...

    def job_steps(self, args: ReindexArgs, made_since: str | None) -> PassSteps:
        """A run from its beginning, under the registry and schemas as they are now; rows newer
        than `made_since` need not be made anew."""
        ...

    def job_outcome(self, args: ReindexArgs, report: ReindexReport) -> Outcome:
        """Take note of a run that is over; its answer."""
        ...


class _Job:
    """A job that has not ended, and who waits for it."""

    __slots__ = (
        "args", "begun", "gone", "model", "note", "progress", "state", "steps", "waiting", "wanted",
    )  # fmt: skip

    def __init__(self, note: JobNote, args: ReindexArgs, *, begun: bool) -> None:
        self.note = note
        self.args = args
        self.begun = begun
        """Whether a run of it was cut short, whose rows count."""
        self.state = "queued"
        self.waiting: list[tuple[Call, Deliver]] = []
        self.gone: set[str] = set()
        """Calls among them whose callers do not want it any more."""
        self.wanted = begun
        """Whether it goes on when nobody waits."""
        self.progress: PassProgress | None = None
        self.steps: PassSteps | None = None
        self.model: Model | None = None

    def view(self) -> JobView:
        done = self.progress.scanned if self.progress is not None else 0
        total = self.progress.total if self.progress is not None else None
        return JobView(self.note.job_id, "reindex", self.state, self.note.started_at, done, total)


class Jobs:
    """The jobs of one engine. On the writer's thread, but for `views`, `running`, `leave` and
    `stop`, which any thread may call.

    `model` gives the registry and schemas of now, `stamp` a stamp of the index, `keep_meta`
    remembers values in it (None forgets one).
    """

    def __init__(
        self,
        host: JobHost,
        model: Callable[[], Model],
        stamp: Callable[[], str],
        keep_meta: Callable[[Mapping[str, str | None]], None],
    ) -> None:
        self.wake: Callable[[], None] = _nobody
        self.report_progress: Callable[[CallProgress], None] = _nobody_hears
        self._host = host
        self._model = model
        self._stamp = stamp
        self._keep_meta = keep_meta
        self._jobs: deque[_Job] = deque()
        self._ended: deque[JobView] = deque(maxlen=_KEPT)
        self._views: tuple[JobView, ...] = ()
        self._waiting_for: dict[str, str] = {}
        self._left: deque[tuple[str, bool]] = deque()
        self._stopping = False
        self._alone = 0

    # -- any thread ----------------------------------------------------------------------

    @property
    def views(self) -> tuple[JobView, ...]:
        """The jobs that run and wait, then those that ended, the latest first."""
        return self._views

    @property
    def running(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    @property
    def alone(self) -> int:
        """Those of them that no call waits for."""
        return self._alone

    def leave(self, request_id: str, *, expired: bool) -> str | None:
        """The job that a call waits for, whose caller leaves. It goes on when the caller's time
        is over (`expired`), else it is ended, unless somebody else wants it."""
        job_id = self._waiting_for.get(request_id)
        if job_id is not None:
            self._left.append((request_id, expired))
            self.wake()
        return job_id

    def stop(self) -> None:
        """Let the job in hand rest until the next start; who waits is told so."""
        self._stopping = True
        self.wake()

    # -- the writer's thread -------------------------------------------------------------

    def submit(self, call: Call, args: ReindexArgs, deliver: Deliver) -> Reply | None:
        """Begin a job, or join one that does the same; the answer for who does not wait for it.

        Raises what keeps it from beginning, OVERLOADED.
        """
        if args.cancel_job is not None:
            return reply_of(call, lambda: self._cancel(str(args.cancel_job)))
        self._host.check_job(args)
        wanted = _work_of(args)
        job = next((job for job in self._jobs if _work_of(job.args) == wanted), None)
        if job is None:
            job = self._add(args)
        if not args.wait:
            job.wanted = True
            view = job.view()
            return reply_of(call, lambda: Outcome({"jobId": view.job_id, "state": view.state}))
        job.waiting.append((call, deliver))
        self._waiting_for[call.request_id] = job.note.job_id
        self._show()
        return None

    def resume(self, stored: str | None, ended: str | None, *, read_only: bool = False) -> None:
        """Take up the jobs that an earlier process did not end, and know those that ended;
        `stored` and `ended` are what it noted. A read-only project shows the former as
        `interrupted`."""
        if ended:
            self._ended.extend(msgspec.json.decode(ended, type=list[JobView]))
        for note in msgspec.json.decode(stored, type=list[JobNote]) if stored else ():
            args = msgspec.convert(note.args, ReindexArgs)
            job = _Job(msgspec.structs.replace(note, deaths=note.deaths + 1), args, begun=True)
            if read_only:
                self._ended.appendleft(msgspec.structs.replace(job.view(), state="interrupted"))
            elif job.note.deaths >= _MOST_STARTS:
                failure = MaadError("WORKER_LOST", "the process died under it again and again")
                self._note_end(job, "failed", errors=[failure.wire()])
            else:
                self._jobs.append(job)
        if stored and not read_only:
            self._remember()
        self._show()

    def step(self) -> bool:
        """One slice of the job in hand; whether there is more to do."""
        self._let_leave()
        if self._stopping:
            self._suspend()
            return False
        if not self._jobs:
            return False
        job = self._jobs[0]
        try:
            report = self._advance(job)
            if report is not None:
                self._finish(job, report)
        except (MaadError, MaadErrors) as failure:
            self._fail(job, failure)
        except apsw.Error as error:
            self._fail(job, backend_error(error, "brought up to date"))
        except Exception:
            self._fail(job, MaadError("INTERNAL", "the reindex failed unexpectedly; see the log"))
            raise
        self._show()
        return bool(self._jobs)

    def close(self) -> None:
        """Let everything go; what has not ended is taken up by the next start."""
        self._suspend()

    def _add(self, args: ReindexArgs) -> _Job:
        if len(self._jobs) >= _MOST_JOBS:
            raise MaadError(
                "OVERLOADED",
                "too many reindexes wait for this project; retry later",
                {"reason": "worker_queue", "limit": _MOST_JOBS, "retryAfterMs": _RETRY_MS},
            )
        now = iso_milliseconds(dt.datetime.now(dt.UTC))
        kept: dict[str, Any] = msgspec.to_builtins(_work_of(args))
        note = JobNote(f"job-{secrets.token_hex(6)}", kept, now, self._stamp())
        job = _Job(note, args, begun=False)
        job.state = "queued" if self._jobs else "running"
        self._remember(job)
        self._jobs.append(job)
        self._show()
        return job

    def _advance(self, job: _Job) -> ReindexReport | None:
        """One step; the report after the last."""
        if job.steps is not None and job.model is not self._model():
            # What was made under the old registry and schemas is found to be so and made anew.
            job.steps.close()
            job.steps = None
        with rare_collections():
            if job.steps is None:
                job.state, job.progress = "running", None
                since = job.note.made_since if job.begun else None
                job.steps = self._host.job_steps(job.args, since)
                job.model, job.begun = self._model(), True
            try:
                job.progress = next(job.steps)
            except StopIteration as end:
                report: ReindexReport = end.value
                return report
        for call, _ in job.waiting:
            if call.wants_progress:
                self.report_progress(
                    CallProgress(
                        call.request_id,
                        job.progress.scanned,
                        job.progress.total,
                        job.progress.text,
                    )
                )
        return None

    def _finish(self, job: _Job, report: ReindexReport) -> None:
        outcome = self._host.job_outcome(job.args, report)
        answer = partial(_done, outcome)
        self._end(job, "done", answer, result=_in_short(outcome.data))

    def _fail(self, job: _Job, failure: MaadError | MaadErrors) -> None:
        errors = [error.wire() for error in errors_of(failure)]
        self._end(job, "failed", partial(_refused, failure), errors=errors)

    def _cancel(self, job_id: str) -> Outcome:
        job = next((job for job in self._jobs if job.note.job_id == job_id), None)
        if job is None:
            known = next((view for view in self._ended if view.job_id == job_id), None)
            if known is None:
                raise MaadError(
                    "INVALID_FIELDS",
                    f'there is no job "{job_id}"; maad_health lists the jobs',
                    {"field": "cancelJob"},
                )
            return Outcome({"jobId": job_id, "state": known.state})
        outcome = Outcome({"jobId": job_id, "state": "cancelled"})
        self._end(job, "cancelled", partial(_done, outcome))
        return outcome

    def _let_leave(self) -> None:
        while self._left:
            request_id, expired = self._left.popleft()
            job_id = self._waiting_for.get(request_id)
            job = next((job for job in self._jobs if job.note.job_id == job_id), None)
            if job is None:
                continue
            if expired:
                job.wanted = True
            else:
                job.gone.add(request_id)
            if not job.wanted and all(call.request_id in job.gone for call, _ in job.waiting):
                self._cancel(job.note.job_id)

    def _suspend(self) -> None:
        for job in list(self._jobs):
            if job.steps is not None:
                job.steps.close()
                job.steps = None
            job.note = msgspec.structs.replace(job.note, deaths=0)
            failure = MaadError(
                "SHUTTING_DOWN",
                f"the project is being closed; its reindex goes on as job {job.note.job_id} at "
                "the next start",
                {"jobId": job.note.job_id},
            )
            self._answer(job, partial(_refused, failure))
        if self._jobs:
            self._remember()
            self._jobs.clear()

    def _end(
        self,
        job: _Job,
        state: str,
        answer: Callable[[Call], Reply],
        *,
        result: dict[str, Any] | None = None,
        errors: list[WireError] | None = None,
    ) -> None:
        """Let a job be over, then answer who waits: whoever has the answer finds it over."""
        if job not in self._jobs:
            return
        if job.steps is not None:
            job.steps.close()
            job.steps = None
        self._jobs.remove(job)
        self._note_end(job, state, result=result, errors=errors)
        try:
            self._remember()
        finally:
            self._show()
            self._answer(job, answer)

    def _note_end(
        self,
        job: _Job,
        state: str,
        *,
        result: dict[str, Any] | None = None,
        errors: list[WireError] | None = None,
    ) -> None:
        view = job.view()
        self._ended.appendleft(
            msgspec.structs.replace(
                view,
                state=state,
                done=view.done if result is None else result["scanned"],
                total=view.total if result is None else result["scanned"],
                ended_at=iso_milliseconds(dt.datetime.now(dt.UTC)),
                result=result,
                errors=errors,
            )
        )

    def _answer(self, job: _Job, reply: Callable[[Call], Reply]) -> None:
        for call, deliver in job.waiting:
            self._waiting_for.pop(call.request_id, None)
            deliver(reply(call))
        job.waiting.clear()

    def _remember(self, *more: _Job) -> None:
        notes = [job.note for job in (*self._jobs, *more)]
        self._keep_meta(
            {
                JOBS_KEY: _encode(notes).decode() if notes else None,
                ENDED_JOBS_KEY: _encode(list(self._ended)).decode() if self._ended else None,
            }
        )

    def _show(self) -> None:
        self._alone = sum(not job.waiting for job in self._jobs)
        self._views = (*(job.view() for job in self._jobs), *self._ended)


def _done(outcome: Outcome, call: Call) -> Reply:
    return reply_of(call, lambda: outcome)


def _refused(failure: MaadError | MaadErrors, call: Call) -> Reply:
    return failure_reply(call.request_id, failure)


def _work_of(args: ReindexArgs) -> ReindexArgs:
    """The arguments without what says who waits."""
    return msgspec.structs.replace(args, project=None, wait=True, cancel_job=None)


def _in_short(report: dict[str, Any]) -> dict[str, Any]:
    """A report with no more than the first of its errors and warnings."""
    short = dict(report)
    for name in ("errors", "warnings"):
        if len(short.get(name, ())) > _SHOWN:
            short.setdefault(f"{name}Total", len(short[name]))
            short[name] = short[name][:_SHOWN]
    short.pop("wouldPrune", None)
    return short


def _nobody() -> None:
    """Nobody needs to be woken."""


def _nobody_hears(_progress: CallProgress) -> None:
    """Nobody follows the calls of an engine without a worker process."""
