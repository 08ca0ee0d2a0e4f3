"""What the history step is asked for and what it answers (spec 03 §2.3, §7.3, §9.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import msgspec

_NO_CONTENTS: Mapping[str, bytes | None] = MappingProxyType({})
_NO_MOVES: Mapping[str, str] = MappingProxyType({})

EXTERNAL = "external"
"""The detail of edits made by others."""


class CommitIdentity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who made a write; members that are not known are None and left out of the message."""

    role: str | None = None
    token_id: str | None = None
    agent_id: str | None = None
    user_id: str | None = None


class LogicalWrite(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One of several writes that share a commit; becomes a `Maad-Write:` trailer. With `paths`
    only if the commit changes one of them: somebody else may have committed it before."""

    action: str
    doc_id: str
    doc_type: str
    detail: str = ""
    identity: CommitIdentity | None = None
    paths: tuple[str, ...] = ()


class CommitRequest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The history step of one logical write (a bulk call is one).

    `paths` are the project-relative files added, changed or removed. `contents` holds what
    was published for a path, None for "removed"; a path that is not in it is read from the
    disk when the commit is made. `writes` lists the members of a bulk call. `moves` are the
    paths that hand moves of its records have to do with, each with the id of the record that
    the index has there, "" for none: see `settle_moves`.
    """

    action: str
    doc_id: str
    doc_type: str
    detail: str
    summary: str
    paths: tuple[str, ...]
    identity: CommitIdentity | None = None
    journal_ids: tuple[str, ...] = ()
    contents: Mapping[str, bytes | None] = _NO_CONTENTS
    writes: tuple[LogicalWrite, ...] = ()
    moves: Mapping[str, str] = _NO_MOVES

    @property
    def write_count(self) -> int:
        """How many writes of records it stands for: a bulk of twelve counts twelve."""
        return max(1, len(self.journal_ids))


def without_unchanged(request: CommitRequest, changed: Set[str]) -> CommitRequest:
    """The request without those edits of others of which its commit would hold nothing; `changed`
    are the paths that differ from the parent."""
    writes = tuple(
        write for write in request.writes if not write.paths or not changed.isdisjoint(write.paths)
    )
    if len(writes) == len(request.writes) or not writes:
        return request
    first = writes[0]
    kind = request.detail.partition(":")[0]
    external = kind == EXTERNAL
    return msgspec.structs.replace(
        request,
        action=first.action,
        doc_id=first.doc_id,
        doc_type=first.doc_type,
        detail=f"{kind}:{len(writes)}",
        summary=external_summary(writes) if external else f"Flushed {len(writes)} writes",
        identity=first.identity,
        writes=writes,
    )


def external_summary(writes: Sequence[LogicalWrite]) -> str:
    """What a commit of edits of others says of itself."""
    return f"external edit of {', '.join(write.doc_id for write in writes)}"


class CommitFailure(msgspec.Struct, frozen=True):
    """Why a write has no commit yet: the `commit_failure` member of its answer."""

    code: str
    message: str
    action: str
    details: dict[str, Any] | None = None


class HistoryOutcome(msgspec.Struct, frozen=True):
    """The end of one history step.

    `outcome` is committed (with `sha`), pending, none or failed (with `failure`). `skipped`
    names files that Git cannot hold, each with the reason.
    """

    outcome: str
    sha: str | None = None
    failure: CommitFailure | None = None
    skipped: tuple[tuple[str, str], ...] = ()


class FlushReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer of `maad_flush` (spec 03 §6.4); `sha` only when something was committed."""

    effective_mode: str
    trigger: str
    status: str
    pending_writes: int
    flushed: bool
    sha: str | None = None


class GitFailure(Exception):
    """A history step that did not succeed, with a code of spec 03 §12 and its details.

    `timed_out` tells that a child had to be stopped, so that another try may take as long.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
        self.timed_out = timed_out

    @property
    def reason(self) -> str | None:
        return self.details.get("reason") if self.details else None


class _StoredRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """The part of a commit request that the journal keeps."""

    action: str
    doc_id: str
    doc_type: str
    detail: str
    summary: str
    paths: tuple[str, ...]
    identity: CommitIdentity | None = None
    writes: tuple[LogicalWrite, ...] = ()
    moves: Mapping[str, str] = _NO_MOVES


_stored_decoder = msgspec.json.Decoder(_StoredRequest)
_stored_encoder = msgspec.json.Encoder()


def encode_request(request: CommitRequest) -> str:
    """The JSON that a journal entry carries, without contents and journal ids."""
    stored = _StoredRequest(
        request.action,
        request.doc_id,
        request.doc_type,
        request.detail,
        request.summary,
        request.paths,
        request.identity,
        request.writes,
        dict(request.moves) if request.moves else _NO_MOVES,
    )
    return _stored_encoder.encode(stored).decode()


def decode_request(text: str, journal_ids: tuple[str, ...]) -> CommitRequest:
    """The request back from the journal; msgspec.MsgspecError when it is none."""
    stored = _stored_decoder.decode(text)
    return CommitRequest(
        stored.action,
        stored.doc_id,
        stored.doc_type,
        stored.detail,
        stored.summary,
        stored.paths,
        stored.identity,
        journal_ids,
        writes=stored.writes,
        moves=stored.moves,
    )
