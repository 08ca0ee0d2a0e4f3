"""Retrieval: how good it is on a corpus with known answers, and how fast on 100,000 blocks.

    python -m benchmarks.semantic --corpus DIR [--blocks 100000] [--provider local]

The corpus is a folder of Markdown files with frontmatter; the questions of
`retrieval_questions.py` belong to the improvement proposals of Ethereum. The large project is made
of the corpus's own blocks, their words shuffled, so that words keep their frequencies.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.retrieval_questions import QUESTIONS, Question
from maadd.protocol.messages import (
    Call,
    EmbeddingSettings,
    HistorySettings,
    WorkerConfig,
    WorkerSettings,
)
from maadd.protocol.tools import TOOLS, ToolKind
from maadd_worker.engine import Engine

MODES = ("exact", "semantic", "hybrid")
_REGISTRY = "types:\n  proposal: {path: proposals, id_prefix: eip, schema: proposal.v1}\n"
_SCHEMA = """\
type: proposal
version: 1
required: [doc_id]
fields:
  title: {type: string, index: true}
  part: {type: number, index: true}
"""
_WRITES = 150


class Project:
    """An engine on a folder, called as a worker calls it, with its writer on this thread."""

    def __init__(self, root: Path, embedding: EmbeddingSettings) -> None:
        settings = WorkerSettings(watch="off", fsync=False, embedding=embedding)
        history = HistorySettings("feed", "feed", "project")
        config = WorkerConfig("bench", str(root), 1, "", None, history, settings)
        self.engine = Engine.open(config, lambda _phase: None)
        self._wake = threading.Event()
        self.engine.connect_wake(self._wake.set)
        self._reader = self.engine.open_reader()
        self._number = 0

    def call(self, tool: str, args: Mapping[str, Any]) -> Any:
        """The data of a call that must succeed."""
        self._number += 1
        is_write = TOOLS[tool].kind is ToolKind.WRITE
        call = Call(str(self._number), tool, dict(args), 2, "s", 1, 10**9, is_write=is_write)
        if is_write:
            replies: list[Any] = []
            self.engine.write_group([call], self, replies.append)
            [reply] = replies
            self.engine.settle(False)
        else:
            reply = self.engine.read(call, self._reader)
        if not reply.ok:
            raise RuntimeError(reply.body.decode())
        return msgspec.json.decode(reply.body)

    def admit(self, request_id: str) -> bool:
        return True

    def depth(self) -> int:
        return 0

    def queued(self) -> int:
        """Blocks that wait to be embedded."""
        return int(self.call("maad_health", {})["embeddings"]["queueDepth"])

    def drain(self) -> float:
        """Seconds until every block is embedded, the writer being idle."""
        began = time.monotonic()
        while True:
            wait = self.engine.settle(True)
            if wait is None and not self.queued():
                return time.monotonic() - began
            if wait is None:
                self._wake.wait(0.05)
                self._wake.clear()

    def close(self) -> None:
        self._reader.close()
        self.engine.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--corpus", type=Path, required=True)
    options.add_argument("--blocks", type=int, default=100_000)
    options.add_argument("--provider", default="local")
    given = options.parse_args()
    embedding = EmbeddingSettings(enable=True, provider=given.provider)
    bodies = {path.stem: _body(path) for path in sorted(given.corpus.glob("*.md"))}
    titles = {path.stem: _title(path) for path in given.corpus.glob("*.md")}
    with _project(bodies) as root:
        _quality(root, embedding, titles)
    if given.blocks:
        with _project(_many(bodies, given.blocks)) as root:
            _speed(root, embedding)


def _quality(root: Path, embedding: EmbeddingSettings, titles: Mapping[str, str]) -> None:
    project = Project(root, embedding)
    project.call("maad_reindex", {})
    project.drain()
    # Titles are no part of the bodies, and many enough to tell small differences.
    by_title = [Question(title, frozenset({name})) for name, title in sorted(titles.items())]
    print(f"{len(titles)} documents, recall at 5:")
    for mode in MODES:
        missed = _missed(project, mode, QUESTIONS)
        print(
            f"  {mode:9}{1 - len(missed) / len(QUESTIONS):.2f} of {len(QUESTIONS)} questions, "
            f"{1 - len(_missed(project, mode, by_title)) / len(titles):.3f} of all titles"
            + "".join(f"\n           missed: {question.text}" for question in missed)
        )
    project.close()


def _missed(project: Project, mode: str, questions: Sequence[Question]) -> list[Question]:
    missed = []
    for question in questions:
        args = {"query": question.text, "mode": mode, "k": 5, "snippet": False}
        found = project.call("maad_semantic_search", args)["results"]
        if question.answers.isdisjoint(hit["docId"] for hit in found):
            missed.append(question)
    return missed


def _speed(root: Path, embedding: EmbeddingSettings) -> None:
    off = Project(root, EmbeddingSettings())
    plain = _seconds(lambda: off.call("maad_reindex", {}))
    writes_off = _write_ms(off, "off")
    off.close()
    shutil.rmtree(root / "_backend")

    words = Project(root, EmbeddingSettings(enable=True))
    indexed = _seconds(lambda: words.call("maad_reindex", {}))
    writes_words = _write_ms(words, "words")
    words.close()

    project = Project(root, embedding)
    draining = _write_ms(project, "draining")
    left = project.queued()
    seconds = project.drain()
    health = project.call("maad_health", {})["embeddings"]
    size = (root / "_backend/maad.db").stat().st_size
    print(f"{health['indexedBlocks']} blocks, index {size / 1e6:.0f} MB")
    print(f"  first reindex: {plain:.1f} s without texts, {indexed:.1f} s with texts")
    print(f"  embedding: {left / seconds:.0f} blocks/s, stored")
    print(
        f"  a create: {writes_off:.2f} ms switched off, {writes_words:.2f} ms with texts, "
        f"{draining:.2f} ms while the queue drains (median of {_WRITES}; {left} blocks left)"
    )
    scope = {"part": {"op": "lt", "value": 100}}
    for name, mode, query, filters in (
        ("exact, one common word", "exact", "contract", None),
        ("exact, one common word, scoped", "exact", "contract", scope),
        ("exact, a question", "exact", QUESTIONS[0].text, None),
        ("semantic", "semantic", QUESTIONS[0].text, None),
        ("semantic, scoped", "semantic", QUESTIONS[0].text, scope),
        ("hybrid", "hybrid", QUESTIONS[0].text, None),
    ):
        args = {"query": query, "mode": mode, "k": 10}
        if filters is not None:
            args["filters"] = filters
        search = partial(project.call, "maad_semantic_search", args)
        times = [_both_seconds(search) for _ in range(21)]
        wall, busy = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        print(f"  {name}: p50 {wall:.1f} ms, of the processor {busy:.1f} ms")
    project.close()


def _write_ms(project: Project, name: str) -> float:
    """The median time of a create of one short record."""
    times = []
    for number in range(_WRITES):
        args = {
            "docType": "proposal",
            "docId": f"eip-{name}-{number}",
            "fields": {"title": f"Written {number}"},
            "body": f"# Note\n\nWritten as number {number} while others wait.\n",
        }
        times.append(_seconds(partial(project.call, "maad_create", args)))
    return statistics.median(times) * 1000


def _both_seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that pass, and those in which the thread has a processor: on a busy machine only
    the second number says something."""
    began, busy = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - began, time.thread_time() - busy


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def _project(bodies: Mapping[str, str]) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="maadd-bench-"))
    try:
        for folder in ("_registry", "_schema", "proposals"):
            (root / folder).mkdir()
        (root / "_registry/object_types.yaml").write_text(_REGISTRY)
        (root / "_schema/proposal.v1.yaml").write_text(_SCHEMA)
        for number, (name, body) in enumerate(bodies.items()):
            (root / f"proposals/{name}.md").write_text(
                f"---\ndoc_id: {name}\ndoc_type: proposal\nschema: proposal.v1\n"
                f"part: {number % 1000}\n---\n{body}"
            )
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _title(path: Path) -> str:
    found = re.search(r"^title: *(.*)$", path.read_text(), re.MULTILINE)
    return path.stem if found is None else found[1]


def _body(path: Path) -> str:
    return path.read_text().split("\n---\n", 1)[1]


def _many(bodies: Mapping[str, str], blocks: int) -> dict[str, str]:
    """Records of shuffled blocks until there are so many."""
    source = random.Random(7)
    many: dict[str, str] = {}
    made = 0
    while True:
        for body in bodies.values():
            parts = body.split("\n#")
            shuffled = []
            for part in parts:
                heading, _, text = part.partition("\n")
                words = text.split()
                source.shuffle(words)
                shuffled.append(f"{heading}\n{' '.join(words)}\n")
            many[f"eip-{len(many)}"] = "\n#".join(shuffled)
            made += len(parts)
            if made >= blocks:
                return many


if __name__ == "__main__":
    main()
