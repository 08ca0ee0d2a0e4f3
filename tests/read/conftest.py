"""A maintenance yard on disk: assets, their vendors, work orders and notes, with an index."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.full_pass import index_all
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.store import Index
from maadd_worker.instructions.files import InstructionFiles
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import IntegritySweep, ReadContext
from maadd_worker.read.record_cache import RecordCache
from maadd_worker.read.tools import read
from maadd_worker.schema.model import load_model

MODEL = {
    "_registry/object_types.yaml": """\
types:
  asset: {path: assets, id_prefix: ast, schema: asset.v2}
  work_order: {path: orders, id_prefix: wo, schema: work_order.v1}
  vendor: {path: vendors, id_prefix: ven, schema: vendor.v1}
  note: {path: notes, id_prefix: nte, schema: note.v1}
""",
    "_schema/asset.v2.yaml": """\
type: asset
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  site: {type: enum, values: [north, south, east], index: true}
  vendor: {type: ref, target: vendor, index: true}
  parent: {type: ref, target: asset, index: true}
  backup: {type: ref, target: asset}
  weight: {type: number, index: true}
  tags: {type: list, item_type: string, index: true}
  serial: {type: string}
""",
    "_schema/work_order.v1.yaml": """\
type: work_order
required: [doc_id, title]
fields:
  title: {type: string, index: true}
  status: {type: enum, values: [open, done, blocked], index: true, default: open}
  asset: {type: ref, target: asset, index: true}
  assets: {type: list, item_type: ref, target: asset, index: true}
  cost: {type: amount, index: true}
  hours: {type: number, index: true}
  sizes: {type: list, item_type: number, index: true}
  labels: {type: list, item_type: string, index: true}
  due: {type: date, format: loose, index: true, store_precision: day, on_coarser: warn}
template:
  headings:
    - {level: 2, text: Findings}
""",
    "_schema/vendor.v1.yaml": """\
type: vendor
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  country: {type: string, index: true}
""",
    "_schema/note.v1.yaml": """\
type: note
required: [doc_id]
fields:
  about: {type: ref, target: asset, index: true}
""",
}
FOLDERS = {"asset": "assets", "work_order": "orders", "vendor": "vendors", "note": "notes"}
SCHEMAS = {
    "asset": "asset.v2",
    "work_order": "work_order.v1",
    "vendor": "vendor.v1",
    "note": "note.v1",
}


class Answer(msgspec.Struct, frozen=True):
    """An outcome as a client decodes it; `codes` are those of the warnings."""

    data: Any
    meta: dict[str, Any] | None
    codes: list[str]
    raw: bytes
    outcome: Outcome


class Clock:
    """The index's clock: one second later at every look, unless it is held."""

    def __init__(self) -> None:
        self.now = dt.datetime(2031, 2, 3, 4, 5, 6, 789000, tzinfo=dt.UTC)
        self.step = dt.timedelta(seconds=1)

    def __call__(self) -> dt.datetime:
        self.now += self.step
        return self.now


