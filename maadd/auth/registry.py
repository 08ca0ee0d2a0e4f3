"""The token registry in memory, kept in step with tokens.yaml (spec 04 §7.2, §7.3).

Reads never touch the disk. Every change locks the file, re-reads it, applies itself to the
fresh content and replaces the file in one step, so changes of other processes are never
lost; it may wait seconds for the lock and belongs on a thread. The view is one object
swapped at once, so a reader sees the registry before a change or after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from maadd.auth.bearer import PLAINTEXT, Authentication, bearer_text
from maadd.auth.issue import TokenSpec
from maadd.auth.permissions import loose_permissions
from maadd.auth.record import (
    ANY_PROJECT,
    TokenRecord,
    expiry_of,
    hash_plaintext,
    new_plaintext,
    new_token_id,
    token_state,
)
from maadd.auth.scope import Requester, check_reach, live_requester, sees
from maadd.auth.timestamps import format_timestamp, parse_timestamp
from maadd.auth.tokens_document import (
    EMPTY_DOCUMENT,
    TokensDocument,
    with_issued,
    with_revoked,
)
from maadd.auth.tokens_file import (
    LOCK_WAIT_S,
    FileStamp,
    StoredTokens,
    file_stamp,
    read_tokens,
    registry_lock,
    write_tokens,
)
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role

Death = Literal["removed", "revoked", "expired"]

_MISSING = Authentication(failure="missing")
_MALFORMED = Authentication(failure="malformed")
_UNKNOWN = Authentication(failure="unknown")

T = TypeVar("T")


class IssuedToken(msgspec.Struct, frozen=True):
    """A fresh token; `plaintext` exists only here and is shown once. The repr leaves it out."""

    plaintext: str
    record: TokenRecord

    def __repr__(self) -> str:
        return f"IssuedToken({self.record!r})"


class RegistryCounts(msgspec.Struct, frozen=True):
    """How many tokens are registered, and how many of them count."""

    total: int
    active: int


class _Entry(msgspec.Struct, frozen=True):
    """A record with what authentication needs ready-made."""

    record: TokenRecord
    expiry: float
    answer: Authentication


class _View(msgspec.Struct, frozen=True):
    present: bool
    by_hash: dict[str, _Entry]
    by_id: dict[str, TokenRecord]


class TokenRegistry:
    """The tokens of one instance."""

    def __init__(self, path: str, *, lax_permissions: bool, lock_wait_s: float) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._lax_permissions = lax_permissions
        self._lock_wait_s = lock_wait_s
        self._view = _view_of(StoredTokens(EMPTY_DOCUMENT, None))
        self._seen: FileStamp | None = None
        self._swap = threading.Lock()

    @classmethod
    def load(
        cls, path: str, *, lax_permissions: bool = False, lock_wait_s: float = LOCK_WAIT_S
    ) -> TokenRegistry:
        """The registry at `path`; an absent file is an empty registry.

        Raises TOKENS_FILE_INVALID, also when others can get at the file, unless
        `lax_permissions`: then `warnings` says so.
        """
        registry = cls(path, lax_permissions=lax_permissions, lock_wait_s=lock_wait_s)
        registry.reload()
        return registry

    @property
    def present(self) -> bool:
        """Whether there was a file when it was last read."""
        return self._view.present

    def records(self) -> tuple[TokenRecord, ...]:
        """All records in the order of the file."""
        return tuple(self._view.by_id.values())

    def find(self, token_id: str) -> TokenRecord | None:
        """The record with that id."""
        return self._view.by_id.get(token_id)

    def counts(self, now: float | None = None) -> RegistryCounts:
        """Registered and active tokens at `now` (epoch seconds)."""
        moment = time.time() if now is None else now
        records = self._view.by_id.values()
        active = sum(token_state(record, moment) == "active" for record in records)
        return RegistryCounts(len(records), active)

    def authenticate(
        self, values: Sequence[bytes | str], now: float | None = None
    ) -> Authentication:
        """Judges the values of all `Authorization` headers of one request (spec 04 §9.3)."""
        text = bearer_text(values)
        if text is None:
            return _MISSING
        if PLAINTEXT.fullmatch(text) is None:
            return _MALFORMED
        entry = self._view.by_hash.get(hash_plaintext(text))
        if entry is None:
            return _UNKNOWN
        if entry.answer.token is not None and entry.expiry < (time.time() if now is None else now):
            return Authentication(failure="expired", token_id=entry.record.id)
        return entry.answer

    def death_of(self, token: TokenRecord, now: float | None = None) -> Death | None:
        """Why a session of `token` must end: its live record is gone, revoked or expired."""
        live = self._view.by_id.get(token.id)
        if live is None or live.hash != token.hash:
            return "removed"
        state = token_state(live, time.time() if now is None else now)
        return None if state == "active" else state

    # A change by a `requester` is held to what its live token reaches (spec 04 §8.2):
    # TOKEN_NOT_FOUND for a target outside it, what `check_reach` and `live_requester` raise.
    # With `rehearse` all is judged and nothing written.

    def issue(
        self, spec: TokenSpec, *, requester: Requester | None = None, rehearse: bool = False
    ) -> IssuedToken:
        """Registers a new token; `check_issue` has judged `spec`.

        Raises TOKENS_FILE_BUSY or TOKENS_FILE_INVALID; nothing has changed then.
        """
        if spec.expires_at is not None:
            spec = msgspec.structs.replace(spec, expires_at=_canonical(spec.expires_at))

        def change(document: TokensDocument) -> tuple[TokensDocument, IssuedToken]:
            check_reach(live_requester(requester, document.records, time.time()), spec)
            issued = _new_token(spec, document)
            return with_issued(document, issued.record), issued

        return self._change(change, rehearse)

    def revoke(
        self,
        token_id: str,
        *,
        keep_last_admin: bool = False,
        requester: Requester | None = None,
        rehearse: bool = False,
    ) -> TokenRecord:
        """Revokes a token; doing so again changes nothing.

        Raises TOKEN_NOT_FOUND, and with `keep_last_admin` LAST_ADMIN_TOKEN when no other
        active token would hold admin on `*`.
        """

        def change(document: TokensDocument) -> tuple[TokensDocument, TokenRecord]:
            now = time.time()
            record = _find(document, token_id, live_requester(requester, document.records, now))
            if record.revoked_at is not None:
                return document, record
            if keep_last_admin and _is_last_admin(document, record, now):
                raise MaadError(
                    "LAST_ADMIN_TOKEN",
                    "this is the last active token with admin on every project; issue another "
                    "first",
                )
            revoked = with_revoked(document, token_id, format_timestamp(now))
            return revoked, _find(revoked, token_id)

        return self._change(change, rehearse)

    def rotate(
        self, token_id: str, *, requester: Requester | None = None, rehearse: bool = False
    ) -> IssuedToken:
        """Replaces a token by a new one with another id and revokes it, in one write.

        Raises TOKEN_NOT_FOUND, TOKEN_REVOKED, TOKEN_EXPIRED.
        """

        def change(document: TokensDocument) -> tuple[TokensDocument, IssuedToken]:
            now = time.time()
            acting = live_requester(requester, document.records, now)
            old = _find(document, token_id, acting)
            state = token_state(old, now)
            if state == "revoked":
                raise MaadError("TOKEN_REVOKED", f"token {token_id} is revoked; issue a new one")
            if state == "expired":
                raise MaadError("TOKEN_EXPIRED", f"token {token_id} has expired; issue a new one")
            spec = TokenSpec(
                old.role, old.projects, old.name, old.agent_id, old.user_id, old.expires_at
            )
            if acting is None or acting.token.id != token_id:
                check_reach(acting, spec)
            issued = _new_token(spec, document)
            revoked = with_revoked(document, token_id, format_timestamp(now))
            return with_issued(revoked, issued.record), issued

        return self._change(change, rehearse)

    def changed_on_disk(self) -> bool:
        """Whether the file is another than the one last read, loaded or refused."""
        return file_stamp(self.path) != self._seen

    def reload(self) -> RegistryCounts:
        """Reads the file again; a vanished one empties the registry.

        Raises TOKENS_FILE_INVALID and keeps the tokens it had.
        """
        while True:
            before = self._view
            self._seen = file_stamp(self.path)
            if self._seen is not None:
                self._check_permissions()
            stored = read_tokens(self.path)
            if self._adopt(stored, only_over=before):
                return self.counts()

    def _change(
        self, change: Callable[[TokensDocument], tuple[TokensDocument, T]], rehearse: bool
    ) -> T:
        self._check_permissions()
        if rehearse:
            return change(read_tokens(self.path).document)[1]
        with registry_lock(self.path, self._lock_wait_s):
            stored = read_tokens(self.path)
            document, result = change(stored.document)
            if document is not stored.document:
                stored = StoredTokens(document, write_tokens(self.path, document))
            self._adopt(stored)
        return result

    def _adopt(self, stored: StoredTokens, *, only_over: _View | None = None) -> bool:
        """Swaps the view; a reload must not put an older content over a change made meanwhile."""
        with self._swap:
            if only_over is not None and self._view is not only_over:
                return False
            self._view = _view_of(stored)
            self._seen = stored.stamp
            return True

    def _check_permissions(self) -> None:
        loose = loose_permissions(self.path)
        if loose and not self._lax_permissions:
            raise MaadError(
                "TOKENS_FILE_INVALID",
                f"{'; '.join(loose)}, or set MAAD_AUTH_LAX_PERMS=1 to accept the risk",
            )
        self.warnings = loose


def token_not_found() -> MaadError:
    """The one answer for an unknown token and for one outside the caller's scope."""
    return MaadError("TOKEN_NOT_FOUND", "there is no token with that id")


