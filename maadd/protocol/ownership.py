"""Who owns a project: the lock file `_backend/lock` as every process reads it (spec 01 §1.1).

It holds one line of JSON, `Owner`, and is never deleted. The kernel's lock alone says who owns
the project: it ends with its process, however that died, so a line left in the file proves
nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Annotated

import msgspec

from maadd.protocol.process_identity import (
    ProcessIdentity,
    identify,
    is_gone,
    is_stopped,
    this_realm,
)
from maadd.protocol.regular_file import read_regular_file

LOCK_PATH = "_backend/lock"
_HANDOVER_S = 0.05
_PROBE_S = 0.005


Pid = Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
"""A number that the system can take for one; a line in a file may say anything."""

Ticks = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Server(msgspec.Struct, frozen=True):
    """Whom a worker works for: a daemon, a stdio server, or a command that works for itself.

    `serves` is an instance file or a project folder, `since` a time in ISO 8601; `started` as of
    ProcessIdentity, None where the system does not tell.
    """

    pid: Pid
    started: Ticks | None
    kind: str
    serves: str
    since: str

    @property
    def advice(self) -> str:
        """What to do for somebody who needs the project and cannot ask this server."""
        if is_stopped(self.pid):
            return f"it is stopped: `kill -CONT {self.pid}` lets it go on"
        if self.kind == COMMAND:
            return "wait until it is done, or end it"
        if self.kind == STDIO_SERVER:
            return "end the program that started it, or use the project through that"
        return "send the request to that server, or stop it"

    def __str__(self) -> str:
        # The name alone: where things lie on the disk is no business of distant callers.
        name = os.path.basename(self.serves)
        return f"the {self.kind} of {name} (process {self.pid}, since {self.since})"


COMMAND = "command"
STDIO_SERVER = "stdio server"


def this_server(kind: str, serves: str, since: str) -> Server:
    """This process, as a server."""
    pid = os.getpid()
    itself = identify(pid)
    return Server(pid, None if itself is None else itself.started, kind, serves, since)


class Owner(msgspec.Struct, frozen=True):
    """Who holds a project: the process that has the lock, the control socket of its server, and
    that server; each None when not known. `started` and `realm` as of ProcessIdentity."""

    pid: Pid | None = None
    endpoint: str | None = None
    started: Ticks | None = None
    realm: str | None = None
    server: Server | None = None

    @property
    def process(self) -> ProcessIdentity | None:
        """The process that has the lock."""
        return self._identity(self.pid, self.started)

    @property
    def is_abandoned(self) -> bool:
        """Whether the server is gone for sure, so that its worker works for nobody."""
        if self.server is None or self.server.pid == self.pid:
            return False
        server = self._identity(self.server.pid, self.server.started)
        return server is not None and is_gone(server)

    @property
    def server_pid(self) -> int | None:
        """The process to turn to: the server, or who has the lock where that is not known."""
        return self.pid if self.server is None else self.server.pid

    @property
    def advice(self) -> str:
        """What to do for somebody who needs the project and cannot ask its server."""
        if self.server is None:
            return "stop the server it belongs to, or send the request to that server"
        return self.server.advice

    def __str__(self) -> str:
        if self.server is not None:
            return str(self.server)
        return "another process" if self.pid is None else f"process {self.pid}"

    def _identity(self, pid: int | None, started: int | None) -> ProcessIdentity | None:
        if pid is None or started is None or self.realm is None:
            return None
        return ProcessIdentity(pid, started, self.realm)


def this_owner(endpoint: str | None, server: Server | None) -> Owner:
    """This process, as the one that has the lock."""
    itself = identify(os.getpid())
    started = None if itself is None else itself.started
    return Owner(os.getpid(), endpoint, started, this_realm(), server)


def acquire_flock(
    path: str, *, shared: bool = False, create: bool = True, wait_s: float = _HANDOVER_S
) -> int:
    """Lock the file at `path`; the returned descriptor holds the lock until it is closed.

    `wait_s` bounds how long a lock that is just being given up is waited for. Raises
    BlockingIOError when the lock stays held, FileNotFoundError without `create`, any other
    OSError as the file system gave it.
    """
    flags = os.O_NONBLOCK | os.O_NOFOLLOW | (os.O_RDONLY if shared and not create else os.O_RDWR)
    if create:
        flags |= os.O_CREAT
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    give_up = time.monotonic() + wait_s
    while True:
        descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, operation)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= give_up:
                os.close(descriptor)
                raise
            time.sleep(_PROBE_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the locked file still is the one others would open."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def read_owner(root: str) -> Owner | None:
    """The process that owns the project at `root` for writing now; None when nobody does, or
    when the lock cannot be looked at, which whoever takes it is told better."""
    try:
        descriptor = acquire_flock(
            os.path.join(root, LOCK_PATH), shared=True, create=False, wait_s=0
        )
    except BlockingIOError:
        return last_owner(root)
    except OSError:
        return None
    os.close(descriptor)
    return None


def last_owner(root: str) -> Owner:
    """What the last owner of the project at `root` wrote of itself, gone or not."""
    try:
        line, _status = read_regular_file(os.path.join(root, LOCK_PATH))
        return msgspec.json.decode(line[:4096], type=Owner)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return Owner()


def lock_holders(path: str) -> list[int]:
    """The processes that hold a `flock` on the file, 0 for one that the kernel does not name.

    Raises FileNotFoundError when there is no such file.
    """
    status = os.stat(path)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with open("/proc/locks", encoding="ascii") as table:
        rows = [line.split() for line in table]
    # A lock that somebody waits for stands there as `-> FLOCK`.
    return [max(0, int(row[4])) for row in rows if row[1] == "FLOCK" and row[5] == device]
