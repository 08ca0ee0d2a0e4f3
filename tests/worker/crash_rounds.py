"""Processes that die in the middle of their calls, and the comparison with what must be there."""

from __future__ import annotations

import hashlib
import os
import random
import re
import select
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from crash_index import ROWS, dump, rebuilt
from crash_model import (
    FOLDERS,
    GROUP,
    REGISTRY,
    SHIP_V2,
    WRITE_TOOLS,
    Op,
    Record,
    State,
    ship,
)

from maadd_worker.disk.journal import Journal
from maadd_worker.failpoints import VARIABLE

GIT = ("git", "-c", "user.name=Someone", "-c", "user.email=someone@example.invalid")
COMMITTING = ("audit", "batch", "snapshot")

_SUBJECT = re.compile(r"maad:(\S+) (\S+) \[(\w+)\](?: (\S+))? — ")
_TRAILER = re.compile(r"Maad-Write: (\S+) (\S+) \[")


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


class Base:
    """A project that rounds begin with a copy of: `state` says what is in it."""

    def __init__(self, root: Path, open_engine: Callable[..., Any]) -> None:
        self.root = root
        self.state: State = {}
        self._make_files()
        engine = open_engine(root, "audit", boot_reindex=True)
        engine.ok("maad_reindex")
        self._make_records(engine)
        engine.catch_up()
        self.cursor = engine.ok("maad_changes_since", limit=1000, includeDeletes=True)[
            "resumeCursor"
        ]
        engine.close()
        (root / "staged.txt").write_text("staged\n")
        git(root, "add", "staged.txt")
        (root / "staged.txt").write_text("staged and then changed\n")
        shutil.rmtree(root / ".git/hooks", ignore_errors=True)
        self.head = git(root, "rev-parse", "HEAD").strip()

    def _make_files(self) -> None:
        root = self.root
        for folder in ("_registry", "_schema", "ships"):
            (root / folder).mkdir(parents=True)
        (root / "_registry/object_types.yaml").write_text(REGISTRY)
        (root / "_schema/ship.v2.yaml").write_text(SHIP_V2)
        (root / "_schema/voyage.v1.yaml").write_text(
            "type: voyage\nversion: 1\nrequired: [doc_id, ship]\nfields:\n"
            "  ship: {type: ref, target: ship, index: true}\n"
            "  stops: {type: list, item_type: ref, target: ship}\n"
        )
        (root / "_schema/port.v1.yaml").write_text(
            "type: port\nversion: 1\nrequired: [doc_id, name]\nfields:\n"
            "  name: {type: string, index: true}\n"
        )
        (root / ".gitignore").write_text("_backend/\n_import/\n")
        for number in range(3):
            record = ship(f"shp-d{number}", f"D{number}", "Old.", old="x")
            record.frontmatter["schema"] = "ship.v1"
            front = "".join(f"{key}: {value}\n" for key, value in record.frontmatter.items())
            (root / f"ships/{record.doc_id}.md").write_text(f"---\n{front}---\n\nOld.\n")
            self.state[record.doc_id] = record
        git(root, "init", "-q", "-b", "main")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "base")

    def _make_records(self, engine: Any) -> None:
        ships = [ship(f"shp-s{n}", f"S{n}", f"Body {n}", tonnage=n) for n in range(6)]
        ships += [ship(f"shp-g{n}", f"G{n}", "", tonnage=GROUP) for n in range(3)]
        ships += [ship(f"shp-t{n}", f"T{n}", "Gone.", tonnage=n) for n in range(2)]
        stops = (["shp-s0", "shp-gone"], ["shp-gone", "shp-s1", "shp-lost"], ["shp-s0"])
        voyages = [
            Record(
                f"voy-v{number}",
                {
                    "doc_id": f"voy-v{number}",
                    "doc_type": "voyage",
                    "schema": "voyage.v1",
                    "ship": "shp-s0",
                    "stops": list(some),
                },
                "",
            )
            for number, some in enumerate(stops)
        ]
        records = [*ships, *voyages]
        sent = [
            {
                "docType": record.frontmatter["doc_type"],
                "docId": record.doc_id,
                "fields": dict(list(record.frontmatter.items())[3:]),
                "body": record.body,
            }
            for record in records
        ]
        assert not engine.ok("maad_bulk_create", records=sent)["failed"]
        dead = [record.doc_id for record in ships if record.doc_id.startswith("shp-t")]
        engine.ok("maad_bulk_delete", docIds=dead, confirm=True)
        for record in records:
            self.state[record.doc_id] = msgspec.structs.replace(
                record, deleted=record.doc_id in dead
            )

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.root, to, symlinks=True)
        return to


