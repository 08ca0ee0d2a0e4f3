"""Batches of files prepared ahead of their storing, in order (spec 01 §14.2).

Small passes prepare each batch when it is wanted. Large ones get parsing processes; while
these are busy, the pass does not wait but prepares a later batch itself, so that the work
divides itself whatever is slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import msgspec

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.frames import Assignment, prepared_decoder
from maadd_worker.index.parsing_pool import Answer, ParsingPool, useful_processes
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.prepare import FileTask, Limits, PreparedFile, prepare_files

_WINDOW = 6
"""Batches in work at a time; they bound the memory."""

_WORTH_A_PROCESS = 1000
"""Files that wait; for fewer a process would start for nothing."""

_FIRST_GIVEN = 3
"""The place of the first batch for processes that are still starting."""

_SILENCE_S = 60.0
"""A process that takes so long for a batch is given up."""


@dataclass(slots=True)
class _Work:
    """A batch on its way: in a process, or prepared, or neither."""

    tasks: list[FileTask]
    answer: Answer | None = None
    prepared: list[PreparedFile] | None = None


@dataclass(slots=True)
class Pipeline:
    """Prepares batches. Used by one thread; the owner closes it."""

    root: ProjectRoot
    plans: TypePlans
    limits: Limits
    _window: deque[_Work] = field(default_factory=deque)
    _pool: ParsingPool | None = None

    def run(self, batches: Iterator[list[FileTask]]) -> Iterator[list[PreparedFile]]:
        """The results of all batches in their order; batches are asked for ahead."""
        window = self._window
        while True:
            while len(window) < _WINDOW and (tasks := next(batches, None)) is not None:
                window.append(_Work(tasks, prepared=None if tasks else []))
            if not window:
                return
            self._hire()
            self._give_away()
            yield self._finished(window[0])
            window.popleft()

    def distrust(self) -> None:
        """Forget what is prepared but not handed out: files or rows may have changed."""
        for work in self._window:
            work.answer = work.prepared = None

    def close(self) -> None:
        """End the processes; idempotent."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._window.clear()

    def _hire(self) -> None:
        if self._pool is not None or useful_processes() < 1:
            return
        if sum(len(work.tasks) for work in self._window) >= _WORTH_A_PROCESS:
            assignment = Assignment(self.root.path, self.plans.model, self.limits)
            self._pool = ParsingPool(assignment, useful_processes())

    def _give_away(self) -> None:
        if self._pool is None:
            return
        first = 1 if self._pool.answered else _FIRST_GIVEN
        for place in range(first, len(self._window)):
            work = self._window[place]
            if work.answer is None and work.prepared is None:
                work.answer = self._pool.submit(work.tasks)
                if work.answer is None:
                    return

    def _finished(self, head: _Work) -> list[PreparedFile]:
        """The results of the first batch; a wait for it is spent on later ones."""
        while head.prepared is None:
            if head.answer is None:
                self._prepare(head)
            elif head.answer.done() or (idle := self._first_idle()) is None:
                self._receive(head, head.answer)
            else:
                self._prepare(idle)
                self._give_away()
        return head.prepared

    def _first_idle(self) -> _Work | None:
        return next(
            (work for work in self._window if work.answer is None and work.prepared is None), None
        )

    def _prepare(self, work: _Work) -> None:
        work.prepared = prepare_files(self.root, self.plans, self.limits, work.tasks)

    def _receive(self, work: _Work, answer: Answer) -> None:
        """Take the answer; without one the batch counts as not given away."""
        try:
            work.prepared = prepared_decoder.decode(answer.result(_SILENCE_S))
        except (CancelledError, TimeoutError, msgspec.DecodeError):
            work.answer = None
            if self._pool is not None:
                self._pool.kill()
