"""From any thread to the main thread: messages for the front, and a way to wake it."""

from __future__ import annotations

import os
from collections import deque

from maadd.protocol.messages import ToFront


class Outbox:
    """Messages in order of posting; `fd` is readable when there is something to look at."""

    def __init__(self) -> None:
        self._messages: deque[ToFront] = deque()
        self._signalled = False
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)

    def post(self, message: ToFront) -> None:
        """Queue a message for the front."""
        self._messages.append(message)
        self.wake()

    def wake(self) -> None:
        """Make the main thread look around."""
        if not self._signalled:
            self._signalled = True
            os.write(self._write_fd, b"\0")

    def acknowledge(self) -> None:
        """Main thread, when `fd` is readable and before it looks around."""
        os.read(self.fd, 64)
        # Cleared after the read: who posted in between is seen by the look around, and
        # whoever posts from now on signals again.
        self._signalled = False

    def pop(self) -> ToFront | None:
        """The oldest message, or None."""
        return self._messages.popleft() if self._messages else None
