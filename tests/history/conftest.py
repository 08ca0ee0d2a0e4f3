"""Real repositories for the history tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.disk.journal import Journal, JournalEntry, new_entry_id
from maadd_worker.history import CommitRequest, HistoryController, encode_request
from maadd_worker.history.choice import choose_store
from maadd_worker.history.git_dir import locate
from maadd_worker.history.store import Change, Committed, Person, Store
from maadd_worker.markdown.frontmatter import content_hash

ENGINE = Person("maadb-engine", "engine@maadb.local")


class Project:
    """A project folder, a person at its command line, and the engine's side of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str, check: bool = True, **variables: str) -> str:
        environment = os.environ | {
            "GIT_AUTHOR_NAME": "A Person",
            "GIT_AUTHOR_EMAIL": "person@example.org",
            "GIT_COMMITTER_NAME": "A Person",
            "GIT_COMMITTER_EMAIL": "person@example.org",
        }
        result = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"git {arguments}: {result.stderr}")
        return result.stdout

    def write(self, path: str, text: str = "text\n") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def person_commits(self, path: str, text: str = "by hand\n") -> None:
        self.write(path, text)
        self.git("add", "--", path)
        self.git("commit", "-q", "-m", f"edit {path}")

    def status(self) -> str:
        return self.git("status", "--porcelain", "--untracked-files=all")

    def subjects(self) -> list[str]:
        """Oldest first."""
        return self.git("log", "--reverse", "--format=%s").splitlines()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    def committed(self, path: str) -> str:
        return self.git("show", f"HEAD:{path}")

    def assert_sound(self) -> None:
        """Git finds nothing to complain about, and the index says what HEAD says."""
        complaints = subprocess.run(
            ["git", "fsck", "--strict"], cwd=self.root, capture_output=True, text=True, check=True
        )
        assert "error" not in complaints.stderr + complaints.stdout
        assert "missing" not in complaints.stdout
        assert self.status() == ""

    @property
    def lock(self) -> Path:
        return self.root / ".git" / "index.lock"

    def store(self) -> Store:
        git_dir = locate(str(self.root))
        assert git_dir is not None
        return choose_store(git_dir, None)[0]

    def controller(
        self,
        mode: str = "audit",
        journal: Journal | None = None,
        *,
        max_writes: int | None = None,
        max_delay_ms: int | None = None,
        **settings: object,
    ) -> HistoryController:
        return HistoryController.open(
            str(self.root),
            HistorySettings(mode, mode, "project", max_writes, max_delay_ms),
            WorkerSettings(**settings),
            journal,
        )

    def journal(self) -> Journal:
        return Journal.open(str(self.root), fsync=False)


@pytest.fixture
def bare_project(tmp_path: Path) -> Project:
    """A folder without a repository."""
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `project` starts as, made once."""
    made = Project(tmp_path_factory.mktemp("template"))
    made.git("init", "-q", "-b", "main", "--template=")
    made.write(".gitignore", "_backend/\n")
    made.person_commits("README.md", "hello\n")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "setup")
    return made.root


@pytest.fixture
def project(bare_project: Project, template: Path) -> Project:
    """A repository with two commits of a person; `_backend/` is ignored."""
    shutil.copytree(template, bare_project.root, dirs_exist_ok=True)
    bare_project.git("update-index", "--refresh")
    return bare_project


@pytest.fixture
def change() -> Callable[..., Change]:
    def make(
        *paths: str,
        message: str = "maad:create x [y] — z\n",
        contents: dict[str, bytes | None] | None = None,
    ) -> Change:
        return Change(message, ENGINE, ENGINE, paths, contents or {})

    return make


@pytest.fixture
def commit() -> Callable[..., list[Committed]]:
    """Makes commits and settles at once."""

    def run(store: Store, *changes: Change) -> list[Committed]:
        store.prepare(patient=False)
        results = store.commit(changes, timeout_s=20)
        store.settle(force=True)
        return results

    return run


@pytest.fixture
def begun(project: Project) -> Callable[..., CommitRequest]:
    """Writes a record the way the engine does: journal, file, and the request for history."""

    def write(
        journal: Journal, doc_id: str, text: str | None = "text\n", *, action: str = "create"
    ) -> CommitRequest:
        path = f"vendors/{doc_id}.md"
        request = CommitRequest(action, doc_id, "vendor", "", doc_id, (path,))
        entry_id = new_entry_id()
        entry = JournalEntry(
            entry_id,
            action,
            doc_id,
            "vendor",
            path,
            None,
            None,
            None,
            content_hash(text.encode()) if text is not None else None,
            "pending",
            "2031-02-03T04:05:06.007Z",
            encode_request(request),
        )
        journal.begin([entry])
        if text is None:
            (project.root / path).unlink()
        else:
            project.write(path, text)
        journal.mark([entry_id], "indexed")
        return CommitRequest(
            action,
            doc_id,
            "vendor",
            "",
            doc_id,
            (path,),
            journal_ids=(entry_id,),
            contents={path: text.encode() if text is not None else None},
        )

    return write


@pytest.fixture
def journal(project: Project) -> Iterator[Journal]:
    journal = project.journal()
    yield journal
    journal.close()


@pytest.fixture
def controller(project: Project, journal: Journal) -> Iterator[Callable[..., HistoryController]]:
    """Opens controllers that are closed at the end."""
    opened: list[HistoryController] = []

    def make(mode: str = "batch", **options: object) -> HistoryController:
        made = project.controller(mode, journal, **options)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()
