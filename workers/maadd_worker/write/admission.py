"""What stands before every write on the writer thread: replay, verdict, broken schemas.

The order is contract: an idempotency hit is answered first, then the front's verdict on size
and rate, then the call itself is looked at (spec 03 §2.1, 04 §6 step 14).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from maadd.protocol.arguments.base import Arguments
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call, Reply
from maadd_worker.write.context import WriteContext
from maadd_worker.write.idempotency import AnswerStore, KeyScope, StoredAnswer, key_scope


class Admission(msgspec.Struct, frozen=True):
    """The way of calls to their execution, for one group of writes.

    `refused` holds the load errors of types whose schema is broken, `admit` asks whether a
    call may still become visible, `replay` makes the answer of a repeated call.
    """

    context: WriteContext
    answers: AnswerStore
    refused: Mapping[str, tuple[MaadError, ...]]
    admit: Callable[[str], bool]
    deliver: Callable[[Reply], None]
    replay: Callable[[Call, StoredAnswer], Reply]

    def answered(self, call: Call, scope: KeyScope | None) -> bool:
        """Whether the call was a replay. Raises the front's verdict, IDEMPOTENCY_KEY_REUSED."""
        if scope is not None:
            stored = self.answers.find(scope, now_ms())
            if stored is not None:
                self.deliver(self.replay(call, stored))
                return True
        if call.verdict is not None:
            verdict = call.verdict
            raise MaadError(verdict.code, verdict.message, verdict.details)
        return False

    def refuse_broken(self, doc_type: str) -> None:
        """A type whose schema does not load takes no writes until it is good again."""
        errors = self.refused.get(doc_type)
        if errors:
            raise MaadErrors(list(errors))

    def refuse_broken_record(self, doc_id: str) -> None:
        """`refuse_broken` for the type of a live record; nothing for an unknown id."""
        row = self.context.writer.find(doc_id) if self.refused else None
        if row is not None:
            self.refuse_broken(row.doc_type)


def scope_of(call: Call, args: Arguments) -> KeyScope | None:
    """The scope of the call's idempotency key, None without one."""
    key = getattr(args, "idempotency_key", None)
    if not isinstance(key, str) or not key:
        return None
    principal = call.identity.token_id if call.identity is not None else None
    return key_scope(principal, call.tool, key, call.args)


def now_ms() -> int:
    """The time that idempotency entries are stamped with, in milliseconds."""
    return time.time_ns() // 1_000_000
