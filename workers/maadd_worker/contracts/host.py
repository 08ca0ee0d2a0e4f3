"""The host contracts of one open project: what lives from call to call (spec 05 §5.5, §9.6)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from maadd.protocol.errors import MaadError, error_from_wire
from maadd.protocol.messages import Call, Reply, WorkerConfig
from maadd_worker.contracts.git_reader import GitReader
from maadd_worker.contracts.guarded import Admitted
from maadd_worker.contracts.observation import Preparations
from maadd_worker.contracts.snapshots import Snapshots
from maadd_worker.contracts.surroundings import Surroundings, cancellation
from maadd_worker.contracts.tools import answer_strict
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.gate import Gate
from maadd_worker.index.store import Index
from maadd_worker.replies import failure_reply
from maadd_worker.schema.model import Model
from maadd_worker.write.context import WriteContext


class HostContracts:
    """Used on the writer thread; `forget_session` from any."""

    def __init__(
        self,
        config: WorkerConfig,
        root: ProjectRoot,
        index: Index,
        model: Callable[[], Model],
        write_context: Callable[[], WriteContext],
    ) -> None:
        mode = config.history.effective_mode
        has_git = mode != "feed" and os.path.lexists(os.path.join(root.path, ".git"))
        self._around = Surroundings(
            project=config.project,
            root=root,
            mode=mode,
            epoch=1,
            model=model,
            find=index.find,
            write_context=write_context,
            preparations=Preparations(),
            snapshots=Snapshots(lambda: time.time_ns() // 1_000_000),
            git=GitReader(root.path) if has_git else None,
        )

    def answer(self, call: Call, gate: Gate, *, index_empty: bool) -> Reply | Admitted:
        """The reply of a strict call, or the create that has the front's permit.

        What is admitted must be published at once: nothing is judged again.
        """
        if index_empty:
            return failure_reply(call.request_id, _not_ready())
        check = cancellation(call, gate.wanted)
        done = answer_strict(self._around, call, check)
        if isinstance(done, Reply):
            return done
        refusal = gate.permit(call.request_id)
        if refusal is not None:
            return failure_reply(call.request_id, error_from_wire(refusal))
        return done

    def reloaded(self) -> None:
        """Registry and schemas were loaded anew: judgements and cursors of before are void."""
        self._around = msgspec.structs.replace(self._around, epoch=self._around.epoch + 1)
        self._around.preparations.forget()

    def forget_session(self, session_id: str) -> None:
        """Drop the pages that a session has not fetched."""
        self._around.snapshots.forget_session(session_id)


def _not_ready() -> MaadError:
    return MaadError(
        "RECEIPT_ENGINE_NOT_READY",
        "the index of this project is empty over existing files; run maad_reindex first",
    )