class Answer(msgspec.Struct):
    """What a process told before it ended: the answer of the call with this number."""

    number: int
    ok: bool
    data: Any
    meta: dict[str, Any] | None


class Told(msgspec.Struct, frozen=True):
    """The end of a process: its answers, how many calls it had begun, and its status."""

    answers: dict[int, Answer]
    begun: int
    status: int

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL


def run_until_death(
    open_engine: Callable[[], Any],
    groups: Sequence[Sequence[Op]],
    failpoints: str,
    *,
    before: Callable[[], None] | None = None,
    kill_after_s: float | None = None,
    pauses: random.Random | None = None,
) -> Told:
    """Perform groups of calls in a process of its own, until a failpoint ends it.

    `kill_after_s` ends it at that time instead. What lags behind the answers is done now and
    then, by the lot of `pauses`, and at the end.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        code = 1
        try:
            os.environ[VARIABLE] = failpoints
            if before is not None:
                before()
            _perform(open_engine(), groups, send, pauses)
            code = 0
        except BaseException as error:
            os.write(send, msgspec.json.encode(repr(error)) + b"\n")
        finally:
            os._exit(code)
    os.close(send)
    lines = _read_lines(receive, child, kill_after_s)
    _, status = os.waitpid(child, 0)
    os.close(receive)
    answers: dict[int, Answer] = {}
    begun = 0
    for line in lines:
        value = msgspec.json.decode(line)
        assert not isinstance(value, str), value
        if isinstance(value, int):
            begun = value
        else:
            answers[value["number"]] = msgspec.convert(value, Answer)
    return Told(answers, begun, os.waitstatus_to_exitcode(status))


def _read_lines(receive: int, child: int, kill_after_s: float | None) -> list[bytes]:
    text = b""
    deadline = None if kill_after_s is None else time.monotonic() + kill_after_s
    while True:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([receive], [], [], left)[0]:
                os.kill(child, signal.SIGKILL)
                deadline = None
        block = os.read(receive, 65_536)
        if not block:
            return text.split(b"\n")[:-1]  # what stands behind the last one was cut off
        text += block


def _perform(
    engine: Any, groups: Sequence[Sequence[Op]], send: int, pauses: random.Random | None
) -> None:
    number = 0

    def tell(value: object) -> None:
        os.write(send, msgspec.json.encode(value) + b"\n")

    for group in groups:
        numbers: dict[str, int] = {}
        calls = []
        for op in group:
            call = engine.request(op.tool, op.args)
            numbers[call.request_id] = number
            calls.append(call)
            number += 1
        tell(number)

        def deliver(reply: Any, numbers: dict[str, int] = numbers) -> None:
            data = msgspec.json.decode(reply.body)
            tell(Answer(numbers[reply.request_id], reply.ok, data, reply.meta))

        if calls[0].is_write:
            engine.engine.write_group(calls, _Open(), deliver)
        else:
            deliver(engine.engine.read(calls[0], engine._reader))
        turn = 0 if pauses is None else pauses.randrange(3)
        if turn == 1:
            engine.engine.settle(False)
        elif turn == 2:
            engine.engine.settle(True)
    engine.close()


class _Open:
    def admit(self, _request_id: str) -> bool:
        return True

    def depth(self) -> int:
        return 0


class Round:
    """A copy of the base, what was done to it, and what is allowed to be there now."""

    def __init__(
        self, base: Base, root: Path, mode: str, new_engine: Callable[..., Any], **settings: Any
    ) -> None:
        self.base = base
        self.root = base.copy(root)
        self.mode = mode
        self._new_engine = new_engine
        self._settings = settings
        self.sure: State = dict(base.state)
        self.unsure: list[Op] = []
        self.done: list[tuple[Op, Answer]] = []
        self.engine: Any = None
        self.expected_status: str | None = "AM staged.txt\n"
        self.exact_history = True

    def open(self) -> Any:
        return self._new_engine(self.root, self.mode, **self._settings)

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments)

    def run(self, groups: Sequence[Sequence[Op]], failpoints: str, **how: Any) -> Told:
        """Perform calls in a process that dies; then the state is known as far as it told."""
        told = run_until_death(self.open, groups, failpoints, **how)
        ops = [op for group in groups for op in group]
        for number, op in enumerate(ops[: told.begun]):
            answer = told.answers.get(number)
            if answer is None:
                self.unsure.append(op)
                continue
            assert answer.ok, (op, answer)
            assert not answer.data.get("failed"), (op, answer.data)
            self.sure |= op.effects
            self.done.append((op, answer))
        return told

    # Comparison

    def check(self) -> None:
        """Open the project again and compare everything."""
        self.engine = self.open()
        try:
            self.check_records()
            self._check_feed()
            self._check_replays()
            self.check_records()
            self.engine.ok("maad_flush")
            self.engine.catch_up()
            self._check_history()
        finally:
            self.engine.close()
        self._check_rest()

    def check_records(self) -> None:
        """Every record is as the answered calls left it, or as an unanswered one would."""
        files = {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for folder in FOLDERS.values()
            for path in (self.root / folder).rglob("*")
            if path.is_file()
        }
        rows = {row[0]: row for row in self._rows()}
        maybe = {doc_id: (op, after) for op in self.unsure for doc_id, after in op.effects.items()}
        landed: dict[int, set[bool]] = {}
        for doc_id in self.sure.keys() | maybe.keys():
            expected = self.sure.get(doc_id)
            problem = _difference(expected, doc_id, files, rows.get(doc_id))
            if doc_id in maybe:
                op, after = maybe[doc_id]
                other = _difference(after, doc_id, files, rows.get(doc_id))
                assert problem is None or other is None, (doc_id, problem, other)
                landed.setdefault(id(op), set()).add(other is None)
                if other is None:
                    expected = after
                problem = None
            assert problem is None, (doc_id, problem)
            _take(expected, doc_id, files, rows)
            self._check_answer(expected, doc_id)
        assert not files, f"files that nobody wrote: {sorted(files)}"
        assert not rows, f"rows of nothing: {sorted(rows)}"
        for op in self.unsure:
            if op.whole:
                assert len(landed[id(op)]) == 1, f"half of an atomic call: {op}"

    def _check_answer(self, expected: Record | None, doc_id: str) -> None:
        if expected is None or expected.deleted:
            assert self.engine.error("maad_get", docId=doc_id)["code"] == "FILE_NOT_FOUND"
        else:
            found = self.engine.ok("maad_get", docId=doc_id, depth="cold")
            assert found["version"] == expected.version

    def _rows(self) -> list[Any]:
        connection = self.engine.engine._index.writer().connection
        return list(connection.execute(ROWS))

    def landed(self, op: Op) -> set[str]:
        """The records that an unanswered call has changed, by the index."""
        rows = {row[0]: row for row in self._rows()}
        found = set()
        for doc_id, after in op.effects.items():
            row = rows.get(doc_id)
            there = (row[5], bool(row[6])) if row is not None else None
            wanted = None if after is None else (after.version, after.deleted)
            if there == wanted:
                found.add(doc_id)
        return found

    def _check_feed(self) -> None:
        """The change feed names each record that changed, and no other."""
        feed = self.engine.ok(
            "maad_changes_since", cursor=self.base.cursor, limit=1000, includeDeletes=True
        )
        named = {change["docId"]: change["operation"] for change in feed["changes"]}
        changed = {doc_id for op, _ in self.done for doc_id in op.effects} | {
            doc_id for op in self.unsure for doc_id in self.landed(op)
        }
        assert set(named) == changed
        for doc_id, operation in named.items():
            alive = self.sure.get(doc_id) is not None or any(
                op.effects.get(doc_id) is not None for op in self.unsure
            )
            assert operation == "delete" or alive

    def _check_replays(self) -> None:
        """Every key gives the answer of its call, and nothing happens twice."""
        for number, (op, answer) in enumerate(self.done):
            forgotten = any(
                after is None and doc_id in op.effects
                for later, _ in self.done[number + 1 :]
                for doc_id, after in later.effects.items()
            ) or any(
                doc_id in op.effects and after is None
                for later in self.unsure
                for doc_id, after in later.effects.items()
            )
            if op.key is None or forgotten:
                continue
            reply = self.engine.reply(op.tool, **op.args)
            assert reply.ok, (op, reply.body)
            assert reply.meta["replayed"] is True, op
            data = msgspec.json.decode(reply.body)
            assert _lasting(data) == _lasting(answer.data), (op, data, answer.data)
        for op in self.unsure:
            if op.key is None:
                continue
            before = self.landed(op)
            reply = self.engine.reply(op.tool, **op.args)
            assert reply.ok, (op, reply.body, before)
            data = msgspec.json.decode(reply.body)
            if op.effects:
                self._check_late_answer(op, before, data, reply.meta)
        self.unsure = []

    def _check_late_answer(self, op: Op, before: set[str], data: Any, meta: dict[str, Any]) -> None:
        """What the key of an unanswered call brings: it is true, and stays so."""
        succeeded = data.get("succeeded", data.get("purged"))
        if succeeded is None:
            named, failed = {data["docId"]}, set()
        else:
            named = {item["docId"] for item in succeeded}
            failed = {item["docId"] for item in data["failed"]}
        assert before <= named, f"done, and told otherwise: {op} {data}"
        assert named | failed == set(op.effects), (op, data)
        if before:
            assert meta.get("replayed") is True, (op, data)
        assert self.landed(op) == named, (op, data)
        self.sure |= {doc_id: op.effects[doc_id] for doc_id in named}
        answer = Answer(-1, True, data, meta)
        again = self.engine.reply(op.tool, **op.args)
        assert again.meta["replayed"] is True
        assert _lasting(msgspec.json.decode(again.body)) == _lasting(data)
        done = {doc_id: op.effects[doc_id] for doc_id in named}
        self.done.append((msgspec.structs.replace(op, effects=done), answer))

    def _check_history(self) -> None:
        root, head = self.root, self.base.head
        if self.mode not in COMMITTING:
            assert git(root, "rev-parse", "HEAD").strip() == head
            return
        if self.expected_status is not None:
            found_status = git(root, "status", "--porcelain", "--untracked-files=all")
            assert found_status == self.expected_status
        paths = [path for one in self.sure.values() if one is not None for path in _paths(one)]
        written = {doc_id for op, _ in self.done for doc_id in op.effects}
        paths = [path for path in paths if _id_of(path) in written]
        if paths:
            assert git(root, "status", "--porcelain", "--", *paths) == ""
        log = git(root, "log", "--reverse", "--format=%H%n%B%x00", f"{head}..HEAD")
        commits = [text.strip() for text in log.split("\0") if text.strip()]
        told: Counter[tuple[str, str]] = Counter()
        ours = 0
        for text in commits:
            sha, subject, *rest = text.splitlines()
            if subject.startswith("by hand"):
                continue
            ours += 1
            found = _SUBJECT.match(subject)
            assert found is not None, subject
            trailers = [match for line in rest if (match := _TRAILER.match(line))]
            told.update((match[1], match[2]) for match in trailers or [found])
            if self.mode == "snapshot":
                tags = git(root, "tag", "--points-at", sha, "--list", "maad-snapshot-*").split()
                assert len([tag for tag in tags if "crash" not in tag]) == 1, tags
        if not self.exact_history:
            return
        born = {one for one in self.sure if one not in self.base.state}
        wanted: Counter[tuple[str, str]] = Counter()
        for op, _ in self.done:
            if op.tool.removeprefix("maad_") in WRITE_TOOLS:
                wanted.update((_action(op), doc_id) for doc_id in op.effects)
        for action, doc_id in wanted.keys() | told.keys():
            if doc_id in born and self.sure[doc_id] is None and self.mode != "audit":
                continue  # made and removed within one batch: Git never saw it
            assert told[action, doc_id] == wanted[action, doc_id], (action, doc_id, commits)
        if self.mode == "audit":
            writes = [op for op, _ in self.done if op.effects]
            assert ours == len(writes), (commits, writes)

    def _check_rest(self) -> None:
        """With nobody at work: no trace of the crash, and an index that a rebuild would make."""
        root = self.root
        for path in root.rglob("*"):
            name = path.name
            assert ".maad-tmp-" not in name, path
            assert not name.endswith(".lock"), path
            assert not name.startswith(("maadd-index", "tmp_obj", "tmp_pack")), path
            assert "_git2_" not in name, path
        fsck = subprocess.run(
            ["git", "fsck", "--strict", "--no-dangling"],
            cwd=root, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert (fsck.returncode, fsck.stdout, fsck.stderr) == (0, "", ""), fsck
        if self.expected_status is not None:
            assert git(root, "diff", "--cached", "--name-only") == "staged.txt\n"
        assert git(root, "show", ":staged.txt") == "staged\n"
        journal = Journal.open(str(root), fsync=False)
        assert journal.pending() == []
        journal.close()
        again, kept = rebuilt(root), dump(str(root / "_backend/maad.db"))
        for table, rows in kept.items():
            more = [row for row in rows if row not in again[table]]
            less = [row for row in again[table] if row not in rows]
            assert not more, f"{table}: {more} in the index, {less} in a new one"
            assert not less, f"{table}: {less} in a new index only"


def _action(op: Op) -> str:
    if op.tool in ("maad_create", "maad_bulk_create"):
        return "create"
    return (
        "update"
        if op.tool in ("maad_update", "maad_bulk_update", "maad_repair_where")
        else ("delete")
    )


def _lasting(data: Any) -> Any:
    """Answer data without what may change after it."""
    return {
        name: value for name, value in data.items() if name not in ("writeDurable", "commitFailure")
    }


def _id_of(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("_deleted_").removesuffix(".md")


def _paths(record: Record) -> tuple[str, str]:
    folder = FOLDERS[record.doc_id[:3]]
    return f"{folder}/{record.doc_id}.md", f"{folder}/_deleted_{record.doc_id}.md"


def _difference(
    expected: Record | None, doc_id: str, files: dict[str, bytes], row: Any
) -> str | None:
    """How disk and index differ from what is expected of a record."""
    folder = FOLDERS[doc_id[:3]]
    there = [path for path in files if path.endswith(f"/{doc_id}.md")]
    dead = [path for path in files if path.endswith(f"/_deleted_{doc_id}.md")]
    if expected is None:
        return None if not (there or dead or row) else f"is there: {there} {dead} {row}"
    path = f"{folder}/{'_deleted_' if expected.deleted else ''}{doc_id}.md"
    if [*there, *dead] != [path]:
        return f"files {[*there, *dead]}, not {path}"
    if row is None:
        return "no row"
    data = files[path]
    _, front, body = data.decode().split("---\n", 2)
    if yaml.safe_load(front) != expected.frontmatter:
        return f"{front} is not {expected.frontmatter}"
    if body.strip() != expected.body:
        return f"the body is {body!r}, not {expected.body!r}"
    wanted = (path, hashlib.sha256(data).hexdigest(), expected.version, int(expected.deleted))
    return None if tuple(row[3:7]) == wanted else f"the row is {row}, not {wanted}"


def _take(
    expected: Record | None, doc_id: str, files: dict[str, bytes], rows: dict[str, Any]
) -> None:
    if expected is not None:
        live, dead = _paths(expected)
        files.pop(live, None)
        files.pop(dead, None)
    rows.pop(doc_id, None)
