"""Becomes the daemon as systemd would start it: sockets from descriptor 3 on, and under the
restrictions of maadd.service that can be had without being systemd.

Memory is never writable and executable (kernel 6.3 and later), and with libseccomp and
systemd-analyze only the system calls of the unit's filter are allowed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import subprocess
import sys

from units import FOLDER, values

_PR_SET_MDWE = 65
_PR_SET_NO_NEW_PRIVS = 38
_ALLOW = 0x7FFF0000
_REFUSE_WITH_EPERM = 0x00050000 | 1


def restrict() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_MDWE, 1, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    library = ctypes.util.find_library("seccomp")
    if library is None or shutil.which("systemd-analyze") is None:
        return
    seccomp = ctypes.CDLL(library)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_REFUSE_WITH_EPERM)))
    for name in allowed_calls():
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, ctypes.c_uint(0))
    if seccomp.seccomp_load(context) != 0:
        sys.exit("the filter was not accepted")


def allowed_calls() -> set[str]:
    """What the `SystemCallFilter=` lines of the service come to."""
    allowed = calls_of("@default")
    for line in values(FOLDER / "maadd.service", "SystemCallFilter"):
        words = line.removeprefix("~").split()
        named = set().union(*(calls_of(word) if word[0] == "@" else {word} for word in words))
        allowed = allowed - named if line.startswith("~") else allowed | named
    if os.geteuid() == 0:
        # What root makes in another's folder is given to its owner; the service is never root.
        allowed |= {"fchown"}
    return allowed


def calls_of(group: str) -> set[str]:
    told = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", group],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found: set[str] = set()
    for line in map(str.strip, told.splitlines()):
        if line.startswith("@") and line != group:
            found |= calls_of(line)
        elif line and not line.startswith(("#", "@")):
            found.add(line)
    return found


def main() -> None:
    for number in range(int(os.environ["LISTEN_FDS"])):
        os.dup2(100 + number, 3 + number)
    restrict()
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
