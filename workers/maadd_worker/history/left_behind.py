"""Whether the process that made a lock or a file of ours has ended.

Its number alone does not tell: another process may have it by now, so that the time of its start
goes with it.
"""

from __future__ import annotations

import os
import re

from maadd.protocol.process_identity import ProcessIdentity, identify, is_gone, this_realm

_MARK = re.compile(r"([0-9]{1,10})\.([0-9]{1,20})")


def mark_of_this_process() -> str:
    """`<pid>.<start>`, for a name or a content; the number alone where the system does not tell
    the start."""
    process = identify(os.getpid())
    return str(os.getpid()) if process is None else f"{process.pid}.{process.started}"


def has_ended(mark: str) -> bool:
    """Whether the process that made this mark surely lives no more; False for any other text."""
    match, realm = _MARK.fullmatch(mark), this_realm()
    return (
        match is not None
        and realm is not None
        and is_gone(ProcessIdentity(int(match[1]), int(match[2]), realm))
    )
