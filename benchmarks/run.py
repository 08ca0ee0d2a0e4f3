"""The main measurement: what the product does against what the machine can do.

    python -m benchmarks.run [--records 5000] [--seconds 4] [--out results.json]

Every figure stands beside its ceiling, measured in the same run, because absolute figures
differ by a factor of two from hour to hour on one machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.ceilings import GIT_ENV, git_rate, parse_rate, start_bare_server, wait_for_port
from benchmarks.corpus import write_corpus
from benchmarks.daemon import BIN, Daemon, free_port, init_repository, serve
from benchmarks.driver import (
    Connection,
    Load,
    call_body,
    data_of,
    figures,
    is_success,
    open_session,
    run_load,
)
from benchmarks.reads import reads

CLIENTS = 8
_QUIET_S = 1.0
"""After a reindex: the worker writes the log of the index back."""
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=5000)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--out", type=Path, default=Path("benchmarks/results.json"))
    given = options.parse_args()
    work = Path(tempfile.mkdtemp(prefix="maadd-bench-"))
    try:
        results = measure(work, given.records, given.seconds)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    given.out.write_text(json.dumps(results, indent=2) + "\n")
    print_table(results)


def measure(work: Path, records: int, seconds: float) -> dict[str, Any]:
    """All figures of one run."""
    project = work / "project"
    write_corpus(project, records)
    init_repository(project)
    results: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}",
        "records": records,
    }
    results["parse_per_s"] = parse_rate(project)
    with serve(work / "instance", project) as daemon:
        results |= asyncio.run(_over_http(daemon, records, seconds))
        results |= _memory(daemon)
    results["git_per_s"] = git_rate(project, 20)
    results["stdio_start_ms"] = _stdio_start_ms(project)
    results["help_ms"] = _command_ms("--help")
    return results


async def _over_http(daemon: Daemon, records: int, seconds: float) -> dict[str, Any]:
    sessions = [await open_session(daemon.port, daemon.token, "bench") for _ in range(CLIENTS)]
    inspections = records - max(1, records // 50) - max(1, records // 25)
    # The first call of a project starts its worker, which is not what is measured here.
    await sessions[0].post(call_body("maad_health", {}))
    results: dict[str, Any] = {
        "reindex_per_s": await _reindex_rate(sessions[0], records, force=False)
    }
    await asyncio.sleep(_QUIET_S)
    results["reindex_forced_per_s"] = await _reindex_rate(sessions[0], records, force=True)
    await asyncio.sleep(_QUIET_S)
    await _run(sessions, "maad_get", lambda n: {"docId": f"ins-{n % inspections:06d}"}, 1.0)
    sample = await sessions[0].post(call_body("maad_get", {"docId": "ins-000001"}))
    bare_port = free_port()
    bare = start_bare_server(bare_port, len(sample[2]))
    try:
        await wait_for_port(bare_port)
        plain = [Connection(bare_port, "/", {}) for _ in range(CLIENTS)]
        body = call_body("maad_get", {"docId": "ins-000001"})
        results["bare"] = figures(
            await run_load(plain, lambda _: itertools.repeat(body), seconds, _is_ok)
        )
        for one in plain:
            await one.close()
    finally:
        bare.terminate()
        bare.wait()
    for read in reads(await _cursors(sessions[0])):
        results[read.name] = figures(await _run(sessions, read.tool, read.arguments, seconds))
    results["create_alone"] = figures(await _run(sessions[:1], "maad_create", _create, seconds))
    results["create_8"] = figures(await _run(sessions, "maad_create", _create, seconds))
    for one in sessions:
        await one.close()
    return results


async def _cursors(session: Connection) -> list[str]:
    """Where the pages of twenty changes of the whole project begin, but for the last."""
    cursors = [""]
    while True:
        arguments = {"cursor": cursors[-1], "limit": 20}
        _, _, answer = await session.post(call_body("maad_changes_since", arguments))
        following = data_of(answer)["nextCursor"]
        if following is None:
            return cursors[:-1]
        cursors.append(following)


_serial = itertools.count()
_rng = random.Random(3)


def _create(_: int) -> dict[str, Any]:
    number = next(_serial)
    return {
        "docType": "inspection",
        "docId": f"ins-new-{number}",
        "fields": {
            "title": f"New inspection {number}",
            "station": "sta-00001",
            "technician": "tec-00001",
            "status": "open",
            "done_on": "2026-03-04",
            "score": _rng.randrange(100),
            "cost": "120.50 EUR",
            "tags": ["new", "pump"],
        },
        "body": "# New\n\nA valve was worn, see [[person:tec-00001|the technician]].",
    }


async def _run(sessions: list[Connection], tool: str, arguments: Any, seconds: float) -> Load:
    def bodies(number: int) -> Iterator[bytes]:
        for step in itertools.count():
            yield call_body(tool, arguments(step * CLIENTS + number))

    return await run_load(sessions, bodies, seconds, is_success)


def _is_ok(status: int, _: bytes) -> bool:
    return status == 200


async def _reindex_rate(session: Connection, records: int, *, force: bool) -> float:
    started = time.perf_counter()
    status, _, answer = await session.post(call_body("maad_reindex", {"force": force}))
    if not is_success(status, answer):
        raise RuntimeError(f"maad_reindex failed: {answer[:300]!r}")
    return records / (time.perf_counter() - started)


def _memory(daemon: Daemon) -> dict[str, float]:
    """Resident memory of the front and of its worker, in MB."""
    children = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        children[int(fields["Pid"])] = (int(fields["PPid"]), fields.get("VmRSS", "0 kB"))
    below = _descendants(children, daemon.pid)
    sizes = sorted((_mb(children[pid][1]) for pid in below), reverse=True)
    return {"front_mb": _mb(children[daemon.pid][1]), "worker_mb": sizes[0] if sizes else 0.0}


def _descendants(children: dict[int, tuple[int, str]], pid: int) -> list[int]:
    direct = [child for child, (parent, _) in children.items() if parent == pid]
    return direct + [below for child in direct for below in _descendants(children, child)]


def _mb(text: str) -> float:
    return round(int(text.split()[0]) / 1024, 1)


def _stdio_start_ms(project: Path) -> float:
    """From the start of the process to the answer of `initialize`; the median of five."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(BIN / "maad"), f"--project={project}", "serve", "--role=admin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**GIT_ENV, "MAAD_LOG_LEVEL": "error"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        times.append((time.perf_counter() - started) * 1000)
        if b'"serverInfo"' not in answer:
            raise RuntimeError(f"initialize answered {answer[:300]!r}")
        process.stdin.close()
        process.wait(20)
    return round(statistics.median(times), 1)