def _view_of(stored: StoredTokens) -> _View:
    records = stored.document.records
    return _View(
        present=stored.stamp is not None,
        by_hash={record.hash: _entry(record) for record in records},
        by_id={record.id: record for record in records},
    )


def _entry(record: TokenRecord) -> _Entry:
    if record.revoked_at is None:
        answer = Authentication(token=record)
    else:
        answer = Authentication(failure="revoked", token_id=record.id)
    return _Entry(record, expiry_of(record), answer)


def _find(
    document: TokensDocument, token_id: str, requester: Requester | None = None
) -> TokenRecord:
    for record in document.records:
        if record.id == token_id and sees(requester, record):
            return record
    raise token_not_found()


def _new_token(spec: TokenSpec, document: TokensDocument) -> IssuedToken:
    taken = {record.id for record in document.records}
    token_id = new_token_id()
    while token_id in taken:
        token_id = new_token_id()
    plaintext = new_plaintext()
    record = TokenRecord(
        id=token_id,
        hash=hash_plaintext(plaintext),
        role=spec.role,
        projects=spec.projects,
        created_at=format_timestamp(time.time()),
        name=spec.name,
        agent_id=spec.agent_id,
        user_id=spec.user_id,
        expires_at=spec.expires_at,
    )
    return IssuedToken(plaintext, record)


def _canonical(expires_at: str) -> str:
    moment = parse_timestamp(expires_at)
    if moment is None:
        raise ValueError("an unparsable expiry passed the issue check")
    return format_timestamp(moment)


def _is_last_admin(document: TokensDocument, record: TokenRecord, now: float) -> bool:
    holders = [
        other.id
        for other in document.records
        if token_state(other, now) == "active" and _holds_admin_everywhere(other)
    ]
    return holders == [record.id]


def _holds_admin_everywhere(record: TokenRecord) -> bool:
    return record.role is Role.ADMIN and any(
        grant.name == ANY_PROJECT and grant.role in (None, Role.ADMIN) for grant in record.projects
    )
