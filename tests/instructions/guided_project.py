"""An engine as a worker uses it, and what can be seen of a project from outside."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import msgspec

from maadd.protocol.messages import (
    Call,
    HistorySettings,
    Identity,
    Reply,
    WorkerConfig,
    WorkerSettings,
)
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS, ToolKind
from maadd.protocol.validation import check_arguments
from maadd_worker.engine import Engine
from maadd_worker.instructions.manifest import MANIFEST
from maadd_worker.instructions.stamp import stamped

PATHS = [path for _, path in MANIFEST]
OLD = stamped("schema-guide", "0.18.5", b"# Schema guide\n\nOf another version.\n")
"""What an earlier version wrote to `_skills/schema-guide.md`."""


def git(root: Path, *arguments: str) -> str:
    """The output of one git command that a person runs in the project."""
    person = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    done = subprocess.run(
        ["git", *person, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout


class OpenGate:
    """Admits every write."""

    def admit(self, request_id: str) -> bool:
        return True

    def defer(self, request_id: str) -> None:
        """The reply comes later."""

    def depth(self) -> int:
        return 0


class Served:
    """An engine that is asked the way a worker asks it."""

    def __init__(self, root: Path, mode: str, **settings: Any) -> None:
        config = WorkerConfig(
            project="yard",
            root=str(root),
            generation=1,
            endpoint="",
            control_endpoint=None,
            history=HistorySettings(mode, mode, "project", settings.pop("max_writes", None)),
            settings=WorkerSettings(watch="off", fsync=False, **settings),
        )
        self.engine = Engine.open(config, lambda _: None)
        self._reader = self.engine.open_reader()
        self._calls = 0

    def reply(
        self,
        tool: str = "maad_instructions",
        role: Role = Role.ADMIN,
        identity: Identity | None = None,
        dry_run_server: bool = False,
        **args: Any,
    ) -> Reply:
        self._calls += 1
        spec = TOOLS[tool]
        kind = spec.kind_of(check_arguments(spec, args))
        call = Call(
            request_id=f"r{self._calls}",
            tool=tool,
            args=args,
            role=role,
            session_id="s",
            generation=1,
            deadline_ms=30_000,
            identity=identity,
            dry_run=dry_run_server,
            is_write=kind is ToolKind.WRITE,
        )
        if not call.is_write:
            return self.engine.read(call, self._reader)
        replies: list[Reply] = []
        self.engine.write_group([call], OpenGate(), replies.append)
        while not replies:
            self.engine.settle(False)
        return replies[0]

    def ok(self, tool: str = "maad_instructions", **args: Any) -> Any:
        """The data of a call that must succeed."""
        reply = self.reply(tool, **args)
        assert reply.ok, reply.body
        return msgspec.json.decode(reply.body)

    def refresh(self, **args: Any) -> Any:
        """The data of a refresh that writes."""
        return self.ok(action="refresh", dryRun=False, **args)

    def code(self, tool: str = "maad_instructions", **args: Any) -> str | None:
        """The code of a call that must fail."""
        reply = self.reply(tool, **args)
        assert not reply.ok, reply.body
        return reply.error_code

    def settle(self) -> None:
        """Let everything finish that may lag behind the answers."""
        while (wait := self.engine.settle(True)) is not None and wait < 0.5:
            threading.Event().wait(wait)  # as the writer thread does

    def close(self) -> None:
        self._reader.close()
        self.engine.close()


def stamps(root: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and mtime of every file outside `_backend` and the repository's own."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] not in ("_backend", ".git")
    }


def subjects(root: Path) -> list[str]:
    """The commits after the first, oldest first."""
    return git(root, "log", "--reverse", "--format=%s").splitlines()[1:]
