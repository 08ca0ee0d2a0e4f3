"""How reads grow with the corpus: the same calls over a small and a large project.

    python -m benchmarks.growth [--small 5000] [--large 100000] [--rounds 68] [--keep FOLDER]
                                [--client]

One engine in this process, no front and no network, so that the time is that of the read; with
`--client` the time that a client waits for its answer, from one daemon that serves both over HTTP.
The calls of both projects take turns, round by round, and every call of a kind has arguments of
its own: a remembered answer would hide what the work behind it costs. A read by index may not
take longer than 1.5 times as long in a corpus of twenty times the size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.corpus import write_corpus
from benchmarks.daemon import serve
from benchmarks.driver import Connection, call_body, is_success, open_session
from maadd.protocol.messages import Call, HistorySettings, WorkerConfig, WorkerSettings
from maadd_worker.engine import Engine

BOUND = 1.5
_WARM_UP = 20
_ROUNDS = 68
"""With the calls before them so few that none of the ninety texts of a kind comes twice."""
_WORDS = ("pump", "valve", "seal", "bearing", "gauge", "filter", "housing", "cable", "sensor")
_FAMILIES = "田中鈴木佐藤高橋伊藤渡辺山本中村小林加藤"

Arguments = Callable[[int, int], dict[str, Any]]
"""From the number of a call and of the records in the corpus."""


def _inspection(number: int, records: int) -> str:
    there = records - max(1, records // 50) - max(1, records // 25)
    return f"ins-{number * 7919 % there:06d}"


def _query(filters: Callable[[int], dict[str, Any]], **more: Any) -> Arguments:
    return lambda number, _: {
        "docType": "inspection", "filters": filters(number), "limit": 20, **more,
    }  # fmt: skip


def _status(number: int) -> str:
    return ("open", "closed", "planned", "void")[number % 4]


def _tag(number: int) -> str:
    return _WORDS[number % len(_WORDS)]


READS: Mapping[str, tuple[str, Arguments]] = {
    "get, hot": ("maad_get", lambda n, r: {"docId": _inspection(n, r)}),
    "get, cold": ("maad_get", lambda n, r: {"docId": _inspection(n, r), "depth": "cold"}),
    "query, 2 filters": (
        "maad_query",
        _query(lambda n: {"status": _status(n), "score": {"op": "gte", "value": 5 + n * 0.07}}),
    ),
    "query, 2 filters, sorted and projected": (
        "maad_query",
        _query(
            lambda n: {"status": _status(n), "score": {"op": "lte", "value": 95 - n * 0.07}},
            sortBy="done_on",
            fields=["title", "station", "status"],
        ),
    ),
    "query, 2 filters, one on a list": (
        "maad_query",
        _query(lambda n: {"tags": _tag(n), "score": {"op": "gte", "value": 5 + n * 0.07}}),
    ),
    "query, a list that excludes": (
        "maad_query",
        _query(
            lambda n: {
                "tags": {"op": "neq", "value": _tag(n)},
                "score": {"op": "gte", "value": 5 + n * 0.07},
            }
        ),
    ),
    "query, contains in two fields": (
        "maad_query",
        _query(
            lambda n: {
                "title": {"op": "contains", "value": f"{_tag(n)} "},
                "cost": {"op": "contains", "value": f"{n % 90 + 10}.50"},
            }
        ),
    ),
    "query, contains a rare text": (
        "maad_query",
        _query(
            lambda n: {
                "title": {"op": "contains", "value": f"{_tag(n)} at sta-000{n % 90 + 10}"},
                "status": _status(n // 9),
            }
        ),
    ),
    "aggregate, a filter": (
        "maad_aggregate",
        lambda n, _: {
            "docType": "inspection",
            "groupBy": "status",
            "metric": {"field": "score", "op": "avg"},
            "filters": {"score": {"op": "gte", "value": 5 + n * 0.07}},
        },
    ),
    "aggregate, a list and 2 filters": (
        "maad_aggregate",
        lambda n, _: {
            "docType": "inspection",
            "groupBy": "tags",
            "metric": {"field": "cost", "op": "sum"},
            "filters": {"status": _status(n), "score": {"op": "gte", "value": 5 + n * 0.07}},
        },
    ),
    "query, behind a ref": (
        "maad_query",
        _query(
            lambda n: {
                "station->region": ("north", "east", "south", "west")[n % 4],
                "score": {"op": "gte", "value": 5 + n * 0.07},
            }
        ),
    ),
    "search, rare substring": (
        "maad_search",
        lambda n, _: {"primitive": "entity", "query": f"at sta-000{n % 90 + 10}", "limit": 20},
    ),
    "search, common substring": (
        "maad_search",
        lambda n, _: {
            "primitive": "entity",
            "query": ("tec-0", "sta-00", "tec-00", " at s", "t sta", "at sta-0")[n % 6],
            "offset": n // 6 % 3 * 20,
            "limit": 20 + n // 18,
        },
    ),
    "search, common substring, never asked before": (
        "maad_search",
        lambda n, _: {
            "primitive": "entity",
            "query": f"{_tag(n)} at sta-0"[n // 9 % 3 :][: 4 + n // 27],
            "limit": 20,
        },
    ),
    "search, two characters": (
        "maad_search",
        lambda n, _: {"primitive": "entity", "query": f"{n % 90 + 10}", "limit": 20},
    ),
    "search, one character": (
        "maad_search",
        lambda n, _: {
            "primitive": "entity",
            "query": "0123456789abcdefghilmnoprstuvw"[n % 30],
            "limit": 20 + n // 30,
        },
    ),
    "search, Chinese and Japanese": (
        "maad_search",
        lambda n, _: {
            "primitive": "entity",
            "query": _FAMILIES[n % len(_FAMILIES)],
            "limit": 20 + n // len(_FAMILIES),
        },
    ),
    "related": ("maad_related", lambda n, r: {"docId": _inspection(n, r)}),
    "changes, a page": (
        "maad_changes_since",
        lambda n, r: {"limit": 100 + n % 7, "docTypes": ["inspection"][: n % 2]},
    ),
    "summary": ("maad_summary", lambda n, r: {}),
}  # fmt: skip


@dataclass(frozen=True)
class Growth:
    """Medians of one kind of read, in milliseconds."""

    read: str
    small_ms: float
    large_ms: float

    @property
    def ratio(self) -> float:
        return self.large_ms / self.small_ms


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--small", type=int, default=5000)
    options.add_argument("--large", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=_ROUNDS)
    options.add_argument("--keep", type=Path, help="use, or make and leave, the projects here")
    options.add_argument("--only", default="", help="reads whose name contains this")
    options.add_argument("--client", action="store_true", help="measure over HTTP")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    work = given.keep or Path(tempfile.mkdtemp(prefix="maadd-growth-"))
    try:
        opened = _served if given.client else _engines
        with opened(work, given.small, given.large) as projects:
            sizes = (given.small, given.large)
            found = [
                Growth(name, *_medians(projects, sizes, tool, arguments, given.rounds))
                for name, (tool, arguments) in READS.items()
                if given.only in name
            ]
    finally:
        if given.keep is None:
            shutil.rmtree(work, ignore_errors=True)
    print_table(found, given.small, given.large)
    if given.out is not None:
        rows = [{"read": one.read, "small_ms": one.small_ms, "large_ms": one.large_ms}
                for one in found]  # fmt: skip
        given.out.write_text(json.dumps(rows, indent=2) + "\n")


class _Timed(Protocol):
    """What takes the time of a call, in milliseconds."""

    def time(self, tool: str, args: dict[str, Any]) -> float: ...


class _Reads:
    """An open project and one reader of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = engine.open_reader()
        self._numbers = itertools.count()

    def time(self, tool: str, args: dict[str, Any]) -> float:
        """Milliseconds of one call. RuntimeError when it fails."""
        call = Call(
            request_id=str(next(self._numbers)),
            tool=tool,
            args=args,
            role=2,
            session_id="growth",
            deadline_ms=60_000,
            generation=1,
        )
        started = time.perf_counter()
        reply = self._engine.read(call, self._reader)
        taken = time.perf_counter() - started
        if not reply.ok:
            raise RuntimeError(f"{tool} {args} failed: {reply.body!r}")
        return taken * 1000

    def close(self) -> None:
        self._reader.close()


