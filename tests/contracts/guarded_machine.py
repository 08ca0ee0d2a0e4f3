"""Everything that can happen between a contract and a create, in any order (spec 05 §6)."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from contracts_project import Gate, Host, make_project
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from maadd.client import new_document_digest
from maadd.protocol.errors import WireError
from maadd_worker.contracts.stored_document import read_stored
from maadd_worker.disk.journal import Journal
from maadd_worker.history.controller import HistoryController
from maadd_worker.write import group

IDS = st.sampled_from(["me-1", "me-2", "me-3", "me-4"])
FIELDS = st.sampled_from(
    [
        {"topic": "a"},
        {"topic": "b", "labels": ["x, y", "[z]"]},
        {"topic": "c", "extra": [1.5, None]},
    ]
)
BODIES = st.sampled_from(["", "# One\n", "two\r\nlines\r\n"])
LENGTHS = st.sampled_from([100, 200, 300])
MODES = st.sampled_from(["audit", "feed", "batch", "snapshot"])
LOOKS = st.integers(1, 40)
KILL_POINTS = st.sampled_from(
    [
        (Journal, "begin", False),
        (Journal, "begin", True),
        (group, "publish_changes", True),
        (group, "index_document", False),
        (group, "index_document", True),
        (HistoryController, "commit", False),
        (HistoryController, "commit", True),
        (Gate, "permit", False),
        (Gate, "permit", True),
    ]
)


class GuardedCreates(RuleBasedStateMachine):
    """A host with a contract that may have grown old, and a project that moves under it."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.host = Host(make_project(self.folder / "project"), "audit")
        self.schema = self.host.root / "_schema/memo.v1.yaml"
        self.original = self.schema.read_text()
        self.contract = self.host.contract()["schemaDigest"]
        self.promised: dict[str, set[str]] = defaultdict(set)
        self.acknowledged: dict[str, str] = {}

    @rule()
    def read_the_contract(self) -> None:
        self.contract = self.host.contract()["schemaDigest"]

    @rule(length=LENGTHS)
    def edit_the_schema(self, length: int) -> None:
        self._edit(length)

    @rule(mode=MODES)
    def change_the_history(self, mode: str) -> None:
        self.host.reopen(mode)

    @rule()
    def load_anew(self) -> None:
        self.host.ok("maad_reload")

    @rule(doc_id=IDS, fields=FIELDS, body=BODIES)
    def create(self, doc_id: str, fields: dict[str, Any], body: str) -> None:
        current = self.host.contract()["schemaDigest"]
        if self._create(self._request(doc_id, fields, body)):
            assert current == self.contract

    @rule(doc_id=IDS, fields=FIELDS, other=FIELDS, body=BODIES)
    def create_other_content(
        self, doc_id: str, fields: dict[str, Any], other: dict[str, Any], body: str
    ) -> None:
        request = self._request(doc_id, fields, body) | {"fields": other}
        if self._create(request):
            assert fields == other

    @rule(doc_id=IDS, fields=FIELDS, body=BODIES)
    def create_without_access(self, doc_id: str, fields: dict[str, Any], body: str) -> None:
        self.host.gate.on_permit = lambda: WireError("TOKEN_REVOKED", "revoked")
        assert not self._create(self._request(doc_id, fields, body))
        self.host.gate = Gate()

    @rule(doc_id=IDS, fields=FIELDS, body=BODIES, at=LOOKS)
    def create_and_cancel(self, doc_id: str, fields: dict[str, Any], body: str, at: int) -> None:
        self.host.gate.on_wanted = lambda look: look < at
        self._create(self._request(doc_id, fields, body))
        self.host.gate = Gate()

    @rule(doc_id=IDS, fields=FIELDS, body=BODIES, at=LOOKS, length=LENGTHS)
    def create_while_the_schema_is_edited(
        self, doc_id: str, fields: dict[str, Any], body: str, at: int, length: int
    ) -> None:
        self.host.gate.on_wanted = lambda look: self._edit(length) if look == at else None
        self._create(self._request(doc_id, fields, body))
        self.host.gate = Gate()

    @rule(doc_id=IDS, fields=FIELDS, body=BODIES, point=KILL_POINTS)
    def create_and_die(
        self, doc_id: str, fields: dict[str, Any], body: str, point: tuple[Any, str, bool]
    ) -> None:
        request = self._request(doc_id, fields, body)
        self.host.engine.close()
        child = os.fork()
        if child == 0:
            try:
                _die_at(*point)
                self.host.engine = self.host.open()
                self.host.reply("maad_create_guarded", request)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        self.host.engine = self.host.open()

    @invariant()
    def every_document_is_what_was_promised(self) -> None:
        found = {}
        for path in (self.host.root / "memos").glob("*.md"):
            stored = read_stored(path.read_bytes(), path.stem, "memo", "memo.v1")
            assert stored.content_digest in self.promised[path.stem]
            found[path.stem] = stored.content_digest
        assert found.items() >= self.acknowledged.items()
        assert not list((self.host.root / "memos").glob("*.tmp"))

    def teardown(self) -> None:
        if hasattr(self, "host"):
            self.host.close()
            shutil.rmtree(self.folder)

    def _request(self, doc_id: str, fields: dict[str, Any], body: str) -> dict[str, Any]:
        digest = new_document_digest(doc_id, "memo", "memo.v1", fields, body)
        self.promised[doc_id].add(digest)
        return self.host.request(
            doc_id, fields, body, schema=self.contract, expectedContentDigest=digest
        )

    def _create(self, request: dict[str, Any]) -> bool:
        reply = self.host.reply("maad_create_guarded", request)
        if reply.ok:
            self.acknowledged[request["docId"]] = request["expectedContentDigest"]
        return reply.ok

    def _edit(self, length: int) -> None:
        self.schema.write_text(self.original.replace("200", str(length)))


def _die_at(owner: Any, name: str, after: bool) -> None:
    """Have this process killed before or after its next call of a function."""
    real = getattr(owner, name)

    def last(*arguments: Any, **more: Any) -> Any:
        result = real(*arguments, **more) if after else None
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, last)
