"""Reload of the instance file and the token registry: SIGHUP and tool (spec 04 §3).

The new table is built aside, judged against the running one, and taken over in one step in
which nothing is awaited: no call can see a part of it. Workers of removed projects drain
behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.caps import administers_all, admitted
from maadd.auth.record import TokenRecord
from maadd.auth.timestamps import format_timestamp
from maadd.config.diff import InstanceDiff, diff_instances
from maadd.config.instance import Instance, load_instance
from maadd.config.settings import Settings
from maadd.front.state import RunningFront
from maadd.front.token_follower import TokenFollower
from maadd.ops.notify import ServiceNotifier
from maadd.pool.pool import WorkerPool
from maadd.protocol.arguments import InstanceReloadArgs
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.sessions.session import Session
from maadd.sessions.table import ProjectFallout, SessionTable
from maadd.sessions.views import Caller

_REFUSED = "refused; the server's log, or an administrator of the whole instance, sees why"

_SETTLE_S = 15.0
"""How long a worker may take to end after its drain."""


@dataclass(slots=True)
class ReloadCounts:
    """Reloads since the start, as health shows them."""

    attempted: int = 0
    succeeded: int = 0
    failed: int = 0
    last_at: str | None = None
    projects_added: int = 0
    projects_removed: int = 0


class InstanceReload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a successful reload of the instance did; `warnings` are those of the new file."""

    source: str
    projects_added: tuple[str, ...]
    projects_removed: tuple[str, ...]
    projects_restarted: tuple[str, ...]
    sessions_cancelled: int
    sessions_pruned: int
    duration_ms: int
    warnings: tuple[str, ...] = ()


