"""The local control socket: commands, reloads, and fronts that share a project (spec 04 §13).

It lies in the front's private runtime directory and serves the user that runs the front, and
root; whoever that is may do what the owner of the files may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd import __version__
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import ProjectConfig
from maadd.front.attachment import Attachment, AuditSink
from maadd.front.reload import Reloader
from maadd.front.state import RunningFront
from maadd.front.token_follower import TokenFollower
from maadd.pool.control_stream import read_message
from maadd.pool.pool import WorkerPool
from maadd.protocol.control import (
    HANDSHAKE_S,
    Answer,
    Attach,
    Attached,
    Leaving,
    ProjectStatus,
    Refused,
    Reload,
    Reloaded,
    Status,
    StatusReport,
    SyncTokens,
    TokensSynced,
    decode_request,
    decode_to_owner,
    encode,
)
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.messages import Event
from maadd.protocol.process_identity import peer_of

_CONNECTIONS = 256
"""So many at once; a person has a handful."""


class ControlServer:
    """Listens from before the first worker starts until after the last one has ended."""

    def __init__(
        self,
        path: str,
        *,
        state: RunningFront,
        pool: WorkerPool,
        reloader: Reloader,
        follower: TokenFollower | None,
        transport: str,
        log: FilteringBoundLogger,
        audit: AuditSink,
    ) -> None:
        self._path = path
        self._state = state
        self._pool = pool
        self._reloader = reloader
        self._follower = follower
        self._transport = transport
        self._log = log
        self._audit = audit
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._attached: set[Attachment] = set()

    async def start(self) -> None:
        """Listen, or do so again where the socket was removed. The runtime directory is this
        front's alone, so the path is free."""
        if self._server is not None:
            self._server.close()
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        os.chmod(self._path, 0o600)

    def take_event(self, project: str, event: Event) -> None:
        """A record of a project changed; fronts that share it want to know."""
        for attachment in self._attached:
            if attachment.follows and attachment.project.name == project:
                attachment.tell(event)

    def leave(self) -> None:
        """The front drains: what shares its projects is to look for another owner."""
        for attachment in self._attached:
            attachment.send(Leaving())

    def let_go(self) -> None:
        """After a reload: what shares a project that is served no more is to look for another
        owner, or to be it."""
        for attachment in self._attached:
            if attachment.follows and not attachment.is_served:
                attachment.send(Leaving(removed=True))

    async def close(self) -> None:
        """End every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio takes the cancellation of one of its own for a failure.
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except Exception:
            self._log.exception("control_connection_failed")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = peer_of(writer.get_extra_info("socket"))
        if uid not in (0, os.geteuid()):
            self._log.warning("control_refused", peer_pid=pid, peer_uid=uid)
            return
        if len(self._connections) > _CONNECTIONS:
            self._log.warning("control_overloaded", connections=len(self._connections))
            return
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                body = await read_message(reader)
            request = None if body is None else decode_request(body)
        except (TimeoutError, msgspec.MsgspecError) as error:
            self._log.warning("control_request_unreadable", peer_pid=pid, reason=str(error))
            return
        match request:
            case Status():
                writer.write(encode(self._status()))
            case Reload():
                writer.write(encode(await self._reload()))
            case SyncTokens():
                writer.write(encode(await self._sync_tokens(request.path)))
            case Attach():
                await self._attach(request, pid, reader, writer)
        with contextlib.suppress(OSError):
            await writer.drain()

    def _status(self) -> StatusReport:
        instance = self._state.instance
        projects = []
        for project in instance.projects.values():
            worker = self._pool.snapshot(project)
            projects.append(ProjectStatus(project.name, project.path, worker.state, worker.pid))
        return StatusReport(
            pid=os.getpid(),
            version=__version__,
            transport=self._transport,
            instance=instance.name,
            config_path=instance.config_path,
            started_at=format_timestamp(self._state.started_at),
            draining=self._state.draining,
            projects=projects,
        )

    async def _reload(self) -> Answer:
        try:
            if self._state.draining:
                raise _shutting_down()
            return Reloaded(msgspec.json.encode(await self._reloader.reload()))
        except (MaadError, MaadErrors) as failure:
            return _refused(failure)

    async def _sync_tokens(self, path: str) -> Answer:
        try:
            if self._follower is not None and self._follower.follows(path):
                await self._follower.reload()
        except MaadError as failure:
            self._log.warning("tokens_reload_failed", code=failure.code, message=failure.message)
            return _refused(failure)
        return TokensSynced()

    async def _attach(
        self,
        request: Attach,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if self._state.draining:
                raise _shutting_down()
            project = self._project_at(request.root)
        except MaadError as failure:
            writer.write(encode(_refused(failure)))
            return
        attachment = Attachment(
            project,
            writer,
            self._state,
            follows=request.follow,
            log=self._log,
            audit=self._audit,
        )
        relay = self._pool.relay(project, attachment.send)
        writer.write(encode(Attached(os.getpid(), __version__)))
        if request.follow:
            self._log.info("front_attached", peer_pid=pid, project=project.name)
            relay.announce()
        self._attached.add(attachment)
        try:
            while (body := await read_message(reader)) is not None:
                attachment.take(decode_to_owner(body), relay)
        except msgspec.MsgspecError as error:
            self._log.warning("control_message_unreadable", peer_pid=pid, reason=str(error))
        finally:
            self._attached.discard(attachment)
            if attachment.is_served:
                relay.withdraw_all()
            await relay.finish()

    def _project_at(self, root: str) -> ProjectConfig:
        """The served project in a directory; PROJECT_UNKNOWN."""
        real = os.path.realpath(root)
        for project in self._state.instance.projects.values():
            if os.path.realpath(project.path) == real:
                return project
        raise MaadError("PROJECT_UNKNOWN", f"this server does not serve {real}")


def _refused(failure: MaadError | MaadErrors) -> Refused:
    return Refused([error.wire() for error in errors_of(failure)])


def _shutting_down() -> MaadError:
    return MaadError("SHUTTING_DOWN", "the server is shutting down")
