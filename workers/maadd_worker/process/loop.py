"""The main thread's loop: one socket, the clock, and reads that are quick (design §5).

Only this thread touches the socket. The writer thread and the reading threads hand their
messages over through the outbox.
"""

from __future__ import annotations

import enum
import math
import os
import select
import time

import msgspec
import zmq

from maadd.protocol.errors import MaadError, MaadErrors, WireError, errors_of
from maadd.protocol.messages import (
    EXIT_NOT_OPENED,
    Bye,
    Call,
    Cancel,
    Cancelled,
    Failed,
    Heartbeat,
    Hello,
    Permit,
    PermitRequest,
    Ready,
    SessionEnded,
    ToFront,
    WorkerConfig,
    decode_to_worker,
    encode,
)
from maadd.protocol.tools import TOOLS
from maadd_worker.outcome import Backlog
from maadd_worker.process.log import Log
from maadd_worker.process.memory import resident_bytes
from maadd_worker.process.outbox import Outbox
from maadd_worker.process.read_pool import ReadPool, answer_read
from maadd_worker.process.replies import queue_full, read_timed_out, write_waited_too_long
from maadd_worker.process.served import AnyEngine, EngineFactory, ServedReader
from maadd_worker.process.write_queue import WriteQueue
from maadd_worker.process.writer import Writer

_HEARTBEAT_S = 1.0
_LINGER_MS = 1_000

_QUEUED_READS = frozenset(name for name, spec in TOOLS.items() if spec.strict)
"""Host contracts need the project to stand still, and wait in line with the writes."""
_FRAMES_AT_ONCE = 64

# Plain numbers: the operators of the enumerations take longer than the calls they are for.
_NOW = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)


