"""Git's own housekeeping, in quiet minutes and never in the way of a write (design §7)."""

from __future__ import annotations

import subprocess
import time

from maadd_worker.history.command import NO_HOOKS, child_environment, git_arguments, stop_group

_TIMEOUT_S = 600.0
_NICE = 10
_ATTACHED = ("-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false")
_STEPS = (
    ("maintenance", "run", "--auto", "--quiet"),
    ("commit-graph", "write", "--reachable", "--changed-paths", "--no-progress"),
)


class Maintenance:
    """Runs the steps one after another as children of low priority; `poll` moves it on."""

    __slots__ = ("_child", "_root", "_started_at", "_steps")

    def __init__(self, root: str) -> None:
        self._root = root
        self._steps = list(_STEPS)
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    def poll(self) -> bool:
        """Start the next step when the last one is over; False when all are done."""
        if self._child is not None:
            if self._child.poll() is None:
                if time.monotonic() - self._started_at > _TIMEOUT_S:
                    self.stop()
                    return False
                return True
            self._child = None
        if not self._steps:
            return False
        step = self._steps.pop(0)
        environment = child_environment(self._root)
        try:
            self._child = subprocess.Popen(
                ["nice", "-n", str(_NICE), *git_arguments(step, (*NO_HOOKS, *_ATTACHED))],
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self._steps.clear()
            return False
        self._started_at = time.monotonic()
        return True

    def stop(self) -> None:
        """End the running step, if any."""
        self._steps.clear()
        if self._child is not None:
            stop_group(self._child)
            self._child = None
