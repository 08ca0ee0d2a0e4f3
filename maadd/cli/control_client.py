"""A command's side of a front's control socket (spec 04 §19)."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import msgspec

from maadd.protocol.control import (
    HANDSHAKE_S,
    HEADER_BYTES,
    Answer,
    Attach,
    Attached,
    FromOwner,
    Lost,
    Refused,
    Request,
    body_length,
    decode_answer,
    decode_from_owner,
    encode,
)
from maadd.protocol.errors import MaadError, MaadErrors, error_from_wire, errors_of
from maadd.protocol.messages import Call, CallProgress, Cancel, Cancelled, Reply
from maadd.protocol.process_identity import is_stopped, peer_of
from maadd.protocol.tools import TOOLS

_LAST_WORD_S = 2.0
"""Wait for what became of a call that the person interrupted."""

_GLANCE_S = 0.5
"""A signal that comes right before the wait for a message does not end that wait."""

OnProgress = Callable[[CallProgress], None]


class Unreachable(Exception):
    """Nobody answers on a control socket. `final`: trying again will not help; `stopping`: whoever
    is there is about to end."""

    def __init__(self, reason: str, *, final: bool = False, stopping: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final
        self.stopping = stopping


class OwnerGone(Exception):
    """The owner takes no more calls. `maybe_done`: it may have performed the one in hand."""

    def __init__(self, *, maybe_done: bool) -> None:
        super().__init__("the owner of the project is gone")
        self.maybe_done = maybe_done


class ControlConnection:
    """A blocking connection to the front behind a control socket."""

    def __init__(self, endpoint: str, wait_s: float = HANDSHAKE_S) -> None:
        """Raises Unreachable, after `wait_s` at the latest."""
        self._wait_s: float | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(wait_s)
        try:
            self._socket.connect(endpoint)
        except PermissionError:
            self._socket.close()
            raise Unreachable("it belongs to another user", final=True) from None
        except (FileNotFoundError, ConnectionRefusedError):
            self._socket.close()
            raise Unreachable("nothing listens on its control socket") from None
        except OSError as error:
            self._socket.close()
            raise Unreachable(f"its control socket does not answer ({error})") from None

        self._peer, _ = peer_of(self._socket)

    def ask(self, request: Request, wait_s: float | None = HANDSHAKE_S) -> Answer:
        """The answer to the first message. Raises Unreachable, and MaadErrors when refused."""
        self._wait_s = wait_s
        try:
            self.send(encode(request))
            answer = decode_answer(self.receive())
        except (OSError, msgspec.MsgspecError) as error:
            if is_stopped(self._peer):
                advice = f"it is stopped: `kill -CONT {self._peer}` lets it go on"
                raise Unreachable(advice, final=True) from None
            raise Unreachable(f"its control socket gives no answer ({error})") from None
        self._wait_s = None
        if isinstance(answer, Refused):
            raise MaadErrors([error_from_wire(error) for error in answer.errors])
        return answer

    def send(self, message: bytes) -> None:
        """An OSError means that the message did not go out as a whole."""
        self._socket.settimeout(self._wait_s)
        self._socket.sendall(message)

    def receive(self) -> bytes:
        """The next message. OSError at the end of the connection."""
        try:
            return self._read(body_length(self._read(HEADER_BYTES)))
        except ValueError:
            raise ConnectionError("what listens there is no maadd server") from None

    def wait_at_most(self, seconds: float) -> None:
        """For each `receive` from now on; TimeoutError, which is an OSError."""
        self._wait_s = seconds

    def close(self) -> None:
        """Further calls do nothing."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        give_up = None if self._wait_s is None else time.monotonic() + self._wait_s
        while size:
            part = self._receive_some(min(size, 1_048_576), give_up)
            if not part:
                raise ConnectionError("the connection has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _receive_some(self, size: int, give_up: float | None) -> bytes:
        while True:
            left = _GLANCE_S if give_up is None else min(_GLANCE_S, give_up - time.monotonic())
            self._socket.settimeout(max(left, 0.001))
            try:
                return self._socket.recv(size)
            except TimeoutError:
                if give_up is not None and time.monotonic() >= give_up:
                    raise


class OwnedProject:
    """A project that another process owns, and that answers one call at a time."""

    def __init__(self, connection: ControlConnection, warn: Callable[[str], None]) -> None:
        self._connection = connection
        self._warn = warn

    @classmethod
    def attach(
        cls,
        endpoint: str,
        root: str,
        warn: Callable[[str], None],
        *,
        wait_s: float = HANDSHAKE_S,
    ) -> OwnedProject:
        """Reach the project at `root` through its server. Raises Unreachable."""
        connection = ControlConnection(endpoint, wait_s)
        try:
            answer = connection.ask(Attach(root, follow=False), wait_s)
        except BaseException as failure:
            connection.close()
            if isinstance(failure, MaadErrors):
                stopping = errors_of(failure)[0].code == "SHUTTING_DOWN"
                reason = "it is stopping" if stopping else f"it takes no commands now ({failure})"
                raise Unreachable(reason, stopping=stopping) from None
            raise
        if not isinstance(answer, Attached):
            connection.close()
            raise Unreachable("its control socket gives a strange answer")
        return cls(connection, warn)

    def answer(self, call: Call, on_progress: OnProgress | None) -> Reply:
        """The reply to a call, which an interruption withdraws. Raises OwnerGone, and
        MaadErrors of WORKER_LOST."""
        try:
            try:
                return self._perform(call, on_progress)
            except _Lost:
                # Only what can be repeated comes here; a second loss is told.
                return self._perform(call, on_progress)
        except _Lost:
            raise MaadErrors([worker_lost(call)]) from None
        except KeyboardInterrupt:
            self._withdraw(call)
            raise

    def close(self) -> bool:
        """Whatever is left to do is the owner's."""
        self._connection.close()
        return True

    def _perform(self, call: Call, on_progress: OnProgress | None) -> Reply:
        try:
            self._connection.send(encode(call))
        except OSError:
            raise OwnerGone(maybe_done=False) from None
        while True:
            message = self._next()
            match message:
                case Reply():
                    return message
                case CallProgress() if on_progress is not None:
                    on_progress(message)
                case Cancelled(withdrawn=True):
                    raise OwnerGone(maybe_done=False)
                case Lost() if call.is_write and not is_repeatable(call.tool):
                    raise MaadErrors([worker_lost(call)])
                case Lost():
                    raise _Lost
                case _:
                    continue

    def _next(self) -> FromOwner:
        try:
            return decode_from_owner(self._connection.receive())
        except (OSError, msgspec.MsgspecError):
            raise OwnerGone(maybe_done=True) from None

    def _withdraw(self, call: Call) -> None:
        """Tell the owner that nobody waits any more, and the person what became of a write."""
        outcome = "may still be done; look at the project before you repeat it"
        with contextlib.suppress(OSError, OwnerGone):
            self._connection.wait_at_most(_LAST_WORD_S)
            self._connection.send(encode(Cancel(call.request_id)))
            while True:
                match self._next():
                    case Reply(ok=ok):
                        outcome = "was done all the same" if ok else "was refused"
                        break
                    case Cancelled(withdrawn=True):
                        outcome = "was withdrawn; nothing of it is done"
                        break
                    case Cancelled() | Lost():
                        break
                    case _:
                        continue
        if call.is_write:
            self._warn(f"{call.tool} {outcome}")


class _Lost(Exception):
    """The worker died with what can be repeated."""


def is_repeatable(tool: str) -> bool:
    """Whether a write does no harm when it is done twice, such as the reindex that some commands
    begin with."""
    spec = TOOLS[tool]
    return spec.idempotent_hint and not spec.destructive_hint


def worker_lost(call: Call) -> MaadError:
    """WORKER_LOST for a write that may have been done."""
    details = {"tool": call.tool}
    advice = "try again"
    if call.is_write:
        details["writeOutcome"] = "unknown_reconcile"
        advice = "look at the record before writing again (writeOutcome: unknown_reconcile)"
    return MaadError(
        "WORKER_LOST", f"the process that had {call.tool} in hand is gone; {advice}", details
    )
