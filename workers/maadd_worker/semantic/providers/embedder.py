"""What turns texts into vectors, and how it fails (spec 02 §6.2)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Literal, Protocol

Kind = Literal["document", "query"]

Vector = bytes | Sequence[float]
"""Numbers, or float32 values in little-endian bytes."""


class Embedder(Protocol):
    """A provider. Called from two threads at a time at most; calls may take long.

    Providers of other packages are made by an entry point of the group
    `maadd.embedding_providers`: a callable that takes the `EmbeddingSettings`. Heavy imports and
    weights should wait for the first call of `embed`.
    """

    @property
    def id(self) -> str:
        """Its name in health."""
        ...

    @property
    def model(self) -> str:
        """Vectors of different models are never compared."""
        ...

    @property
    def dim(self) -> int:
        """The width of every vector."""
        ...

    def embed(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:
        """One vector for each text, in order.

        Raises TextRejected when it is the texts that cannot be embedded, anything else when the
        provider does not work; ProviderUnavailable can tell when to ask again.
        """
        ...


class ProviderUnusable(Exception):
    """The settings do not make a provider; the text says what to change."""


class ProviderUnavailable(Exception):
    """The provider did not answer, or not as it should; no text is to blame."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TextRejected(Exception):
    """The provider works but refuses at least one of the texts."""


def packed(vectors: Sequence[Vector], count: int, dim: int) -> list[bytes]:
    """The vectors as float32 values in little-endian bytes; ProviderUnavailable unless there are
    `count` of them, each of `dim` finite numbers."""
    if len(vectors) != count:
        raise ProviderUnavailable(f"{len(vectors)} vectors for {count} texts")
    layout = struct.Struct(f"<{dim}f")
    return [_packed(vector, layout, dim) for vector in vectors]


def _packed(vector: Vector, layout: struct.Struct, dim: int) -> bytes:
    if isinstance(vector, bytes):
        if len(vector) != layout.size:
            raise ProviderUnavailable(f"a vector of {len(vector)} bytes instead of {layout.size}")
        data = vector
    else:
        if len(vector) != dim:
            raise ProviderUnavailable(f"a vector of width {len(vector)} instead of {dim}")
        try:
            data = layout.pack(*vector)
        except (struct.error, OverflowError, TypeError) as error:
            raise ProviderUnavailable("a vector holds something else than numbers") from error
    if not math.isfinite(sum(layout.unpack(data))):
        raise ProviderUnavailable("a vector holds a number that is not finite")
    return data
