"""The parsing process of a large pass: `python -m maadd_worker.index.parsing_process`.

Reads frames from standard input and writes one frame back for each (see `frames.py`): first
the assignment, then lists of files. Ends by itself when its input ends, so that it never
outlives the worker that started it. It changes nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.frames import (
    assignment_decoder,
    encode,
    read_frame,
    tasks_decoder,
    write_frame,
)
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.prepare import prepare_files


def main() -> None:
    """Serve until the input ends."""
    # A terminal sends it to the whole group; the worker decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    try:
        first = read_frame(incoming)
        if first is None:
            return
        assignment = assignment_decoder.decode(first)
        root = ProjectRoot.open(assignment.root)
        plans = TypePlans(assignment.model)
        while (frame := read_frame(incoming)) is not None:
            prepared = prepare_files(root, plans, assignment.limits, tasks_decoder.decode(frame))
            write_frame(outgoing, encode(prepared))
    except BrokenPipeError:
        # The worker is gone; nobody needs the rest, and nothing is left to be flushed.
        os._exit(0)


if __name__ == "__main__":
    main()
