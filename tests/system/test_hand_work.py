"""People, scripts and Git change the files of a served project, and nothing is ever missed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import BIN, Client, Instance, eventually, run

ROUNDS = int(os.environ.get("MAADD_SOAK_ROUNDS", "2000"))
IDENTITY = ("-c", "user.name=P", "-c", "user.email=p@example.invalid")


def note(doc_id: str, title: str) -> str:
    return f"---\ndoc_id: {doc_id}\ndoc_type: note\nschema: note.v1\ntitle: {title}\n---\n\n# N\n"


class Hands:
    """Somebody with an editor, a shell and Git, and an agent, all in one project at random."""

    def __init__(self, project: Path, client: Client, seed: int) -> None:
        self._project = project
        self._client = client
        self._rng = random.Random(seed)
        self._number = 0
        self._kept = 0

    def act(self) -> None:
        deeds = (self.edit, self.add, self.move, self.delete, self.agent_writes)
        rare = (self.move_folder, self.commit, self.go_back, self.spoil, self.agent_deletes)
        self._number += 1
        self._rng.choice(deeds if self._rng.random() < 0.8 else rare)()

    def _files(self) -> list[Path]:
        found = sorted((self._project / "notes").rglob("*.md"))
        return [path for path in found if not path.name.startswith("_deleted_")]

    def _any(self) -> Path:
        return self._rng.choice(self._files())

    def _folder(self) -> Path:
        name = self._rng.choice([".", "a", "b", "a/deep"])
        folder = self._project / "notes" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def edit(self) -> None:
        path = self._any()
        text = path.read_text().replace("title: ", f"title: {self._number} ", 1)[:4000]
        if self._rng.random() < 0.5:
            path.write_text(text)
        else:
            draft = path.with_name("draft~")
            draft.write_text(text)
            draft.rename(path)

    def add(self) -> None:
        doc_id = f"nte-hand-{self._number}"
        (self._folder() / f"{doc_id}.md").write_text(note(doc_id, f"by hand {self._number}"))

    def move(self) -> None:
        path = self._any()
        target = self._folder() / path.name
        if not target.exists():
            path.rename(target)

    def delete(self) -> None:
        files = self._files()
        if len(files) > 8:
            self._rng.choice(files).unlink()

    def move_folder(self) -> None:
        source, target = self._project / "notes/b", self._project / "notes/a/c"
        if source.is_dir() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            source.rename(target)
        elif target.is_dir():
            shutil.rmtree(target)

    def commit(self) -> None:
        run("git", "add", "-A", "notes", cwd=self._project, check=False)
        run("git", *IDENTITY, "commit", "-q", "-m", "mine", cwd=self._project, check=False)

    def go_back(self) -> None:
        self.commit()
        run("git", "reset", "-q", "--hard", "HEAD~1", cwd=self._project, check=False)

    def spoil(self) -> None:
        (self._project / f"notes/broken-{self._number}.md").write_text("---\ntitle: [\n---\n")

    def agent_writes(self) -> None:
        doc_id = f"nte-agent-{self._number}"
        fields = {"title": f"agent {self._number}"}
        self._client.call("maad_create", docType="note", docId=doc_id, fields=fields)

    def agent_deletes(self) -> None:
        names = [path.stem for path in self._files() if path.stem.startswith("nte-agent")]
        if names:
            mode = self._rng.choice(["soft", "hard"])
            self._client.call("maad_delete", docId=self._rng.choice(names), mode=mode)


def served(client: Client) -> dict[str, Any]:
    """Every record as the daemon has it: title by id."""
    found: dict[str, Any] = {}
    while True:
        page = client.ok(
            "maad_query", docType="note", fields=["title"], limit=200, offset=len(found)
        )
        found |= {row["docId"]: row["fields"]["title"] for row in page["results"]}
        if len(found) >= page["total"]:
            return found


def fresh(project: Path, copy: Path) -> dict[str, Any]:
    """Every record as a new index of the same files has it."""
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("_backend", ".git"))
    run(BIN / "maad", "reindex", f"--project={copy}", check=False)
    found: dict[str, Any] = {}
    while True:
        text = run(
            BIN / "maad", "call", "maad_query", f"--project={copy}",
            f'{{"docType":"note","fields":["title"],"limit":200,"offset":{len(found)}}}',
        )  # fmt: skip
        page = json.loads(text)
        found |= {row["docId"]: row["fields"]["title"] for row in page["results"]}
        if len(found) >= page["total"]:
            return found


def live_through(
    instance: Instance, start: Any, rounds: int, kill_every: int, seed: int, edits: str = "index"
) -> None:
    with instance.path.open("a") as config:
        config.write(f"    external_edits: {edits}\n")
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    hands = Hands(instance.project, client, seed)
    for number in range(1, rounds + 1):
        hands.act()
        if number % kill_every == 0:
            os.kill(client.ok("maad_health")["worker"]["pid"], signal.SIGKILL)
            assert eventually(lambda: client.call("maad_summary")["ok"], 30)
    truth = fresh(instance.project, instance.project.parent / f"copy-{seed}")
    twice = ids_of_several_files(instance.project)

    def missed() -> dict[str, Any]:
        found = difference(served(client), truth)
        return {doc_id: titles for doc_id, titles in found.items() if doc_id not in twice}

    assert eventually(lambda: not missed(), 20), missed()
    assert not client.ok("maad_health")["watcher"]["pendingEvents"]
    assert eventually(lambda: not (instance.project / ".git/index.lock").exists(), 2)
    if edits == "commit":
        assert eventually(lambda: not uncommitted(instance.project, twice), 20), run(
            "git", "status", "--short", "-uall", cwd=instance.project
        )


def uncommitted(project: Path, twice: set[str]) -> list[str]:
    """What Git shows of records that can be read and are not in two files."""
    shown = run("git", "status", "--porcelain", "--untracked-files=all", "notes", cwd=project)
    left = [line for line in shown.splitlines() if "broken-" not in line]
    return [line for line in left if not any(f"{doc_id}.md" in line for doc_id in twice)]


def ids_of_several_files(project: Path) -> set[str]:
    """Records of which a reset has brought back a second file: which one counts is open."""
    names = Counter(path.name for path in (project / "notes").rglob("nte-*.md"))
    return {name.removesuffix(".md") for name, files in names.items() if files > 1}


def difference(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        key: (one.get(key), other.get(key))
        for key in one.keys() | other.keys()
        if one.get(key) != other.get(key)
    }


def test_the_index_follows_every_kind_of_hand_work(instance: Instance, start: Any) -> None:
    live_through(instance, start, rounds=120, kill_every=60, seed=7, edits="commit")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_no_state_of_the_disk_is_missed(instance: Instance, start: Any, seed: int) -> None:
    edits = "commit" if seed % 2 else "index"
    rounds = ROUNDS // 5
    # A worker that dies again and again within a minute would be left alone for a while.
    live_through(instance, start, rounds, max(130, rounds // 8), seed=seed, edits=edits)
