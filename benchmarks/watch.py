"""How soon hand work is served: single edits under a write load, a pull of many files, and what
watching costs when nothing happens.

    python -m benchmarks.watch [--records 5000] [--edits 200] [--pull 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.ceilings import git
from benchmarks.corpus import inspection_text, write_corpus
from benchmarks.daemon import init_repository, maad, serve
from benchmarks.driver import Connection, call_body, open_session

_STEP_S = 0.01
_IDLE_S = 20.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--pull", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maadd-bench-") as folder:
        work = Path(folder)
        project = work / "project"
        write_corpus(project, arguments.records)
        init_repository(project)
        maad("reindex", f"--project={project}")
        with serve(work / "instance", project) as daemon:
            asyncio.run(_measure(daemon.port, daemon.token, project, arguments))


async def _measure(port: int, token: str, project: Path, arguments: Any) -> None:
    session = await open_session(port, token, "bench")
    await _call(session, "maad_summary", {})
    writers = [await open_session(port, token, "bench") for _ in range(2)]
    stop = asyncio.Event()
    load = [asyncio.create_task(_write(writer, n, stop)) for n, writer in enumerate(writers)]
    delays = await _edits(session, project, arguments.edits)
    stop.set()
    writes = sum(await asyncio.gather(*load))
    delays.sort()
    p95 = delays[int(len(delays) * 0.95)]
    print(
        f"a hand edit is served after {delays[len(delays) // 2]:.2f} s (p50), {p95:.2f} s (p95), "
        f"{delays[-1]:.2f} s (worst of {len(delays)}), during {writes} writes by agents"
    )
    print(
        f"a pull of {arguments.pull} files: {await _pull(session, project, arguments.pull):.2f} s"
    )
    worker = (await _call(session, "maad_health", {}))["worker"]["pid"]
    before = _processor_s(worker)
    await asyncio.sleep(_IDLE_S)
    used = _processor_s(worker) - before
    print(f"an idle worker takes {used / _IDLE_S * 100:.2f} percent of a processor")


async def _edits(session: Connection, project: Path, edits: int) -> list[float]:
    """Seconds from each save until the title is in a query of the record."""
    rng = random.Random(1)
    files = sorted((project / "inspections").glob("ins-000*.md"))
    delays = []
    for number in range(edits):
        path = rng.choice(files)
        lines = path.read_text().splitlines(keepends=True)
        lines = [f"title: Edit {number}\n" if line.startswith("title:") else line for line in lines]
        draft = path.with_name(f".{path.name}.swp")
        draft.write_text("".join(lines))
        draft.rename(path)
        saved = time.perf_counter()
        wanted = {"docType": "inspection", "filters": {"title": f"Edit {number}"}, "limit": 1}
        while (await _call(session, "maad_query", wanted))["total"] != 1:
            await asyncio.sleep(_STEP_S)
        delays.append(time.perf_counter() - saved)
    return delays


async def _write(session: Connection, number: int, stop: asyncio.Event) -> int:
    writes = 0
    while not stop.is_set():
        fields = {"name": f"T {number} {writes}", "station": "sta-00001"}
        await _call(session, "maad_create", {"docType": "technician", "fields": fields})
        writes += 1
    return writes


async def _pull(session: Connection, project: Path, files: int) -> float:
    """Seconds from the end of a checkout until the last of its files is served."""
    counts: dict[str, Any] = {"docType": "inspection", "limit": 1}
    await _settled_total(session, counts)
    git(project, "checkout", "-q", "-b", "theirs")
    rng = random.Random(2)
    for number in range(files):
        name = 900_000 + number
        text = inspection_text(rng, name, 10, 10)
        (project / "inspections" / f"ins-{name}.md").write_text(text)
    git(project, "add", "inspections")
    git(project, "commit", "-q", "-m", "theirs")
    git(project, "checkout", "-q", "-")
    before = await _settled_total(session, counts)
    git(project, "merge", "-q", "theirs")
    merged = time.perf_counter()
    while (await _call(session, "maad_query", counts))["total"] < before + files:
        await asyncio.sleep(_STEP_S)
    return time.perf_counter() - merged


async def _settled_total(session: Connection, counts: dict[str, Any]) -> int:
    """The number of records once nothing is pending for a while."""
    quiet_since = time.perf_counter()
    while time.perf_counter() - quiet_since < 2:
        if (await _call(session, "maad_health", {}))["watcher"]["pendingEvents"]:
            quiet_since = time.perf_counter()
        await asyncio.sleep(0.1)
    return int((await _call(session, "maad_query", counts))["total"])


async def _call(session: Connection, tool: str, arguments: dict[str, object]) -> Any:
    status, _, answer = await session.post(call_body(tool, arguments))
    text = answer.decode().partition("data: ")[2].strip() or answer.decode()
    envelope = json.loads(json.loads(text)["result"]["content"][0]["text"])
    if status != 200 or not envelope["ok"]:
        raise RuntimeError(f"{tool}: {envelope}")
    return envelope["data"]


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
