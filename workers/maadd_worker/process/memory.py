"""Resident memory of this process."""

from __future__ import annotations

import os
import resource


def resident_bytes() -> int:
    """Bytes in memory now; where /proc is missing, the highest figure so far."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
