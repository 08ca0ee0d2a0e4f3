"""All kinds of writes in an environment that fails: a full disk, folders that nothing can be
written to, repositories in odd states, a person at work. Each has its defined answer, no write
is lost, and afterwards normal work goes on (spec 03 §9.3, 06)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crash_model import WRITE_TOOLS, Op, Script
from crash_rounds import Answer, Base, Round

from maadd.protocol.errors import MaadError
from maadd_worker import failpoints

REFUSALS = {"WRITE_ERROR", "DELETE_ERROR", "BACKEND_ERROR", "INDEX_FAILED"}


@pytest.fixture
def new_round(crash_base: Base, tmp_path: Path, engine_class: Any) -> Callable[..., Round]:
    numbers = itertools.count()

    def make(mode: str, root: Path | None = None, **settings: Any) -> Round:
        root = root or tmp_path / str(next(numbers))
        return Round(crash_base, root, mode, engine_class, **settings)

    return make


def mount(*arguments: str) -> bool:
    """Whether the system lets us mount, which needs more than being root."""
    return (
        os.geteuid() == 0
        and not subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode
    )


def unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextlib.contextmanager
def failing(number: int) -> Iterator[None]:
    """In place of a real fault, where the system does not let us make one."""
    names = ("folder.made", "file.stage", "file.publish")
    text = ";".join(f"{name}=error:{errno.errorcode[number]}" for name in names)
    failpoints.arm({failpoints.VARIABLE: text})
    try:
        yield
    finally:
        failpoints.arm({})


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if os.geteuid() != 0:
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(0o755)
    elif mount("--bind", str(folder), str(folder)):
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
            yield
        finally:
            unmount(folder)
    else:
        with failing(errno.EROFS):
            yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A small file system; None where we may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)):
        yield None
        return
    yield place
    unmount(place)


@contextlib.contextmanager
def full(disk: Path | None, free: int) -> Iterator[None]:
    """Leave `free` bytes."""
    if disk is None:
        with failing(errno.ENOSPC):
            yield
        return
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    os.truncate(filler, max(0, filler.stat().st_size - free))
    try:
        yield
    finally:
        filler.unlink()


def attempt(one: Round, op: Op) -> Any:
    """The reply of a call; what it says has happened is taken for true, and nothing else."""
    reply = one.engine.reply(op.tool, **op.args)
    data = msgspec.json.decode(reply.body)
    if not reply.ok:
        assert {error["code"] for error in data} <= REFUSALS, data
        return reply
    failed = {item["docId"] for item in data.get("failed", ())}
    codes = {item["code"] for item in data.get("failed", ())}
    assert codes <= REFUSALS, data
    effects = {doc_id: after for doc_id, after in op.effects.items() if doc_id not in failed}
    if effects:
        one.sure |= effects
        answer = Answer(0, True, data, reply.meta)
        one.done.append((msgspec.structs.replace(op, effects=effects), answer))
    return reply


def every_tool(one: Round, script: Script) -> Iterator[Op]:
    """A call of each kind, on top of what the project is now."""
    choices: dict[str, tuple[dict[str, Any], ...]] = {
        "delete": ({"mode": "soft"}, {"mode": "hard"}),
        "purge_soft_deleted": ({"every": True},),
    }
    for tool in WRITE_TOOLS:
        for choice in choices.get(tool, ({},)):
            script.state = dict(one.sure)
            yield script.next(tool, **choice)


def work_on(one: Round, script: Script) -> None:
    """Normal work with every tool; then everything is compared."""
    for op in every_tool(one, script):
        reply = attempt(one, op)
        assert reply.ok, reply.body
        assert reply.meta["write_durable"] is True, reply.meta
        assert not msgspec.json.decode(reply.body).get("failed")


def close_and_check(one: Round) -> None:
    one.engine.close()
    one.check()


# Disk


@pytest.mark.parametrize("mode", ["audit", "snapshot", "feed"])
def test_a_full_disk_refuses_writes_whole_and_takes_them_later(
    new_round: Callable[..., Round], small_disk: Path | None, mode: str
) -> None:
    root = None if small_disk is None else small_disk / "project"
    one = new_round(mode, root, max_writes=2 if mode == "snapshot" else None)
    one.engine = one.open()
    script = Script(one.sure, random.Random(mode))
    refused = 0
    for free in (0, 16_384):
        for op in every_tool(one, script):
            with full(small_disk, free):
                reply = attempt(one, op)
                one.check_records()
            if not reply.ok:
                refused += 1
                for error in msgspec.json.decode(reply.body):
                    assert error["code"] in {"WRITE_ERROR", "DELETE_ERROR"}, error
                    assert error["details"]["errno"] == "ENOSPC", error
                again = attempt(one, op)
                assert again.ok, again.body
                assert not msgspec.json.decode(again.body).get("failed")
    assert refused > 0
    work_on(one, script)
    # The program `git` leaves what it could not finish to its own cleaning.
    one.git("prune", "--expire=now")
    close_and_check(one)


def test_a_start_on_a_full_disk_serves_what_is_there(
    small_disk: Path | None, open_project: Any, engine_class: Any
) -> None:
    if small_disk is None:
        return
    crashed = open_project("feed")
    for number in range(20):
        fields, body = {"name": f"Ada {number}"}, "words " * 2000
        crashed.ok("maad_create", docType="ship", docId=f"shp-{number}", fields=fields, body=body)
    root = small_disk / "project"
    shutil.copytree(crashed.root, root, ignore=shutil.ignore_patterns("disk"))
    with full(small_disk, 0):
        served = engine_class(root, "feed")
        assert served.ok("maad_get", docId="shp-19")["frontmatter"]["name"] == "Ada 19"
    served.ok("maad_update", docId="shp-19", fields={"name": "Bo"})
    served.close()


@pytest.mark.parametrize(("free", "what"), [(0, "the index"), (40_960, "journal.db")])
def test_a_start_without_room_for_new_logs_says_so(
    small_disk: Path | None, open_project: Any, engine_class: Any, free: int, what: str
) -> None:
    if small_disk is None:
        return
    stopped = open_project("feed")
    stopped.ok("maad_create", docType="ship", fields={"name": "Ada"})
    stopped.close()
    root = small_disk / "project"
    shutil.copytree(stopped.root, root, ignore=shutil.ignore_patterns("disk"))
    with full(small_disk, free), pytest.raises(MaadError, match="free some space") as refused:
        engine_class(root, "feed")
    assert what in refused.value.message
    assert (refused.value.code, refused.value.details) == ("BACKEND_ERROR", {"errno": "ENOSPC"})
    served = engine_class(root, "feed")
    assert served.ok("maad_get", docId="shp-ada")["version"] == 1
    served.close()


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_a_folder_that_cannot_be_written_to(new_round: Callable[..., Round], mode: str) -> None:
    one = new_round(mode)
    one.engine = one.open()
    script = Script(one.sure, random.Random(1))
    before = dict(one.sure)
    with read_only(one.root / "ships"):
        for op in every_tool(one, script):
            if not any(doc_id.startswith("voy-") for doc_id in op.effects):
                reply = attempt(one, op)
                data = msgspec.json.decode(reply.body)
                failed = data if not reply.ok else data["failed"]
                wanted = "DELETE_ERROR" if _removes(op) else "WRITE_ERROR"
                assert {item["code"] for item in failed} == {wanted}
        assert one.sure == before
        one.check_records()
    work_on(one, script)
    close_and_check(one)


def _removes(op: Op) -> bool:
    return "delete" in op.tool or "purge" in op.tool


@pytest.mark.parametrize("mode", ["audit", "snapshot"])
def test_a_git_folder_that_cannot_be_written_to(new_round: Callable[..., Round], mode: str) -> None:
    one = new_round(mode, max_writes=1 if mode == "snapshot" else None)
    one.engine = one.open()
    script = Script(one.sure, random.Random(2))
    with read_only(one.root / ".git"):
        for op in every_tool(one, script):
            reply = attempt(one, op)
            assert reply.ok, reply.body
            if op.effects and not isinstance(reply.meta["write_durable"], bool):
                raise AssertionError(reply.meta)
        one.check_records()
    assert one.engine.ok("maad_flush")["pendingWrites"] == 0
    work_on(one, script)
    close_and_check(one)


# Locks


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_a_lock_of_somebody_else_holds_no_write_up(
    new_round: Callable[..., Round], mode: str
) -> None:
    one = new_round(mode, max_writes=1 if mode == "batch" else None)
    one.engine = one.open()
    script = Script(one.sure, random.Random(3))
    lock = one.root / ".git/index.lock"
    lock.write_text("theirs")
    for op in every_tool(one, script):
        reply = attempt(one, op)
        assert reply.ok, reply.body
        failure = reply.meta["commit_failure"]
        assert failure["details"]["reason"] == "index-lock"
        assert failure["details"]["path"] == ".git/index.lock"
    details = one.engine.error("maad_flush")["details"]
    assert (details["reason"], details["pendingWrites"] > 0) == ("index-lock", True)
    assert one.engine.error("maad_backup")["code"] == "GIT_ERROR"
    one.check_records()
    assert lock.read_text() == "theirs"
    lock.unlink()
    assert one.engine.ok("maad_flush")["pendingWrites"] == 0
    work_on(one, script)
    close_and_check(one)


# Repositories


def without_identity(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = root.parent / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "EMAIL"):
        monkeypatch.delenv(name, raising=False)


def detached(root: Path, _: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "checkout", "-q", "--detach"], cwd=root, check=True)


def unborn(root: Path, _: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "symbolic-ref", "HEAD", "refs/heads/new"], cwd=root, check=True)


def nested(root: Path, _: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q"], cwd=root.parent, check=True)


@pytest.mark.parametrize("mode", ["audit", "batch"])
@pytest.mark.parametrize("state", [without_identity, detached, unborn, nested])
def test_repositories_in_odd_states_take_every_write(
    new_round: Callable[..., Round],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: Callable[[Path, pytest.MonkeyPatch], None],
    mode: str,
) -> None:
    one = new_round(mode, tmp_path / "around" / "project", max_writes=3)
    state(one.root, monkeypatch)
    if state is unborn:
        # What was in the index is newly staged now, and what goes was never in this history.
        one.expected_status = None
        one.exact_history = False
    branch = one.git("rev-parse", "--verify", "main")
    one.engine = one.open()
    work_on(one, Script(one.sure, random.Random(4)))
    close_and_check(one)
    if state in (detached, unborn):
        assert one.git("rev-parse", "main") == branch
    if state is nested:
        around = tmp_path / "around"
        refs = subprocess.run(
            ["git", "for-each-ref"], cwd=around, check=True, capture_output=True
        ).stdout
        assert refs == b""
        assert not (around / ".git/index").exists()


# A person

BY_HAND = """
set -e
mkdir -p notes
for number in 1 2 3 4 5 6; do
    echo "$number" > notes/$number.txt
    until git add -- notes/$number.txt 2>/dev/null; do :; done
    until git commit -q -m "by hand $number" -- notes/$number.txt 2>/dev/null; do :; done
done
"""


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_a_person_commits_while_every_tool_writes(
    new_round: Callable[..., Round], mode: str
) -> None:
    one = new_round(mode, max_writes=2 if mode == "batch" else None)
    one.engine = one.open()
    script = Script(one.sure, random.Random(5))
    names = ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")
    environment = os.environ | dict.fromkeys(names, "someone@example.invalid")
    person = subprocess.Popen(["sh", "-c", BY_HAND], cwd=one.root, env=environment)
    rounds = 0
    while person.poll() is None or rounds < 1:
        for op in every_tool(one, script):
            assert attempt(one, op).ok
            one.engine.engine.settle(False)
        rounds += 1
    assert person.wait() == 0
    log = one.git("log", "--reverse", "--format=%s", f"{one.base.head}..HEAD").splitlines()
    assert [line for line in log if line.startswith("by hand")] == [
        f"by hand {number}" for number in range(1, 7)
    ]
    close_and_check(one)