class Project:
    """A project directory, its index and a reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        for rel, text in MODEL.items():
            self.write(rel, text)
        (path / "_backend").mkdir()
        self.clock = Clock()
        self.settings = WorkerSettings()
        self.history = HistorySettings("audit", None, "test")
        self.pending_writes = 0
        self.index_behind = False
        self.sweeps: list[IntegritySweep] = []
        self.noted: list[tuple[str, dict[str, Any]]] = []
        """What calls had logged."""
        self.root = ProjectRoot.open(str(path))
        self.index = Index.open(str(path / "_backend/maad.db"), read_only=False, clock=self.clock)
        self.reader = self.index.reader()
        self.cache = RecordCache(self.root, 1 << 20, self.settings.max_doc_bytes, time.time_ns)
        self.plans = TypePlans(load_model(self.root))

    def close(self) -> None:
        self.reader.close()
        self.index.close()
        self.root.close()

    def write(self, rel: str, text: str | bytes) -> Path:
        """A file as given; folders are made."""
        file = self.path / rel
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def record(self, doc_type: str, doc_id: str, body: str = "", **fields: Any) -> str:
        """Write one record file; values are written as JSON, which is YAML. Gives its path."""
        known = {"doc_id": doc_id, "doc_type": doc_type, "schema": SCHEMAS[doc_type]}
        lines = [
            f"{name}: {value if name in known else json.dumps(value)}\n"
            for name, value in {**known, **fields}.items()
        ]
        path = f"{FOLDERS[doc_type]}/{doc_id}.md"
        self.write(path, f"---\n{''.join(lines)}---\n{body}")
        return path

    def reload_model(self) -> None:
        self.plans = TypePlans(load_model(self.root))

    def reindex(self) -> None:
        report = index_all(self.index.writer(), self.plans.model, self.root, self.settings)
        assert not report.errors

    def soft_delete(self, doc_id: str) -> None:
        row = self.index.writer().find(doc_id)
        assert row is not None
        folder, _, name = row.file_path.rpartition("/")
        tombstone = f"{folder}/_deleted_{name}"
        (self.path / row.file_path).rename(self.path / tombstone)
        with self.index.writer().transaction():
            self.index.writer().tombstone(doc_id, tombstone)

    def hard_delete(self, doc_id: str) -> None:
        row = self.index.writer().find(doc_id)
        assert row is not None
        (self.path / row.file_path).unlink()
        with self.index.writer().transaction():
            self.index.writer().remove_document(doc_id)

    def context(self) -> ReadContext:
        return ReadContext(
            note=lambda event, **members: self.noted.append((event, members)),
            reader=self.reader,
            plans=self.plans,
            root=self.root,
            cache=self.cache,
            settings=self.settings,
            history=self.history,
            read_only=False,
            pending_writes=lambda: self.pending_writes,
            keep_sweep=self.sweeps.append,
            instructions=InstructionFiles(self.root),
            engine_report=lambda: {"initialized": True},
            index_behind=self.index_behind,
        )

    def call(self, tool: str, /, **args: Any) -> Answer:
        """One call of `maad_<tool>` in a snapshot of its own; raises what the tool raises."""
        name = f"maad_{tool}"
        with self.reader.snapshot():
            outcome = read(self.context(), name, check_arguments(TOOLS[name], args), args)
            raw = msgspec.json.encode(outcome.data)
        codes = [advice.code for advice in outcome.warnings]
        return Answer(msgspec.json.decode(raw), outcome.meta, codes, raw, outcome)

    def git(self, *arguments: str, author: str = "Ada <ada@example.org>", date: str = "") -> str:
        """Run git; commits are made by `author`, at `date` when given."""
        name, _, address = author.removesuffix(">").partition(" <")
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
        done = subprocess.run(
            ["git", "-c", "init.defaultBranch=main", *arguments],
            cwd=self.path,
            check=True,
            capture_output=True,
            text=True,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.path),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_AUTHOR_NAME": name,
                "GIT_AUTHOR_EMAIL": address,
                "GIT_COMMITTER_NAME": name,
                "GIT_COMMITTER_EMAIL": address,
                **dates,
            },
        )
        return done.stdout

    def commit(
        self, message: str, *paths: str, author: str = "Ada <a@example.org>", date: str = ""
    ) -> str:
        """Commit what changed under `paths` (all when none); gives the commit's id."""
        self.git("add", "-A", "--", *(paths or (".",)))
        self.git("commit", "-q", "--allow-empty", "-m", message, author=author, date=date)
        return self.git("rev-parse", "HEAD").strip()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """An empty project of the yard."""
    made = Project(tmp_path / "yard")
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """An empty project for all tests of a module, which fill it once and leave it alone."""
    made = Project(tmp_path_factory.mktemp("shared") / "yard")
    yield made
    made.close()


@pytest.fixture
def repository(project: Project) -> Project:
    """The project in a Git repository, whose first commit is not the engine's."""
    project.write(".gitignore", "_backend/\n")
    project.git("init", "-q")
    project.commit("chore: the yard")
    return project
