"""The one socket of the front towards its workers (design §4).

Used on the event loop's thread only. The socket's descriptor is edge-triggered: it becomes
readable when something changes, and any call on the socket may use that change up. So sends are
followed by a look at the socket's events, one for all of a turn of the loop because it costs as
much as they do, and reading goes on until nothing is left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import msgspec
import zmq
from structlog.typing import FilteringBoundLogger

from maadd.protocol.messages import ToFront, ToWorker, decode_to_front, encode

_LINGER_MS = 500
_FRAMES_AT_ONCE = 128

# Plain numbers: the operators of the enumerations take longer than the calls they are for.
_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)


class PeerGone(Exception):
    """No worker of that identity is connected; nothing was sent."""


class PeerFull(Exception):
    """The worker does not read and its queue is full; nothing was sent."""


class Router:
    """Binds `endpoint` and hands over each message with the identity it came from.

    `high_water` bounds the messages queued towards one worker.
    """

    def __init__(
        self,
        endpoint: str,
        on_message: Callable[[bytes, ToFront], None],
        *,
        high_water: int,
        log: FilteringBoundLogger,
    ) -> None:
        self._on_message = on_message
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._drain_planned = False
        self._closed = False
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.ROUTER)
        # Without it a message to an unknown peer vanishes in silence.
        self._socket.router_mandatory = True
        self._socket.linger = _LINGER_MS
        self._socket.sndhwm = high_water
        try:
            self.bind(endpoint)
        except OSError:
            self._context.destroy(linger=0)
            raise
        self._fd = int(self._socket.fileno())
        self._loop.add_reader(self._fd, self.drain)
        self._plan_drain()

    def send(self, identity: bytes, message: ToWorker) -> None:
        """Queue a message for one worker; `PeerGone` or `PeerFull` when that is impossible.

        A message that cannot be encoded raises before anything is sent: half a message would
        swallow the next one, which may be for another worker.
        """
        frame = encode(message)
        socket = self._socket
        try:
            socket.send(identity, _MORE)
            socket.send(frame, _NOW)
        except zmq.Again as error:
            raise PeerFull(identity.decode()) from error
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            raise PeerGone(identity.decode()) from error
        self._plan_drain()

    def bind(self, endpoint: str) -> None:
        """Take connections at one more place; those there are stay. OSError when it is none."""
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), endpoint) from error

    def drain(self) -> None:
        """Hand over everything that has arrived."""
        self._drain_planned = False
        socket = self._socket
        for _ in range(_FRAMES_AT_ONCE):
            if self._closed or not int(socket.get(_EVENTS)) & _READABLE:
                return
            # A DEALER's message has two frames, and both arrive at once.
            identity, frame = socket.recv(_NOW), socket.recv(_NOW)
            try:
                message = decode_to_front(frame)
            except msgspec.MsgspecError:
                self._log.error("message_unreadable", peer=identity.decode(errors="replace"))
                continue
            try:
                self._on_message(identity, message)
            except Exception as error:
                # The rest must still be read: nothing else would announce it.
                self._log.error("message_not_handled", peer=identity.decode(), exc_info=error)
        # Other work of the loop gets its turn.
        self._plan_drain()

    def close(self) -> None:
        """Close the socket; unsent messages are given up after a short while."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd)
        self._socket.close()
        self._context.term()

    def _plan_drain(self) -> None:
        if not self._drain_planned:
            self._drain_planned = True
            self._loop.call_soon(self._drain_if_planned)

    def _drain_if_planned(self) -> None:
        if self._drain_planned:
            self.drain()
