"""Writes against what `git add` and `git commit` by the command line do in the same run.

    python -m benchmarks.writes [--records 5000] [--seconds 4] [--out writes.json]

Syncing to the disk is on. G is measured in the repository that the writes go to, right after
them. The update of one field is measured in a project of ten times as many records too, whose
folders are sharded.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ceilings import git_rate
from benchmarks.corpus import write_corpus
from benchmarks.daemon import Daemon, init_repository, serve
from benchmarks.driver import (
    Connection,
    Load,
    call_body,
    figures,
    is_success,
    open_session,
    run_load,
)

CLIENTS = 8
BULK = 50
_BULK_ROUNDS = 15
_GIT_ROUNDS = 20
_TIMES_LARGER = 10

_serial = itertools.count()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=5000)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    work = Path(tempfile.mkdtemp(prefix="maadd-bench-"))
    try:
        results = measure(work, given.records, given.seconds)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=2) + "\n")
    print_table(results)


def measure(work: Path, records: int, seconds: float) -> dict[str, Any]:
    """All figures of one run."""
    results: dict[str, Any] = {"records": records}
    with _project(work / "audit", records) as (project, daemon):
        results["audit"] = asyncio.run(_audit(daemon, records, seconds))
    results["audit"]["git_per_s"] = git_rate(project, _GIT_ROUNDS)
    with _project(work / "batch", records, history="batch") as (project, daemon):
        results["batch"] = asyncio.run(_batch(daemon, seconds))
    results["batch"]["git_per_s"] = git_rate(project, _GIT_ROUNDS)
    for name, count in (("small", records), ("large", records * _TIMES_LARGER)):
        with _project(work / name, count, sharded=True) as (_, daemon):
            results[f"update_{name}"] = asyncio.run(_updates(daemon, records, seconds))
    return results


@contextmanager
def _project(
    folder: Path, records: int, *, history: str = "audit", sharded: bool = False
) -> Iterator[tuple[Path, Daemon]]:
    """A served project of so many records, indexed."""
    project = folder / "project"
    write_corpus(project, records, sharded=sharded)
    init_repository(project)
    with serve(folder / "instance", project, history=history) as daemon:
        yield project, daemon


async def _audit(daemon: Daemon, records: int, seconds: float) -> dict[str, Any]:
    sessions = await _sessions(daemon)
    results = {
        "create_alone": figures(await _run(sessions[:1], "maad_create", create, seconds)),
        "create_8": figures(await _run(sessions, "maad_create", create, seconds)),
        "update_alone": figures(await _run(sessions[:1], "maad_update", _update(records), seconds)),
        "bulk_ms": await _bulk_ms(sessions[0]),
    }
    await _close(sessions)
    return results


async def _batch(daemon: Daemon, seconds: float) -> dict[str, Any]:
    sessions = await _sessions(daemon)
    results = {"create_8": figures(await _run(sessions, "maad_create", create, seconds))}
    await _close(sessions)
    return results


async def _updates(daemon: Daemon, records: int, seconds: float) -> dict[str, float]:
    sessions = await _sessions(daemon)
    result = figures(await _run(sessions[:1], "maad_update", _update(records), seconds))
    await _close(sessions)
    return result


async def _sessions(daemon: Daemon) -> list[Connection]:
    """Bound connections to a project whose index is complete."""
    sessions = [await open_session(daemon.port, daemon.token, "bench") for _ in range(CLIENTS)]
    status, _, answer = await sessions[0].post(call_body("maad_reindex", {}))
    while b"REQUEST_TIMEOUT" in answer:  # it goes on, and the next call joins it
        status, _, answer = await sessions[0].post(call_body("maad_reindex", {}))
    if not is_success(status, answer):
        raise RuntimeError(f"maad_reindex failed: {answer[:300]!r}")
    await asyncio.sleep(1.0)  # the worker writes the log of the index back
    # Else the disk is still at work on the new corpus, the more the larger, and each sync waits.
    os.sync()
    return sessions


async def _close(sessions: list[Connection]) -> None:
    for one in sessions:
        await one.close()


def create(_: int) -> dict[str, Any]:
    """The arguments of one `maad_create`."""
    number = next(_serial)
    return {
        "docType": "inspection",
        "docId": f"ins-new-{number}",
        "fields": _fields(number),
        "body": "# New\n\nA valve was worn, see [[person:tec-00001|the technician]].",
    }


def _fields(number: int) -> dict[str, Any]:
    return {
        "title": f"New inspection {number}",
        "station": "sta-00001",
        "technician": "tec-00001",
        "status": "open",
        "done_on": "2026-03-04",
        "score": number % 100,
        "cost": "120.50 EUR",
        "tags": ["new", "pump"],
    }


def _update(records: int) -> Any:
    """One field of another record each time."""
    inspections = records - max(1, records // 50) - max(1, records // 25)

    def arguments(_: int) -> dict[str, Any]:
        number = next(_serial)
        # Spread over the records, so that no file is written twice in a row.
        doc_id = f"ins-{number * 7919 % inspections:06d}"
        return {"docId": doc_id, "fields": {"score": number}}

    return arguments


async def _bulk_ms(session: Connection) -> float:
    """The median time of one `maad_bulk_create` of fifty records."""
    times = []
    for _ in range(_BULK_ROUNDS):
        body = call_body("maad_bulk_create", {"records": [create(0) for _ in range(BULK)]})
        started = time.perf_counter()
        status, _, answer = await session.post(body)
        times.append((time.perf_counter() - started) * 1000)
        if not is_success(status, answer) or b'\\"failed\\":[]' not in answer:
            raise RuntimeError(f"maad_bulk_create failed: {answer[:300]!r}")
    return round(statistics.median(times), 1)


async def _run(sessions: list[Connection], tool: str, arguments: Any, seconds: float) -> Load:
    def bodies(_: int) -> Iterator[bytes]:
        while True:
            yield call_body(tool, arguments(0))

    return await run_load(sessions, bodies, seconds, is_success)


def print_table(results: dict[str, Any]) -> None:
    """The figures as a Markdown table."""
    audit, batch = results["audit"], results["batch"]
    print(f"{results['records']} records\n")
    print("| work | figure | p50 | p99 | of its ceiling |")
    print("|---|---|---|---|---|")
    git = audit["git_per_s"]
    print(f"| git add + commit by command line (G) | {git:.1f}/s | | | 1 |")
    for name, title in (
        ("create_alone", "`maad_create`, alone"),
        ("create_8", f"`maad_create`, {CLIENTS} clients"),
        ("update_alone", "`maad_update` of one field, alone"),
    ):
        print(_line(title, audit[name], f"{audit[name]['per_s'] / git:.1f} G"))
    commits = audit["bulk_ms"] * git / 1000
    print(f"| `maad_bulk_create` of {BULK} | | {audit['bulk_ms']} ms | | {commits:.2f} commits |")
    git = batch["git_per_s"]
    print(f"| G in the repository of mode batch | {git:.1f}/s | | | 1 |")
    share = f"{batch['create_8']['per_s'] / git:.1f} G"
    print(_line(f"`maad_create` in mode batch, {CLIENTS} clients", batch["create_8"], share))
    small, large = results["update_small"], results["update_large"]
    print(_line("`maad_update` of one field, sharded", small, ""))
    times = large["p50_ms"] / small["p50_ms"]
    print(_line(f"the same at {_TIMES_LARGER} times the records", large, f"{times:.2f} x"))


def _line(title: str, one: dict[str, float], share: str) -> str:
    return f"| {title} | {one['per_s']:.0f}/s | {one['p50_ms']} ms | {one['p99_ms']} ms | {share} |"


if __name__ == "__main__":
    main()
