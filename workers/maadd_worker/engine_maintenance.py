"""Writes of an engine that concern the whole project, beside the reindex (spec 03 §6)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from maadd.protocol.arguments import BackupArgs, InstructionsArgs
from maadd.protocol.messages import Call, WorkerConfig
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.engine_model import ModelInUse
from maadd_worker.history.backup import BackupContext, backup
from maadd_worker.history.controller import HistoryController
from maadd_worker.index.store import Index
from maadd_worker.instructions.files import InstructionFiles
from maadd_worker.instructions.refresh import RefreshContext
from maadd_worker.outcome import Outcome, boundary_audit
from maadd_worker.read.health import BACKUP_TAG_KEY
from maadd_worker.schema.model import ModelRefresh
from maadd_worker.write.context import commit_identity
from maadd_worker.write.instructions import refresh_instructions
from maadd_worker.write.maintenance import reload_model


class Maintenance:
    """On the writer's thread. `keep_meta` remembers values in the index, where that can be done."""

    def __init__(
        self,
        config: WorkerConfig,
        root: ProjectRoot,
        index: Index,
        history: HistoryController,
        in_use: ModelInUse,
        instructions: InstructionFiles,
        keep_meta: Callable[[dict[str, str]], None],
    ) -> None:
        self._config = config
        self._root = root
        self._index = index
        self._history = history
        self._in_use = in_use
        self._instructions = instructions
        self._keep_meta = keep_meta

    def answer(self, call: Call) -> Outcome:
        """Flush, recovery points, reload, guides; the errors of each."""
        args: Any = check_arguments(TOOLS[call.tool], call.args)
        if call.tool == "maad_reload":
            return self._reload()
        if self._config.history.effective_mode != "read":
            self._in_use.refresh()
        if call.tool == "maad_flush":
            report = self._history.flush()
            return Outcome(report, audit=boundary_audit(report.sha) if report.sha else None)
        if call.tool == "maad_backup":
            return self._backup(args)
        return self._refresh_instructions(call, args)

    def _reload(self) -> Outcome:
        model, outcome = reload_model(
            self._root, self._in_use.model, self._index.writer(), self._history
        )
        self._in_use.adopt(ModelRefresh(model, {}))
        return outcome

    def _backup(self, args: BackupArgs) -> Outcome:
        context = BackupContext(
            self._root.held_path,
            self._in_use.record_paths(),
            self._history,
            self._config.history,
            self._config.settings,
        )
        outcome = backup(context, args)
        if args.mode == "create":
            last = {name: outcome.data[name] for name in ("tag", "sha", "createdAt")}
            # Only a remembered copy for health: the tag itself is in the repository.
            with contextlib.suppress(apsw.Error):
                self._keep_meta({BACKUP_TAG_KEY: msgspec.json.encode(last).decode()})
        return outcome

    def _refresh_instructions(self, call: Call, args: InstructionsArgs) -> Outcome:
        identity = commit_identity(Role(call.role).text, call.identity)
        context = RefreshContext(
            self._root,
            self._instructions,
            self._history,
            identity,
            self._config.settings.fsync,
        )
        return refresh_instructions(context, args, self._config.history.effective_mode)
