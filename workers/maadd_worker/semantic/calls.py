"""Calls of a provider that end in time, whatever the provider does (spec 02 §5.5, §6.5)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from maadd_worker.semantic.providers.embedder import (
    Embedder,
    Kind,
    ProviderUnavailable,
    Vector,
    packed,
)

_LOOK_S = 0.05
_KEPT_QUERIES = 256


class _Call:
    """One call on a thread of its own, which an end of the waiting leaves behind."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.vectors: Sequence[Vector] = ()
        self.error: BaseException | None = None


class BoundedCalls:
    """One call at a time. A call that was given up keeps its place until it ends: a provider
    that hangs is not asked again meanwhile."""

    def __init__(self, embedder: Embedder, timeout_s: float) -> None:
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._place = threading.Semaphore()

    def embed(self, texts: Sequence[str], kind: Kind, look: Callable[[], None]) -> list[bytes]:
        """The vectors of the texts as float32 bytes.

        Raises what the provider raises, and ProviderUnavailable once the time is over. `look`
        is called now and then; an exception from it ends the waiting.
        """
        end = time.monotonic() + self._timeout_s
        while not self._place.acquire(timeout=_LOOK_S):
            look()
            if time.monotonic() > end:
                raise ProviderUnavailable("an earlier request has not ended yet")
        call = _Call()
        threading.Thread(
            target=self._run, args=(call, list(texts), kind), name="embedding", daemon=True
        ).start()
        while not call.ended.wait(min(_LOOK_S, max(0.0, end - time.monotonic()))):
            look()
            if time.monotonic() >= end:
                raise ProviderUnavailable(f"no answer within {self._timeout_s:g} s")
        if call.error is not None:
            raise call.error
        return packed(call.vectors, len(texts), self._embedder.dim)

    def _run(self, call: _Call, texts: list[str], kind: Kind) -> None:
        try:
            call.vectors = self._embedder.embed(texts, kind)
        except BaseException as error:
            call.error = error
        finally:
            self._place.release()
            call.ended.set()


class QueryVectors:
    """The vectors of queries, the latest of them kept; for several threads."""

    def __init__(self, embedder: Embedder, timeout_s: float) -> None:
        self.embedder = embedder
        self._calls = BoundedCalls(embedder, timeout_s)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def embed(self, text: str, look: Callable[[], None]) -> bytes:
        """The vector of a query; raises as `BoundedCalls.embed`."""
        with self._lock:
            known = self._kept.get(text)
            if known is not None:
                self._kept.move_to_end(text)
                return known
        [vector] = self._calls.embed([text], "query", look)
        with self._lock:
            self._kept[text] = vector
            if len(self._kept) > _KEPT_QUERIES:
                self._kept.popitem(last=False)
        return vector