class Reloader:
    """The single slot for reloads, and what they did so far.

    `follower` is None where there is no token registry. Workers get `drain_s` seconds to
    finish what they hold; `on_change` is called when another instance is served.
    """

    def __init__(
        self,
        *,
        state: RunningFront,
        settings: Settings,
        sessions: SessionTable,
        pool: WorkerPool,
        follower: TokenFollower | None,
        log: FilteringBoundLogger,
        audit: Callable[[str, dict[str, Any]], None],
        notifier: ServiceNotifier,
        on_change: Callable[[], None],
    ) -> None:
        self.counts = ReloadCounts()
        self._state = state
        self._settings = settings
        self._sessions = sessions
        self._pool = pool
        self._follower = follower
        self._log = log
        self._audit = audit
        self._notifier = notifier
        self._on_change = on_change
        self._drain_s = settings.shutdown_timeout_ms / 1000
        self._busy = False
        self._announced = 0

    async def answer_tool(
        self,
        caller: Caller,
        args: InstanceReloadArgs,
        instance: Instance,
        token: TokenRecord | None,
    ) -> dict[str, Any]:
        """`maad_instance_reload`; the caller's own session is left to its next request.

        Who does not administer everything learns nothing of what others have.
        """
        keep = caller if isinstance(caller, Session) else None
        if token is None or administers_all(token):
            return await self.reload(keep)
        try:
            done = await self.reload(keep)
        except MaadError as failure:
            raise MaadError(failure.code, _REFUSED) from failure
        return self._as_seen_by(token, done)

    async def reload(self, keep: Session | None = None) -> dict[str, Any]:
        """Both parts on somebody's demand; the data of the tool.

        A bad token file is part of the result. The errors of `reload_instance`, after which
        the tokens have been reloaded all the same.
        """
        tokens = None
        with self._announcing():
            try:
                done = await self.reload_instance("tool")
            finally:
                if self._follower is not None:
                    tokens = msgspec.to_builtins(await self._follower.try_reload(keep))
        return {**msgspec.to_builtins(done), "tokens": tokens}

    async def on_sighup(self) -> None:
        """Both parts, the tokens after the instance and whatever became of it; never raises a
        failure of either."""
        with self._announcing():
            await self._reload_or_log("sighup_reload_failed", self.reload_instance("sighup"))
            if self._follower is not None:
                await self._reload_or_log("sighup_tokens_reload_failed", self._follower.reload())

    async def reload_instance(self, source: str) -> InstanceReload:
        """Take over what the instance file says now.

        Raises INSTANCE_RELOAD_SYNTHETIC, INSTANCE_RELOAD_IN_PROGRESS, INSTANCE_RELOAD_FAILED,
        INSTANCE_MUTATION_UNSUPPORTED; everything is then as it was.
        """
        if self._state.instance.source != "file":
            raise MaadError(
                "INSTANCE_RELOAD_SYNTHETIC",
                "a server of a single project has no instance file; restart it instead",
            )
        if self._busy:
            raise MaadError(
                "INSTANCE_RELOAD_IN_PROGRESS", "another reload is running; try again after it"
            )
        self._busy = True
        self.counts.attempted += 1
        self._log.info("instance_reload_start", source=source, phase="start")
        try:
            return await self._perform(source)
        except BaseException:
            self.counts.failed += 1
            raise
        finally:
            self._busy = False

    def _as_seen_by(self, token: TokenRecord, done: dict[str, Any]) -> dict[str, Any]:
        """The data of a reload for who does not administer everything."""
        seen = {name: value for name, value in done.items() if name != "warnings"}
        for name in ("projectsAdded", "projectsRemoved", "projectsRestarted"):
            seen[name] = list(admitted(token, done[name]))
        if done["tokens"] is not None and self._follower is not None:
            total, active = self._follower.visible_counts(token)
            seen["tokens"] = {**done["tokens"], "total": total, "active": active}
            if "error" in done["tokens"]:
                error = {"code": done["tokens"]["error"]["code"], "message": _REFUSED}
                seen["tokens"]["error"] = error
        return seen

    @contextmanager
    def _announcing(self) -> Iterator[None]:
        """Tell the service manager of the first of several reloads that overlap, and of the end
        of all: also of a refused one, since it waits for that (spec 04 §15)."""
        self._announced += 1
        if self._announced == 1:
            self._notifier.reloading()
            self._notifier.extend(self._drain_s + _SETTLE_S)
        try:
            yield
        finally:
            self._announced -= 1
            if not self._announced:
                number, counts = len(self._state.instance.projects), self.counts
                self._notifier.ready(
                    f"serving {number} projects; "
                    f"reloads: {counts.succeeded} done, {counts.failed} refused"
                )

    async def _reload_or_log(self, event: str, reloading: Awaitable[object]) -> None:
        try:
            await reloading
        except MaadError as failure:
            self._log.warning(event, code=failure.code, message=failure.message)

    async def _perform(self, source: str) -> InstanceReload:
        started = time.monotonic()
        phase = "load"
        try:
            new = await asyncio.to_thread(self._load)
            phase = "compare"
            diff = diff_instances(self._state.instance, new)
        except MaadError as failure:
            self._log.warning(
                "instance_reload_failed",
                source=source,
                phase=phase,
                code=failure.code,
                message=failure.message,
                durationMs=_elapsed_ms(started),
            )
            raise
        fallout = self._take_over(new, diff)
        await self._settle_workers(new, diff)
        done = InstanceReload(
            source,
            diff.added,
            diff.removed,
            diff.restarted,
            fallout.cancelled,
            fallout.pruned,
            _elapsed_ms(started),
            new.warnings,
        )
        self._record(done)
        return done

    def _load(self) -> Instance:
        path = self._state.instance.config_path
        assert path is not None
        try:
            return load_instance(path, self._settings)
        except MaadErrors as failure:
            raise _reload_failed(failure) from None

    def _take_over(self, new: Instance, diff: InstanceDiff) -> ProjectFallout:
        """The one step: from here on every call sees the new table."""
        self._state.serve(new)
        self._pool.serve(new.projects)
        self._on_change()
        for warning in new.warnings:
            self._log.warning("instance_warning", message=warning)
        return self._sessions.remove_projects(diff.removed)

    async def _settle_workers(self, new: Instance, diff: InstanceDiff) -> None:
        await asyncio.gather(
            *(self._pool.remove_project(name, self._drain_s) for name in diff.removed),
            *(
                self._pool.restart_project(new.projects[name], self._drain_s)
                for name in diff.restarted
            ),
        )

    def _record(self, done: InstanceReload) -> None:
        counts = self.counts
        counts.succeeded += 1
        counts.last_at = format_timestamp(time.time())
        counts.projects_added += len(done.projects_added)
        counts.projects_removed += len(done.projects_removed)
        amounts = {
            "projectsAdded": len(done.projects_added),
            "projectsRemoved": len(done.projects_removed),
        }
        self._log.info(
            "instance_reload_complete",
            source=done.source,
            phase="complete",
            **amounts,
            durationMs=done.duration_ms,
        )
        self._audit(
            "instance_reload",
            {
                "source": done.source,
                **amounts,
                "projectsAddedNames": done.projects_added,
                "projectsRemovedNames": done.projects_removed,
                "sessionsCancelled": done.sessions_cancelled,
                "sessionsPruned": done.sessions_pruned,
                "durationMs": done.duration_ms,
            },
        )


def _reload_failed(failure: MaadErrors) -> MaadError:
    """One error for all that is wrong with the file; nothing changed."""
    problems = "; ".join(f"{error.code}: {error.message}" for error in failure.errors)
    first = failure.errors[0]
    details = {"code": first.code}
    if first.details is not None and "project" in first.details:
        details["project"] = first.details["project"]
    return MaadError("INSTANCE_RELOAD_FAILED", problems, details)


def _elapsed_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
