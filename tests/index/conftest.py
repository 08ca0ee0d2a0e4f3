"""A small project on disk, its model, and an index over it."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.document import IndexedDocument, index_document
from maadd_worker.index.full_pass import index_all
from maadd_worker.index.pass_report import ReindexReport
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.store import Index, IndexReader, IndexWriter
from maadd_worker.schema.model import Model, load_model

REGISTRY = """\
types:
  task: {path: work/tasks, id_prefix: tsk, schema: task.v1}
  member: {path: people, id_prefix: mbr, schema: member.v1}
"""
TASK_SCHEMA = """\
type: task
version: 1
required: [doc_id, title]
fields:
  title: {type: string, index: true}
  state: {type: enum, values: [todo, doing, done], index: true}
  owner: {type: ref, target: member, index: true}
  reviewers: {type: list, item_type: ref, target: member}
  due: {type: date, index: true}
  points: {type: number, index: true}
  budget: {type: amount, index: true}
  labels: {type: list, index: true}
  scores: {type: list, item_type: number, index: true}
  note: {type: string}
"""
MEMBER_SCHEMA = """\
type: member
version: 1
required: [doc_id, name]
fields:
  name: {type: string, index: true}
"""
LONG_AGO = dt.datetime(2031, 1, 1, tzinfo=dt.UTC).timestamp() - 10 * 365 * 86400


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = dt.datetime(2031, 2, 3, 4, 5, 6, 789000, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now

    def advance(self, seconds: float = 1.0) -> None:
        self.now += dt.timedelta(seconds=seconds)


class Project:
    """A project directory with an open index."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.settings = WorkerSettings(max_doc_bytes=100_000, max_doc_annotations=20)
        self.write("_registry/object_types.yaml", REGISTRY)
        self.write("_schema/task.v1.yaml", TASK_SCHEMA)
        self.write("_schema/member.v1.yaml", MEMBER_SCHEMA)
        (path / "_backend").mkdir()
        self.root = ProjectRoot.open(str(path))
        self.model: Model = load_model(self.root)
        self.index = self.open_index()

    @property
    def index_path(self) -> str:
        return str(self.path / "_backend" / "maad.db")

    @property
    def writer(self) -> IndexWriter:
        return self.index.writer()

    @property
    def plans(self) -> TypePlans:
        return self.writer.type_plans(self.model)

    def open_index(self) -> Index:
        return Index.open(self.index_path, read_only=False, clock=self.clock)

    def reopen(self) -> None:
        self.index.close()
        self.index = self.open_index()

    def reload(self) -> None:
        self.model = load_model(self.root)

    def write(self, rel: str, text: str, *, fresh: bool = False) -> str:
        """Write a file; unless `fresh` it is old enough for its stat values to be trusted."""
        target = self.path / rel
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        if not fresh:
            stamp = target.stat().st_size + LONG_AGO + hash(text) % 1000
            os.utime(target, (stamp, stamp))
        return rel

    def task(self, doc_id: str, *, body: str = "", path: str | None = None, **fields: str) -> str:
        """Write a task whose fields are given as YAML text; a title is made up if needed."""
        lines = [f"doc_id: {doc_id}", "doc_type: task", "schema: task.v1"]
        lines += [f"{name}: {value}" for name, value in {"title": doc_id, **fields}.items()]
        text = "---\n" + "\n".join(lines) + "\n---\n" + body
        return self.write(path or f"work/tasks/{doc_id}.md", text)

    def member(self, doc_id: str, name: str = "Ana") -> str:
        text = f"---\ndoc_id: {doc_id}\ndoc_type: member\nschema: member.v1\nname: {name}\n---\n"
        return self.write(f"people/{doc_id}.md", text)

    def index_file(self, rel: str, *, force: bool = False) -> IndexedDocument:
        with self.writer.transaction():
            return index_document(
                self.writer,
                self.model,
                self.root,
                rel,
                (self.path / rel).read_bytes(),
                max_annotations=self.settings.max_doc_annotations,
                force=force,
            )

    def run(self, *, force: bool = False, prune: bool = False) -> ReindexReport:
        return index_all(
            self.writer, self.model, self.root, self.settings, force=force, prune=prune
        )

    def ids(self) -> list[str]:
        rows = self.writer.connection.execute(
            "SELECT doc_id FROM documents WHERE deleted = 0 ORDER BY doc_id"
        )
        return [doc_id for (doc_id,) in rows]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def project(tmp_path: Path, clock: Clock) -> Iterator[Project]:
    made = Project(tmp_path, clock)
    yield made
    made.index.close()
    made.root.close()


@pytest.fixture
def reader(project: Project) -> Iterator[IndexReader]:
    made = project.index.reader()
    yield made
    made.close()


@pytest.fixture
def open_reader(project: Project) -> Iterator[Callable[[], IndexReader]]:
    """More readers; they are closed at the end."""
    made: list[IndexReader] = []

    def make() -> IndexReader:
        made.append(project.index.reader())
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def make_project() -> Callable[[Path], Project]:
    """Projects for tests that need a fresh one per example; the test closes them."""
    return lambda path: Project(path, Clock())
