"""Standard input and output kept for one client alone (spec 04 §10)."""

from __future__ import annotations

import fcntl
import os


def take_over_stdio() -> tuple[int, int]:
    """Private descriptors of standard input and output; 0 and 1 lead elsewhere from then on.

    Descriptor 1 becomes standard error and 0 the null device: whatever this process or a
    child prints can never get between the messages.
    """
    reading = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    writing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        os.dup2(null, 1)
    os.close(null)
    return reading, writing
