"""How much two projects in trouble cost a third.

    python -m benchmarks.isolation [--records 5000] [--seconds 8]

One project is flooded with reads that go through all its records and files, the worker of
another is killed as often as it comes up. Meanwhile a third answers `maad_get`; its latencies
stand beside those of a quiet daemon in the same run. The promise is a p99 within twice the
quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.corpus import write_corpus
from benchmarks.daemon import Daemon, init_repository, maad, serve
from benchmarks.driver import Load, call_body, open_session, run_load

_READERS = 4
_CLIENTS = 2
_GET = [call_body("maad_get", {"docId": f"ins-{number:06d}"}) for number in range(200)]
_SLOW = call_body("maad_verify", {"mode": "integrity"})
_HEALTH = call_body("maad_health", {})
_KILL_PAUSE_S = 0.3


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=5000)
    options.add_argument("--seconds", type=float, default=8.0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="maadd-isolation-") as folder:
        work = Path(folder)
        projects = {name: work / name for name in ("bench", "runaway", "crashing")}
        for path in projects.values():
            write_corpus(path, given.records)
            init_repository(path)
            maad("reindex", f"--project={path}")
        with serve(work / "instance", projects.pop("bench"), **projects) as daemon:
            quiet, troubled, kills, slow = asyncio.run(measure(daemon, given.seconds))
    print(f"quiet    {quiet.rate:6.0f}/s  p50 {quiet.p50_ms:.2f} ms  p99 {quiet.p99_ms:.2f} ms")
    print(
        f"troubled {troubled.rate:6.0f}/s  p50 {troubled.p50_ms:.2f} ms  "
        f"p99 {troubled.p99_ms:.2f} ms  ({kills} kills, {slow} slow reads)"
    )
    print(f"p99: {troubled.p99_ms / quiet.p99_ms:.2f} times the quiet one")
    print(f"failures: {quiet.failures + troubled.failures}")


async def measure(daemon: Daemon, seconds: float) -> tuple[Load, Load, int, int]:
    """The quiet load and the troubled one, with the number of kills and of slow reads."""
    clients = [await open_session(daemon.port, daemon.token, "bench") for _ in range(_CLIENTS)]
    await run_load(clients, _gets, 1.0, _is_good)
    quiet = await run_load(clients, _gets, seconds, _is_good)
    stop = asyncio.Event()
    flood = [asyncio.create_task(_flood(daemon, stop)) for _ in range(_READERS)]
    killer = asyncio.create_task(_kill(daemon, stop))
    await asyncio.sleep(1)
    troubled = await run_load(clients, _gets, seconds, _is_good)
    stop.set()
    return quiet, troubled, await killer, sum(await asyncio.gather(*flood))


async def _flood(daemon: Daemon, stop: asyncio.Event) -> int:
    connection = await open_session(daemon.port, daemon.token, "runaway")
    number = 0
    while not stop.is_set():
        await connection.post(_SLOW)
        number += 1
    return number


async def _kill(daemon: Daemon, stop: asyncio.Event) -> int:
    """Kill the worker of "crashing" whenever it is up; every call asks for a new one."""
    connection = await open_session(daemon.port, daemon.token, "crashing")
    kills = 0
    while not stop.is_set():
        await connection.post(_GET[0])
        pid = _worker_pid((await connection.post(_HEALTH))[2])
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills += 1
        await asyncio.sleep(_KILL_PAUSE_S)
    return kills


def _worker_pid(answer: bytes) -> int | None:
    data = next(line[6:] for line in answer.split(b"\n") if line.startswith(b"data: "))
    envelope = json.loads(json.loads(data)["result"]["content"][0]["text"])
    pid: int | None = envelope["data"]["worker"]["pid"] if envelope["ok"] else None
    return pid


def _gets(number: int) -> Iterator[bytes]:
    return itertools.cycle(_GET[number:])


def _is_good(status: int, answer: bytes) -> bool:
    return status == 200 and b'\\"ok\\":true' in answer


if __name__ == "__main__":
    main()