class _State(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    ENDING = "ending"
    """Everything accepted is answered; the engine closes."""


class WorkerLoop:
    """A worker process from its first message to its last."""

    def __init__(self, config: WorkerConfig, open_engine: EngineFactory, log: Log) -> None:
        limit = config.settings.worker_queue
        self._config = config
        self._log = log
        self._traces = log.traces
        self._outbox = Outbox()
        self._writes = WriteQueue(
            limit, config.settings.write_wait_ms, self._write_given_up, self._ask_permit
        )
        self._writer = Writer(config, open_engine, self._writes, self._outbox, log)
        self._engine: AnyEngine | None = None
        self._reads: ReadPool | None = None
        self._reader: ServedReader | None = None
        self._state = _State.STARTING
        self._failure: list[WireError] | None = None
        self._stop_requested = False
        self._orphaned = False
        self._next_heartbeat = 0.0
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.identity = config.wire_identity
        # Bounded by the calls that may wait; the main thread must never block in a send.
        self._socket.sndhwm = 0
        self._socket.rcvhwm = 0
        # A front that comes back is another front, and starts its own worker.
        self._socket.reconnect_ivl = -1
        self._socket.linger = _LINGER_MS
        self._looked = False
        """Whether nothing was left in the socket when it was last used."""
        self._poll = select.poll()

    def request_stop(self) -> None:
        """Ask for a drain; safe in a signal handler."""
        self._stop_requested = True
        self._outbox.wake()

    def serve(self, front_fd: int) -> int:
        """Run until the end; returns the exit code. `front_fd` is readable when the front
        is gone."""
        self._socket.connect(self._config.endpoint)
        for fd in (self._socket.fileno(), self._outbox.fd, front_fd):
            self._poll.register(fd, select.POLLIN)
        self._send(Hello(os.getpid()))
        self._writer.start()
        while not self._writer.ended:
            for fd, _ in self._poll.poll(self._sleep_ms()):
                if fd == self._outbox.fd:
                    self._outbox.acknowledge()
                elif fd == front_fd:
                    self._poll.unregister(fd)
                    self._orphan()
            self._receive()
            self._advance()
            self._look_at_the_clock()
            self._flush()
        return self._say_goodbye()

    def _sleep_ms(self) -> int:
        if not self._looked:
            return 0
        due = min(self._next_heartbeat, self._writes.next_expiry())
        if self._reads is not None:
            due = min(due, self._reads.next_check)
        return max(0, math.ceil((due - time.monotonic()) * 1000))

    # -- messages ------------------------------------------------------------------------

    def _receive(self) -> None:
        socket = self._socket
        self._looked = False
        for _ in range(_FRAMES_AT_ONCE):
            # The descriptor of the socket only tells of changes: what is there must be asked.
            if not int(socket.get(_EVENTS)) & _READABLE:
                self._looked = True
                return
            frame = socket.recv(_NOW)
            try:
                message = decode_to_worker(frame)
            except msgspec.MsgspecError:
                self._log.error("message_unreadable", bytes=len(frame))
                continue
            if type(message) is Call:
                self._take(message)
            elif type(message) is Cancel:
                self._cancel(message)
            elif type(message) is Permit:
                self._writes.take_permit(message)
            elif type(message) is SessionEnded:
                if self._engine is not None:
                    self._engine.forget_session(message.session_id)
            else:
                # At once: a call behind the Drain must not be accepted.
                self._stop_requested = True
                self._advance()

    def _take(self, call: Call) -> None:
        engine = self._engine
        if self._traces:
            self._log.debug(
                "call_received",
                request_id=call.request_id,
                session_id=call.session_id,
                tool=call.tool,
                is_write=call.is_write,
            )
        if (
            engine is None
            or self._reads is None
            or self._reader is None
            or self._state is not _State.READY
            or call.generation != self._config.generation
        ):
            self._send(Cancelled(call.request_id, withdrawn=True))
        elif call.is_write or call.tool in _QUEUED_READS:
            if not self._writes.offer(call):
                self._send(queue_full(call, self._config.settings.worker_queue))
        elif engine.is_short(call, self._reader):
            self._send(answer_read(engine, call, self._reader, self._log))
        elif not self._reads.offer(call):
            self._send(queue_full(call, self._config.settings.worker_queue))

    def _cancel(self, cancel: Cancel) -> None:
        # Unknown here means that the answer is on its way already.
        request_id = cancel.request_id
        withdrawn = self._writes.withdraw(request_id)
        if withdrawn is not None:
            job_id = None
            if not withdrawn and self._engine is not None:
                job_id = self._engine.jobs.leave(request_id, expired=cancel.expired)
            self._send(Cancelled(request_id, withdrawn, job_id))
        elif self._reads is not None and self._reads.cancel(request_id):
            self._send(Cancelled(request_id, withdrawn=True))

    def _write_given_up(self, call: Call, waited_ms: int, queue_depth: int) -> None:
        waited = write_waited_too_long(call, waited_ms, queue_depth)
        self._outbox.post(waited if call.is_write else read_timed_out(call))

    def _ask_permit(self, request_id: str) -> None:
        self._outbox.post(PermitRequest(request_id, self._config.generation))

    def _flush(self) -> None:
        while (message := self._outbox.pop()) is not None:
            self._send(message)

    def _send(self, message: ToFront) -> None:
        if self._orphaned:
            return
        try:
            self._looked = False
            self._socket.send(encode(message), _NOW)
        except zmq.Again:
            # Without a bound on the queue this only means that the connection is gone.
            self._orphan()

    # -- life ----------------------------------------------------------------------------

    def _advance(self) -> None:
        """Moves on to the next state when its condition is met."""
        if self._state is _State.STARTING and self._writer.engine is not None:
            self._open_readers(self._writer.engine)
        if (self._stop_requested or self._writer.displaced) and self._state is _State.READY:
            self._state = _State.DRAINING
            if self._engine is not None:
                self._engine.jobs.stop()
            self._send(self._heartbeat())
        if self._state is _State.DRAINING and self._drained():
            self._end()

    def _open_readers(self, engine: AnyEngine) -> None:
        try:
            self._reader = engine.open_reader()
            self._reads = ReadPool(
                engine, self._config.settings.worker_queue, self._outbox, self._log
            )
        except (MaadError, MaadErrors) as failure:
            self._failure = [error.wire() for error in errors_of(failure)]
            self._end()
            return
        self._engine = engine
        self._state = _State.READY
        self._send(Ready(engine.documents, list(engine.recovery_actions), engine.index_empty))
        self._send(self._heartbeat())

    def _drained(self) -> bool:
        return self._reads is not None and self._reads.depth() == 0 and self._writes.depth() == 0

    def _end(self) -> None:
        self._state = _State.ENDING
        # The answers first: closing may take its time.
        self._flush()
        if self._reads is not None and not self._orphaned:
            self._reads.close()
        if self._reader is not None:
            self._reader.close()
        self._writes.close()

    def _orphan(self) -> None:
        """Nobody is left to answer: end as soon as the write in hand is finished."""
        if self._orphaned:
            return
        self._orphaned = True
        self._log.warn("front_gone", queue_depth=self._queue_depth())
        self._socket.linger = 0
        self._writes.withdraw_all()
        if self._reads is not None:
            self._reads.cancel_all()
        if self._state in (_State.STARTING, _State.READY, _State.DRAINING):
            self._state = _State.ENDING
            self._writes.close()

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if now >= self._writes.next_expiry():
            self._writes.expire(now)
        if self._reads is not None:
            self._reads.check(now)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + _HEARTBEAT_S
            if self._state is _State.READY:
                self._writer.notice_loss()
            self._send(self._heartbeat())

    def _heartbeat(self) -> Heartbeat:
        engine = self._engine
        behind = Backlog() if engine is None else engine.backlog
        return Heartbeat(
            resident_bytes(),
            self._queue_depth(),
            self._state.value,
            self._writer.progress,
            doc_types=None if engine is None else engine.doc_types,
            jobs=0 if engine is None else engine.jobs.alone,
            pending_history=behind.history_writes,
            pending_changes=behind.changed_files,
        )

    def _queue_depth(self) -> int:
        reads = 0 if self._reads is None else self._reads.depth()
        return reads + self._writes.depth()

    def _say_goodbye(self) -> int:
        self._flush()
        failure = self._failure or self._writer.failure
        goodbye = Bye(self._writer.clean, self._writer.displaced)
        self._send(goodbye if failure is None else Failed(failure))
        self._socket.close()
        self._context.term()
        return 0 if failure is None else EXIT_NOT_OPENED
