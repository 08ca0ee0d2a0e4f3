"""Packed answers that are kept while a client fetches their pages (spec 05 §9.6)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from maadd.protocol.canonical_json import utf8_size

LIFETIME_MS = 300_000
MAX_PER_SESSION = 2
MAX_SNAPSHOTS = 16
MAX_BYTES = 8_388_608
_HASH_BYTES = 64


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True)
class Snapshot:
    """One packed answer. `units` is its text as UTF-16-LE, in which pages are counted.

    `digest` is that of the unpacked data, `observation` tells whether a fresh look still gives
    the same. `first_cap` is the budget it was begun under, `cap` the page size agreed then.
    """

    id: str
    epoch: int
    session_id: str
    tool: str
    parameters: str
    units: bytes
    total_bytes: int
    digest: str
    packed_digest: str
    observation: str
    expires_at: int
    cap: int
    first_cap: int
    issued: set[int] = field(default_factory=set)
    """The offsets that were given out as cursors."""

    @property
    def total_characters(self) -> int:
        """Its length in UTF-16 code units."""
        return len(self.units) // 2

    def chunk(self, start: int, end: int) -> str:
        """The text between two offsets; a half pair at either end stays one."""
        return self.units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")

    def splits_pair(self, at: int) -> bool:
        """Whether a cut at this offset would part the halves of one character."""
        if not 0 < at < self.total_characters:
            return False
        return self.units[2 * at - 1] & 0xFC == 0xD8 and self.units[2 * at + 1] & 0xFC == 0xDC


class Snapshots:
    """Bounded, in memory only. `forget_session` may be called from any thread."""

    def __init__(self, now_ms: Callable[[], int], new_id: Callable[[], str] = _new_id) -> None:
        self.now_ms = now_ms
        self.new_id = new_id
        self._lock = threading.Lock()
        self._kept: dict[str, Snapshot] = {}

    def find(self, snapshot_id: str, epoch: int) -> Snapshot | None:
        """The snapshot of this id, if it is still good."""
        with self._lock:
            self._prune(epoch)
            return self._kept.get(snapshot_id)

    def keep(self, snapshot: Snapshot) -> None:
        """Keep one more; the oldest go where there would be too many."""
        with self._lock:
            self._prune(snapshot.epoch)
            own = [s for s in self._kept.values() if s.session_id == snapshot.session_id]
            for old in own[: max(0, len(own) + 1 - MAX_PER_SESSION)]:
                del self._kept[old.id]
            self._kept[snapshot.id] = snapshot
            while len(self._kept) > MAX_SNAPSHOTS or self._bytes() > MAX_BYTES:
                del self._kept[next(iter(self._kept))]

    def drop(self, snapshot: Snapshot) -> None:
        """What it shows is no longer so."""
        with self._lock:
            self._kept.pop(snapshot.id, None)

    def forget_session(self, session_id: str) -> None:
        """Nobody will come for the pages of this session."""
        with self._lock:
            for kept in [s for s in self._kept.values() if s.session_id == session_id]:
                del self._kept[kept.id]

    def prune(self, epoch: int) -> None:
        """Drop what has expired, and what an earlier epoch of the engine left."""
        with self._lock:
            self._prune(epoch)

    def __len__(self) -> int:
        return len(self._kept)

    def _prune(self, epoch: int) -> None:
        now = self.now_ms()
        for old in [s for s in self._kept.values() if s.expires_at <= now or s.epoch != epoch]:
            del self._kept[old.id]

    def _bytes(self) -> int:
        return sum(kept.total_bytes + _HASH_BYTES for kept in self._kept.values())


def new_snapshot_units(packed: str) -> tuple[bytes, int]:
    """The UTF-16-LE form of a packed text and its size in UTF-8."""
    return packed.encode("utf-16-le"), utf8_size(packed)