def _command_ms(*arguments: str) -> float:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([str(BIN / "maad"), *arguments], check=True, capture_output=True)
        times.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(times), 1)


def print_table(results: dict[str, Any]) -> None:
    """The figures as a Markdown table."""
    bare = results["bare"]["per_s"]
    git = results["git_per_s"]
    print(f"{results['date']}, {results['machine']}, {results['records']} records\n")
    print("| work | figure | p50 | p99 | of its ceiling |")
    print("|---|---|---|---|---|")
    print(
        f"| bare uvicorn, {CLIENTS} connections | {bare:.0f}/s | {_latency(results['bare'])} | 1 |"
    )
    for read in reads(()):
        one = results[read.name]
        share = one["per_s"] / bare
        print(f"| {read.title} | {one['per_s']:.0f}/s | {_latency(one)} | {share:.3f} bare |")
    print(f"| git add + commit by command line (G) | {git:.1f}/s | | | 1 |")
    for name, title in (
        ("create_alone", "`maad_create`, one commit each, alone"),
        ("create_8", "`maad_create`, one commit each, 8 clients"),
    ):
        one = results[name]
        print(f"| {title} | {one['per_s']:.0f}/s | {_latency(one)} | {one['per_s'] / git:.1f} G |")
    parse = results["parse_per_s"]
    print(f"| read and parse only (parse) | {parse:.0f}/s | | | 1 |")
    for name, title in (
        ("reindex_per_s", "full reindex into a new index"),
        ("reindex_forced_per_s", "full reindex, forced"),
    ):
        print(f"| {title} | {results[name]:.0f}/s | | | {results[name] / parse:.2f} parse |")
    print(
        f"| stdio start until `initialize` is answered | {results['stdio_start_ms']:.0f} ms | | | |"
    )
    print(f"| `maad --help` | {results['help_ms']:.0f} ms | | | |")
    print(f"| memory, front | {results['front_mb']:.0f} MB | | | |")
    print(f"| memory, worker | {results['worker_mb']:.0f} MB | | | |")


def _latency(one: dict[str, float]) -> str:
    return f"{one['p50_ms']:.2f} ms | {one['p99_ms']:.2f} ms"


if __name__ == "__main__":
    main()
