"""A real project with an engine that answers the strict tools as its worker would have it."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from maadd.client import new_document_digest
from maadd.protocol.errors import WireError
from maadd.protocol.messages import (
    Call,
    HistorySettings,
    Identity,
    Reply,
    ResultBudget,
    WorkerConfig,
    WorkerSettings,
)
from maadd.protocol.tools import TOOLS, ToolKind
from maadd_worker.engine import Engine

REGISTRY = """\
types:
  memo: {path: memos, id_prefix: me, schema: memo.v1}
"""
SCHEMA = """\
type: memo
version: 1
required: [topic]
fields:
  topic: {type: string, index: true, max_length: 200}
  labels: {type: list, item_type: string}
  day: {type: date}
template:
  headings:
    - {level: 1, text: "{{topic}}"}
"""


def git(root: Path, *arguments: str) -> str:
    """The output of one git command run by a person in the project."""
    command = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"]
    done = subprocess.run(
        [*command, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout


def snapshot(root: Path) -> dict[str, tuple[int, str]]:
    """Every file below the project with its mode and content, SQLite's own marks left out."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.endswith(("-shm", "-wal")) or path.is_symlink():
            continue
        mode = path.lstat().st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[name] = (mode, content)
    return found


class Gate:
    """What the worker's queue is to the engine. `on_wanted` and `on_permit` run at every look
    at a call and at its publish point; what `on_permit` returns refuses."""

    def __init__(self) -> None:
        self.looks = 0
        self.permits = 0
        self.on_wanted: Callable[[int], bool | None] = lambda _: True
        self.on_permit: Callable[[], WireError | None] = lambda: None

    def wanted(self, request_id: str) -> bool:
        self.looks += 1
        return self.on_wanted(self.looks) is not False

    def permit(self, request_id: str) -> WireError | None:
        self.permits += 1
        return self.on_permit()

    def admit(self, request_id: str) -> bool:
        return True

    def defer(self, request_id: str) -> None:
        """Nothing of this folder is answered later."""

    def depth(self) -> int:
        return 0


class Host:
    """An engine and a host that calls it."""

    def __init__(self, root: Path, mode: str, **settings: Any) -> None:
        self.root = root
        self.mode = mode
        self._settings = WorkerSettings(**{"watch": "off", "fsync": False, **settings})
        self._number = 0
        self.gate = Gate()
        self.budget = ResultBudget(131_072)
        self.session = "s"
        self.engine = self.open()

    def open(self) -> Engine:
        """The engine of the project as it is now."""
        config = WorkerConfig(
            project="default",
            root=str(self.root),
            generation=1,
            endpoint="",
            control_endpoint=None,
            history=HistorySettings(self.mode, self.mode, "project"),
            settings=self._settings,
        )
        return Engine.open(config, lambda _: None)

    def reopen(self, mode: str | None = None) -> None:
        """Start the engine anew, perhaps in another history mode."""
        self.engine.close()
        self.mode = mode or self.mode
        self.engine = self.open()

    def reply(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> Reply:
        """The reply to one call."""
        self._number += 1
        call = Call(
            request_id=f"r{self._number}",
            tool=tool,
            args=args or {},
            role=2,
            session_id=self.session,
            generation=1,
            deadline_ms=30_000,
            is_write=TOOLS[tool].kind is ToolKind.WRITE,
            budget=self.budget if TOOLS[tool].strict else None,
            **more,
        )
        replies: list[Reply] = []
        self.engine.write_group([call], self.gate, replies.append)
        while not replies:  # A reindex is answered from what runs between the writes.
            self.engine.settle(True)
        (reply,) = replies
        return reply

    def catch_up(self) -> None:
        """Let the Git index file show the commits."""
        while (wait := self.engine._history.settle(False)) is not None:
            threading.Event().wait(min(wait, 0.02))  # as the writer thread does

    def ok(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> Any:
        """The data of a call that must succeed."""
        reply = self.reply(tool, args, **more)
        assert reply.ok, reply.body
        return msgspec.json.decode(reply.body)

    def error(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The first error of a call that must fail."""
        reply = self.reply(tool, args, **more)
        assert not reply.ok, reply.body
        errors: list[dict[str, Any]] = msgspec.json.decode(reply.body)
        return errors[0]

    def contract(self, **delivery: Any) -> Any:
        """The schema contract of `memo`."""
        asked = {"contract": "create-contract-v1", "docType": "memo"}
        return self.ok("maad_create_contract", asked | delivery)

    def request(
        self, doc_id: str = "me-1", fields: Any = None, body: str = "", **changed: Any
    ) -> dict[str, Any]:
        """A guarded create that is in order, unless `changed` makes it another."""
        fields = {"topic": "Harbour dues"} if fields is None else fields
        request = {
            "contract": "guarded-create-v1",
            "docType": "memo",
            "docId": doc_id,
            "fields": fields,
            "body": body,
            "expectedSchemaDigest": changed.pop("schema", None) or self.contract()["schemaDigest"],
            "expectedContentDigest": new_document_digest(doc_id, "memo", "memo.v1", fields, body),
            "allowedHistoryModes": ["audit", "batch", "feed", "snapshot"],
        }
        return request | changed

    def create(self, request: dict[str, Any], identity: Identity | None = None) -> Any:
        """The data of a guarded create that must succeed."""
        return self.ok("maad_create_guarded", request, identity=identity)

    def receipt(self, doc_id: str = "me-1", **more: Any) -> Any:
        """The receipt of a memo."""
        return self.ok("maad_document_receipt", self.receipt_request(doc_id, **more))

    @staticmethod
    def receipt_request(doc_id: str = "me-1", **more: Any) -> dict[str, Any]:
        """The arguments of a receipt."""
        return {
            "contract": "document-persistence-v1",
            "docType": "memo",
            "docId": doc_id,
            **more,
        }

    def close(self) -> None:
        self.engine.close()


OpenHost = Callable[..., Host]


def make_project(root: Path) -> Path:
    """An empty project with one type and a repository of one commit."""
    for folder in ("_registry", "_schema", "memos"):
        (root / folder).mkdir(parents=True)
    (root / "_registry/object_types.yaml").write_text(REGISTRY)
    (root / "_schema/memo.v1.yaml").write_text(SCHEMA)
    (root / ".gitignore").write_text("_backend/\n_import/\n")
    git(root, "init", "-q", "-b", "main", "--template=")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "fixture")
    return root
