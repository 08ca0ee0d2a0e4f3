"""Reading a file of settings that somebody may have replaced by something else."""

from __future__ import annotations

import errno
import os
import stat


def read_regular_file(path: str) -> tuple[bytes, os.stat_result]:
    """The content of a regular file and its status at that moment.

    OSError as the system gave it, and for anything else than a file: reading a pipe or a device
    could wait for ever.
    """
    with open(
        os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb"
    ) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(), status
