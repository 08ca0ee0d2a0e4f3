"""Named places at which a test makes a worker die, fail or wait (docs/architecture.md).

Off unless the environment variable `MAADD_FAILPOINTS` names some, as `name=action` with `;`
between them:

    kill            SIGKILL to this process
    kill:<file>     the same, if the file is there; it is removed first, so it happens once
    error:<errno>   the step fails with that error, for example `error:ENOSPC`
    pause:<fifo>    waits until a writer has opened and closed the FIFO
    sleep:<seconds>

`@<n>` behind an action restricts it to the n-th time that the place is reached.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import apsw
import msgspec

from maadd.protocol.errors import MaadError

VARIABLE = "MAADD_FAILPOINTS"

NAMES = frozenset(
    {
        "journal.begin",
        "journal.begun",
        "journal.mark",
        "journal.boundary",
        "journal.complete",
        "journal.completed",
        "folder.made",
        "file.stage",
        "file.staged",
        "file.synced",
        "file.publish",
        "file.published",
        "file.linked",
        "file.reserved",
        "file.withdraw",
        "file.aside",
        "folder.synced",
        "index.begun",
        "index.member",
        "index.commit",
        "index.committed",
        "history.begin",
        "history.flush",
        "git.lock",
        "git.locked",
        "git.objects",
        "git.object",
        "git.blob",
        "git.tree",
        "git.pack",
        "git.commit",
        "git.committed",
        "git.move",
        "git.ref.locked",
        "git.ref.logged",
        "git.moved",
        "git.index",
        "git.index.written",
        "git.indexed",
        "git.unlock",
        "git.unlocked",
        "git.tag",
        "git.tagged",
        "git.program.add",
        "git.program.commit",
        "git.program.committed",
        "reply.ready",
        "reply.sent",
        "recovery.undone",
        "recovery.settled",
        "recovery.history",
        "read.slow",
    }
)


class _Armed(msgspec.Struct, frozen=True):
    act: Callable[[], None]
    only: int | None
    count: Iterator[int]


# The only mutable state of a module here: the places are all over the worker, and an object
# handed down to each of them would be there for tests alone.
_armed: dict[str, _Armed] = {}


def arm(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Take the failpoints of an environment in place of those before; gives their names.

    INSTANCE_CONFIG_INVALID for a name or an action that does not exist.
    """
    _armed.clear()
    for text in environment.get(VARIABLE, "").split(";"):
        if text.strip():
            name, armed = _parse(text.strip())
            _armed[name] = armed
    return tuple(_armed)


def reach(name: str) -> None:
    """A step of this name begins, or is over. OSError when it shall fail."""
    if _armed:
        _act(name)


def reach_sqlite(name: str) -> None:
    """`reach` at a step of SQLite, which fails with apsw.Error."""
    if _armed:
        try:
            _act(name)
        except OSError as failure:
            known = {errno.ENOSPC: apsw.FullError, errno.EROFS: apsw.ReadOnlyError}
            raise known.get(failure.errno or 0, apsw.IOError)(str(failure)) from failure


def _act(name: str) -> None:
    armed = _armed.get(name)
    if armed is not None and armed.only in (None, next(armed.count)):
        armed.act()


def _parse(text: str) -> tuple[str, _Armed]:
    name, _, rest = text.partition("=")
    action, at, number = rest.rpartition("@")
    if not at:
        action = rest
    kind, _, argument = action.partition(":")
    act = _action(kind, argument)
    if name not in NAMES or act is None or (at and not number.isdecimal()):
        raise MaadError(
            "INSTANCE_CONFIG_INVALID",
            f"{VARIABLE}: {text!r} is no failpoint; write name=kill, name=error:ENOSPC, "
            "name=pause:<fifo> or name=sleep:<seconds>, with a name of maadd_worker.failpoints",
            {"variable": VARIABLE, "value": text},
        )
    return name, _Armed(act, int(number) if at else None, itertools.count(1))


def _action(kind: str, argument: str) -> Callable[[], None] | None:
    if kind == "kill":
        return partial(_kill, argument)
    if kind == "error" and argument in errno.errorcode.values():
        return partial(_fail, getattr(errno, argument))
    if kind == "pause" and argument:
        return partial(_wait, argument)
    if kind == "sleep" and argument.replace(".", "", 1).isdecimal():
        return partial(time.sleep, float(argument))
    return None


def _kill(trigger: str) -> None:
    if trigger:
        try:
            os.unlink(trigger)
        except FileNotFoundError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


def _wait(fifo: str) -> None:
    with open(fifo, "rb") as end:
        end.read()
