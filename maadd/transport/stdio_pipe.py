"""Standard input and output as a private pair of descriptors (spec 04 §10).

Two daemon threads read and write, so that any kind of descriptor serves, none is switched to
non-blocking under whoever shares it, and an exit never waits for a client that has stalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading

_CHUNK = 65_536
_WAITING_BYTES = 4 * 1_048_576
"""Unwritten output above this makes senders wait."""


class InputPipe:
    """Reads a descriptor chunk by chunk, one ahead of whoever asks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._wanted = threading.Semaphore(1)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def read(self) -> bytes:
        """The next chunk; empty at the end of the stream."""
        chunk = await self._chunks.get()
        self._wanted.release()
        return chunk

    def _read(self) -> None:
        chunk = b"begin"
        # A loop that is gone is the end of the process.
        with contextlib.suppress(RuntimeError):
            while chunk:
                self._wanted.acquire()
                try:
                    chunk = os.read(self._descriptor, _CHUNK)
                except OSError:  # as good as its end
                    chunk = b""
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)


class OutputPipe:
    """Writes whole messages to a descriptor, in the order they come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()
        self._ended = asyncio.Event()
        self.broken = asyncio.Event()
        """Set once nobody reads any more."""
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def send(self, line: bytes) -> None:
        """Queue one line; waits while too much is unwritten. Lost when nobody reads."""
        await self._room.wait()
        self._waiting += len(line)
        if self._waiting > _WAITING_BYTES:
            self._room.clear()
        self._lines.put(line)

    async def close(self) -> None:
        """Everything sent before is written, or nobody reads it."""
        self._lines.put(None)
        await self._ended.wait()

    def _write(self) -> None:
        with contextlib.suppress(RuntimeError):
            while (line := self._lines.get()) is not None:
                try:
                    _write_all(self._descriptor, line)
                except OSError:
                    self._loop.call_soon_threadsafe(self.broken.set)
                self._loop.call_soon_threadsafe(self._written, len(line))
            self._loop.call_soon_threadsafe(self._ended.set)

    def _written(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= _WAITING_BYTES:
            self._room.set()


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