class _Client:
    """A session of a client with a project of a running daemon."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self._loop = loop
        self._connection = connection

    def time(self, tool: str, args: dict[str, Any]) -> float:
        """As `_Reads.time`."""
        body = call_body(tool, args)
        started = time.perf_counter()
        status, _, answer = self._loop.run_until_complete(self._connection.post(body))
        taken = time.perf_counter() - started
        if not is_success(status, answer):
            raise RuntimeError(f"{tool} {args} failed: {answer!r}")
        return taken * 1000


@contextlib.contextmanager
def _engines(work: Path, small: int, large: int) -> Iterator[tuple[_Reads, _Reads]]:
    with _project(work, small) as first, _project(work, large) as second:
        yield first, second


@contextlib.contextmanager
def _served(work: Path, small: int, large: int) -> Iterator[tuple[_Client, _Client]]:
    """Both projects behind one daemon, indexed before."""
    with _engines(work, small, large):
        pass
    with (
        tempfile.TemporaryDirectory(prefix="maadd-growth-") as instance,
        serve(
            Path(instance) / "instance",
            work / str(small),
            history="feed",
            large=work / str(large),
        ) as daemon,
        contextlib.closing(asyncio.new_event_loop()) as loop,
    ):
        connections = [
            loop.run_until_complete(open_session(daemon.port, daemon.token, name))
            for name in ("bench", "large")
        ]
        yield _Client(loop, connections[0]), _Client(loop, connections[1])
        for connection in connections:
            loop.run_until_complete(connection.close())


@contextlib.contextmanager
def _project(work: Path, records: int) -> Iterator[_Reads]:
    """A project of so many records, indexed and open."""
    root = work / str(records)
    if not root.exists():
        write_corpus(root, records, sharded=True)
        _add_japanese_names(root)
    config = WorkerConfig(
        project="growth",
        root=str(root),
        generation=1,
        endpoint="",
        control_endpoint=None,
        history=HistorySettings("feed", "feed", "project", None, None),
        settings=WorkerSettings(watch="off", fsync=False, boot_reindex=True),
    )
    engine = Engine.open(config, lambda _: None)
    reads = _Reads(engine)
    try:
        engine.settle(idle=True)
        yield reads
    finally:
        reads.close()
        engine.close()


def _add_japanese_names(root: Path) -> None:
    """Every tenth inspection mentions a person whose name has no spaces and no Latin letters."""
    for number, file in enumerate(sorted((root / "inspections").glob("**/*.md"))):
        if number % 10 == 0:
            family = _FAMILIES[number // 10 * 2 % len(_FAMILIES) :][:2]
            with file.open("a", encoding="utf-8") as text:
                text.write(f"\nChecked by [[person:{family}{number:06d}|{family}]].\n")


def _medians(
    projects: tuple[_Timed, _Timed],
    records: tuple[int, int],
    tool: str,
    arguments: Arguments,
    rounds: int,
) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(_WARM_UP + rounds):
        for place, project in enumerate(projects):
            taken = project.time(tool, arguments(number, records[place]))
            if number >= _WARM_UP:
                times[place].append(taken)
    return statistics.median(times[0]), statistics.median(times[1])


def print_table(found: list[Growth], small: int, large: int) -> None:
    """The medians as a Markdown table; what grows beyond the bound is marked."""
    print(f"| read | {small} records | {large} records | ratio |")
    print("|---|---|---|---|")
    for one in found:
        mark = "" if one.ratio <= BOUND else " over"
        medians = f"{one.small_ms:.3f} ms | {one.large_ms:.3f} ms"
        print(f"| {one.read} | {medians} | {one.ratio:.2f}{mark} |")


if __name__ == "__main__":
    main()
