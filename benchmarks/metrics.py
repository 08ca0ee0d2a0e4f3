"""What the metrics cost: the same gets of one daemon that nobody scrapes and of one that is.

    python -m benchmarks.metrics [--records 2000] [--seconds 3] [--rounds 4] [--every 1.0]

Both daemons run all the time and serve projects of the same content; they are loaded in turns, so
that what else happens on the machine happens to both. The counters themselves run in either: what
one call takes to count is measured alone and set beside the time that the front had for a get.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.corpus import write_corpus
from benchmarks.daemon import Daemon, free_port, init_repository, maad, serve
from benchmarks.driver import Connection, call_body, is_success, open_session, run_load
from maadd.ops.meter import Meter

CLIENTS = 8
_COUNTED = 200_000
_GETS = [call_body("maad_get", {"docId": f"ins-{number:06d}"}) for number in range(200)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=2000)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--every", type=float, default=1.0, help="seconds between two scrapes")
    given = options.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="maadd-metrics-") as folder, ExitStack() as stack:
        daemons = []
        for name, settings in (("off", {}), ("on", {"MAADD_METRICS": str(port)})):
            project = Path(folder) / name / "project"
            write_corpus(project, given.records)
            init_repository(project)
            maad("reindex", f"--project={project}")
            instance = Path(folder) / name / "instance"
            daemons.append(stack.enter_context(serve(instance, project, settings=settings)))
        off, on, size, took = asyncio.run(
            measure(*daemons, port, given.seconds, given.rounds, given.every)
        )
    one = count_ns()
    rate = statistics.median(off)
    ratios = [scraped / quiet for quiet, scraped in zip(off, on, strict=True)]
    print(f"off  {rate:6.0f}/s   (median of {given.rounds})")
    print(f"on   {statistics.median(on):6.0f}/s   scraped every {given.every:g} s")
    print(f"on to off: {statistics.median(ratios):.3f}   ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"a scrape: {size} bytes in {took * 1000:.1f} ms")
    print(f"counting one call: {one:.0f} ns, {one * rate / 1e9:.2%} of the time of a get")


async def measure(
    off: Daemon, on: Daemon, port: int, seconds: float, rounds: int, every: float
) -> tuple[list[float], list[float], int, float]:
    """Gets a second of each round on either daemon; size and time of the last scrape."""
    quiet = [await open_session(off.port, off.token, "bench") for _ in range(CLIENTS)]
    watched = [await open_session(on.port, on.token, "bench") for _ in range(CLIENTS)]
    for clients in (quiet, watched):
        await _rate(clients, 1.0)
    scraper = asyncio.create_task(_scrape(port, every))
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        turn = [(quiet, rates[0]), (watched, rates[1])]
        for clients, kept in turn if number % 2 == 0 else reversed(turn):
            kept.append(await _rate(clients, seconds))
    scraper.cancel()
    size, took = await _scrape_once(port)
    return *rates, size, took


def count_ns() -> float:
    """Nanoseconds to count one call."""
    meter = Meter()
    started = time.perf_counter_ns()
    for _ in itertools.repeat(None, _COUNTED):
        meter.succeeded("bench", "maad_get", 0.001)
    return (time.perf_counter_ns() - started) / _COUNTED


async def _rate(clients: list[Connection], seconds: float) -> float:
    load = await run_load(clients, _gets, seconds, is_success)
    if load.failures:
        raise RuntimeError(f"{load.failures} of {load.count} calls failed")
    return load.rate


async def _scrape(port: int, every: float) -> None:
    while True:
        await _scrape_once(port)
        await asyncio.sleep(every)


async def _scrape_once(port: int) -> tuple[int, float]:
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    body = await reader.read()
    writer.close()
    return len(body), time.perf_counter() - started


def _gets(number: int) -> Iterator[bytes]:
    return itertools.cycle(_GETS[number:])


if __name__ == "__main__":
    main()
