"""What a full reindex takes: time, memory, and what an interruption costs.

    python -m benchmarks.reindex [--records 100000] [--project FOLDER]

One worker of a daemon indexes a project twice: into a new index, and again with `force` where
the rows exist. Each of the two is then made once more and cut short half-way, by SIGKILL of the
worker and by an orderly stop of the daemon; what the next process skips is what was kept.

Memory is the peak resident size (VmHWM) of the worker together with those of the processes that
it has at the same time, for parsing or Git: an upper bound, looked at ten times a second. The
promise is 400 MB at 100,000 records. `--project` takes a project of `benchmarks.corpus`, whose
index is made anew; one with a repository is asked for the versions that the lost index knew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import write_corpus
from benchmarks.daemon import Daemon, serve
from benchmarks.driver import Connection, call_body, open_session

BOUND_MB = 400
_LOOK_S = 0.1

Serve = Callable[[], AbstractContextManager[Daemon]]


@dataclass
class Peaks:
    """Peak resident memory in MB: of a worker, and of it with the processes that it had."""

    worker: float = 0
    total: float = 0

    def look(self, pid: int) -> None:
        """Take note of what the processes have needed until now."""
        self.worker = max(self.worker, _peak_mb(pid))
        children = sum(map(_peak_mb, _children(pid)))
        self.total = max(self.total, self.worker + children)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--project", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="maadd-reindex-") as folder:
        work = Path(folder)
        project = given.project or work / "project"
        if given.project is None:
            write_corpus(project, given.records, sharded=True)

        half = sum(1 for _ in project.glob("[!_]*/**/*.md")) // 2
        history = None if (project / ".git").exists() else "feed"

        def served() -> AbstractContextManager[Daemon]:
            return serve(work / "instance", project, history=history)

        for name, force in (("new index", False), ("forced", True)):
            _forget(project, force)
            with served() as daemon:
                print(name, asyncio.run(_whole(daemon, force)))
            for way in ("SIGKILL", "stop"):
                _forget(project, force)
                print(f"{name}, {way}", _interrupted(served, force, way, half))


async def _whole(daemon: Daemon, force: bool) -> str:
    """A reindex from its beginning to its end."""
    session = await open_session(daemon.port, daemon.token, "bench")
    began = time.perf_counter()
    job_id, pid = await _begin(session, force)
    peaks = Peaks()
    job = await _watch(session, job_id, peaks, pid, until=None)
    seconds = time.perf_counter() - began
    done = job["result"]["scanned"]
    mark = "" if peaks.total <= BOUND_MB else " over"
    return (
        f"{done} records in {seconds:.1f} s ({done / seconds:.0f}/s); peak memory of the worker "
        f"{peaks.worker:.0f} MB, with its processes {peaks.total:.0f} MB{mark}"
    )


def _interrupted(served: Serve, force: bool, way: str, half: int) -> str:
    """A reindex that is cut short after `half` files, and what the next process had left to do."""

    async def cut(daemon: Daemon) -> tuple[str, int]:
        session = await open_session(daemon.port, daemon.token, "bench")
        job_id, pid = await _begin(session, force)
        job = await _watch(session, job_id, Peaks(), pid, until=half)
        if way == "SIGKILL":
            os.kill(pid, signal.SIGKILL)
        return job_id, job["done"]

    async def finish(daemon: Daemon, job_id: str) -> dict[str, Any]:
        session = await open_session(daemon.port, daemon.token, "bench")
        return await _watch(session, job_id, Peaks(), None, until=None)

    with served() as daemon:
        job_id, done = asyncio.run(cut(daemon))
        if way == "SIGKILL":
            job = asyncio.run(finish(daemon, job_id))
    if way != "SIGKILL":
        with served() as daemon:
            job = asyncio.run(finish(daemon, job_id))
    result = job["result"]
    return (
        f"after {done} of {result['scanned']} files: the next process kept {result['skipped']} "
        f"and indexed {result['indexed']}"
    )


async def _begin(session: Connection, force: bool) -> tuple[str, int]:
    """Start a job; its id and the process id of the worker."""
    health = await _call(session, "maad_health", {})
    started = await _call(session, "maad_reindex", {"force": force, "wait": False})
    if health is None or started is None:
        raise RuntimeError("the project could not be opened")
    return str(started["jobId"]), int(health["worker"]["pid"])


async def _watch(
    session: Connection, job_id: str, peaks: Peaks, pid: int | None, *, until: int | None
) -> dict[str, Any]:
    """The job as it is when `until` files are done, or at its end."""
    while True:
        job = await _job(session, job_id)
        if pid is not None:
            peaks.look(pid)
        if job["state"] not in ("queued", "running", "unknown"):
            if job["state"] != "done":
                raise RuntimeError(f"the reindex ended otherwise: {job}")
            return job
        if until is not None and job["done"] >= until:
            return job
        await asyncio.sleep(_LOOK_S)


async def _job(session: Connection, job_id: str) -> dict[str, Any]:
    """What health says of a job; `unknown` while no worker is there."""
    health = await _call(session, "maad_health", {})
    jobs = {} if health is None else {job["jobId"]: job for job in health.get("jobs", ())}
    found: dict[str, Any] = jobs.get(job_id, {"state": "unknown", "done": 0, "total": None})
    return found


async def _call(session: Connection, tool: str, arguments: dict[str, object]) -> Any:
    """The data of a call, None when it fails."""
    _, _, answer = await session.post(call_body(tool, arguments))
    text = answer.decode().partition("data: ")[2].strip() or answer.decode()
    envelope = json.loads(json.loads(text)["result"]["content"][0]["text"])
    return envelope["data"] if envelope["ok"] else None


def _forget(project: Path, force: bool) -> None:
    """For a new index there must be none."""
    if not force:
        shutil.rmtree(project / "_backend", ignore_errors=True)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def _peak_mb(pid: int) -> float:
    """VmHWM of a process, 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    peaks = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0].split()[1]) / 1024 if peaks else 0


if __name__ == "__main__":
    main()
