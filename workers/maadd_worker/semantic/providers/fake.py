"""The provider `fake`: hashed words, for tests and for trying things out (spec 02 §6.2)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from maadd_worker.semantic.providers.embedder import Kind

_WORD = re.compile(r"[^\W_]+")
_OFFSET = 0x811C9DC5
_PRIME = 0x01000193


class FakeEmbedder:
    """Deterministic and without a model: texts that share words are near each other."""

    id = "fake"
    model = "fake-hash"

    def __init__(self, dim: int = 64) -> None:
        self.dim = dim

    def embed(self, texts: Sequence[str], kind: Kind) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dim
        for word in _WORD.findall(text.lower()):
            number = word_hash(word)
            vector[number % self.dim] += -1.0 if number & 1 else 1.0
        length = math.sqrt(sum(value * value for value in vector))
        if length == 0.0:
            vector[0] = length = 1.0
        return [value / length for value in vector]


def word_hash(word: str) -> int:
    """FNV-1a of 32 bits over the UTF-16 code units of the word."""
    number = _OFFSET
    units = word.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(units), 2):
        number = (number ^ int.from_bytes(units[place : place + 2], "little")) * _PRIME
        number &= 0xFFFFFFFF
    return number
