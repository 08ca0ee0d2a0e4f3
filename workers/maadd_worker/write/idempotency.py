"""Stored answers of writes with an idempotency key (spec 03 §8).

An entry is stored in the transaction that indexes its write, so that a crash between commit
and answer still replays. Scope: principal, tool and key, within the project.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.writer import IndexWriter

_FIND = """
SELECT fingerprint, request_id, completed_at_ms, result FROM idempotency
WHERE principal = ? AND tool = ? AND key = ? AND completed_at_ms > ?
"""
_TOUCH = "UPDATE idempotency SET used_at_ms = ? WHERE principal = ? AND tool = ? AND key = ?"
_PUT = """
INSERT INTO idempotency
    (principal, tool, key, fingerprint, request_id, completed_at_ms, used_at_ms, result)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (principal, tool, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, request_id = excluded.request_id,
    completed_at_ms = excluded.completed_at_ms, used_at_ms = excluded.used_at_ms,
    result = excluded.result
"""
_RESULT = "SELECT result FROM idempotency WHERE principal = ? AND tool = ? AND key = ?"
_SET_RESULT = "UPDATE idempotency SET result = ? WHERE principal = ? AND tool = ? AND key = ?"
_PUT_RECORD = "INSERT OR IGNORE INTO idempotency_records VALUES (?, ?, ?, ?)"
_EXPIRE = "DELETE FROM idempotency WHERE completed_at_ms <= ?"
_COUNT = "SELECT count(*) FROM idempotency"
_EVICT = """
DELETE FROM idempotency WHERE (principal, tool, key) IN
    (SELECT principal, tool, key FROM idempotency ORDER BY used_at_ms LIMIT ?)
"""


class KeyScope(msgspec.Struct, frozen=True):
    """Whose key it is; `principal` is the token id, empty on stdio."""

    principal: str
    tool: str
    key: str
    fingerprint: str


class StoredAnswer(msgspec.Struct, frozen=True):
    """What the first call answered: its `data`, its warnings, the journal ids of its writes and
    the commit, if it had one by then."""

    data: msgspec.Raw
    warnings: list[dict[str, Any]]
    journal_ids: list[str]
    request_id: str = ""
    completed_at: str = ""
    sha: str | None = None


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    data: msgspec.Raw
    warnings: list[dict[str, Any]]
    journal_ids: list[str]
    sha: str | None = None


def key_scope(principal: str | None, tool: str, key: str, args: Mapping[str, Any]) -> KeyScope:
    """The scope of a call; the fingerprint covers every argument but the key and the project."""
    relevant = {
        name: value for name, value in args.items() if name not in ("idempotencyKey", "project")
    }
    text = msgspec.json.encode(relevant, order="deterministic")
    return KeyScope(principal or "", tool, key, hashlib.sha256(text).hexdigest())


class AnswerStore:
    """The entries of one project: bounded in age and number, least recently used go first."""

    def __init__(self, writer: IndexWriter, ttl_ms: int, capacity: int) -> None:
        self._writer = writer
        self._ttl_ms = ttl_ms
        self._capacity = capacity

    def find(self, scope: KeyScope, now_ms: int) -> StoredAnswer | None:
        """The stored answer of the same call; IDEMPOTENCY_KEY_REUSED for another call's key."""
        execute = self._writer.connection.execute
        row = execute(
            _FIND, (scope.principal, scope.tool, scope.key, now_ms - self._ttl_ms)
        ).fetchone()
        if row is None:
            return None
        fingerprint, request_id, completed_at_ms, result = row
        if fingerprint != scope.fingerprint:
            raise MaadError(
                "IDEMPOTENCY_KEY_REUSED",
                "this idempotencyKey was used for a call with other arguments; take a new key",
            )
        # An answer is given again also when a full disk does not let us note that it was.
        with contextlib.suppress(apsw.Error):
            execute(_TOUCH, (now_ms, scope.principal, scope.tool, scope.key))
        stored = msgspec.json.decode(result, type=_Result)
        return StoredAnswer(
            stored.data,
            stored.warnings,
            stored.journal_ids,
            request_id,
            _iso(completed_at_ms),
            stored.sha,
        )

    def holds(self, scope: KeyScope, now_ms: int) -> bool:
        """Whether there is an answer under the key, of whatever call."""
        known = (scope.principal, scope.tool, scope.key, now_ms - self._ttl_ms)
        return self._writer.connection.execute(_FIND, known).fetchone() is not None

    def store(
        self,
        scope: KeyScope,
        request_id: str,
        now_ms: int,
        answer: StoredAnswer,
        doc_ids: Sequence[str],
    ) -> None:
        """Keep an answer, in the caller's open transaction."""
        connection = self._writer.connection
        key = (scope.principal, scope.tool, scope.key)
        connection.execute(_EXPIRE, (now_ms - self._ttl_ms,))
        result = msgspec.json.encode(_Result(answer.data, answer.warnings, answer.journal_ids))
        connection.execute(_PUT, (*key, scope.fingerprint, request_id, now_ms, now_ms, result))
        connection.executemany(_PUT_RECORD, [(doc_id, *key) for doc_id in doc_ids])
        count: Any = connection.execute(_COUNT).get
        if count > self._capacity:
            connection.execute(_EVICT, (count - self._capacity,))

    def note_commits(self, commits: Sequence[tuple[KeyScope, str]]) -> None:
        """Keep the commits that answered calls got; they are made after the answers are stored."""
        if not commits:
            return
        execute = self._writer.connection.execute
        # The record is safe, and so is its answer: a replay then merely lacks the commit's id.
        with contextlib.suppress(apsw.Error), self._writer.transaction():
            for scope, sha in commits:
                key = (scope.principal, scope.tool, scope.key)
                result = execute(_RESULT, key).get
                if result is not None:
                    kept = msgspec.json.decode(result, type=_Result)
                    noted = msgspec.json.encode(msgspec.structs.replace(kept, sha=sha))
                    execute(_SET_RESULT, (noted, *key))


def _iso(epoch_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
