"""The provider `local`: the static word vectors of the package wordllama (spec 02 §6.2).

The weights lie in the package. They are read from its folder without importing it: its code
would look for missing files in the network and sets up logging for the whole process. A text is
the mean of the vectors of its tokens, in which the few most frequent tokens, such as articles,
count less. Only words are looked at, each by itself, so that the tokens of a word are found once.
"""

from __future__ import annotations

import importlib.util
import math
import re
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from maadd_worker.semantic.providers.embedder import Kind, ProviderUnusable

NATIVE_DIM = 256
DEFAULT_MODEL = "l2_supercat"

_NEEDED = ("numpy", "safetensors", "tokenizers")
_INSTALL = "install the extra: pip install 'maadd[local]'"
_WORD = re.compile(r"\w+")
_SPECIAL_TOKENS = 259
"""Control signs and single bytes; behind them tokens are numbered by frequency."""
_DAMPING = 0.01
"""A token of this frequency counts half."""
_EULER = 0.5772156649
_KNOWN_WORDS = 32_768


class LocalEmbedder:
    """Works offline and without a key. The weights are loaded by the first call."""

    id = "local"

    def __init__(self, folder: Path, model: str, dim: int) -> None:
        """`folder` holds `weights` and `tokenizers`, as the package does; ProviderUnusable when
        the model is not there or narrower than `dim`."""
        if dim > NATIVE_DIM:
            raise ProviderUnusable(
                f"MAAD_EMBED_DIM={dim} is above the width of the local model ({NATIVE_DIM})"
            )
        self._weights = folder / "weights" / f"{model}_{NATIVE_DIM}.safetensors"
        self._tokenizer_file = folder / "tokenizers" / f"{model}_tokenizer_config.json"
        for file in (self._weights, self._tokenizer_file):
            if not file.is_file():
                raise ProviderUnusable(
                    f"the local model needs the file {file}; check MAAD_EMBED_MODEL and "
                    "MAAD_EMBED_MODEL_PATH"
                )
        for name in _NEEDED:
            if importlib.util.find_spec(name) is None:
                raise ProviderUnusable(f"the provider local needs the package {name}; {_INSTALL}")
        self.model = model
        self.dim = dim
        self._lock = threading.Lock()
        self._model: _StaticModel | None = None

    def embed(self, texts: Sequence[str], kind: Kind) -> list[bytes]:
        with self._lock:
            if self._model is None:
                self._model = _StaticModel(self._weights, self._tokenizer_file, self.dim)
        return self._model.embed(texts)


def package_folder() -> Path:
    """The folder of the installed package; ProviderUnusable without it."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise ProviderUnusable(f"the provider local needs the package wordllama; {_INSTALL}")
    return Path(next(iter(found.submodule_search_locations)))


class _StaticModel:
    """The matrix of token vectors and the tokens of the words that were met lately."""

    def __init__(self, weights: Path, tokenizer_file: Path, dim: int) -> None:
        import numpy
        from safetensors import safe_open
        from tokenizers import Tokenizer

        self._numpy: Any = numpy
        self._tokenizer: Any = Tokenizer.from_file(str(tokenizer_file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        with safe_open(str(weights), framework="numpy") as tensors:
            matrix = tensors.get_tensor("embedding.weight")
        self._matrix: Any = numpy.ascontiguousarray(matrix[:, :dim], dtype=numpy.float32)
        # By Zipf's law the frequency of the nth token is 1/n of the sum of all these.
        common = len(self._matrix) - _SPECIAL_TOKENS
        frequencies = 1 / (numpy.arange(1, common + 1) * (math.log(common) + _EULER))
        counts = (_DAMPING / (_DAMPING + frequencies)).astype(numpy.float32)
        self._matrix[_SPECIAL_TOKENS:] *= counts[:, None]
        self._words: dict[str, Sequence[int]] = {}

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """The mean token vector of each text, of length one; that of a text without any token is
        the first unit vector."""
        numpy = self._numpy
        split = [_WORD.findall(text) for text in texts]
        known = self._with_tokens_of(set().union(*split))
        vectors = numpy.zeros((len(texts), self._matrix.shape[1]), dtype="<f4")
        for place, words in enumerate(split):
            tokens = numpy.fromiter(chain.from_iterable(map(known.__getitem__, words)), numpy.int32)
            if len(tokens):
                self._matrix.take(tokens, axis=0).sum(axis=0, out=vectors[place])
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        empty = lengths[:, 0] == 0
        vectors[empty, 0] = lengths[empty] = 1
        vectors /= lengths
        return [vector.tobytes() for vector in vectors]

    def _with_tokens_of(self, words: set[str]) -> dict[str, Sequence[int]]:
        """The tokens of words, of these among others."""
        known = self._words
        new = sorted(words.difference(known))
        if not new:
            return known
        if len(known) + len(new) > _KNOWN_WORDS:
            # Another thread may go on with the old one.
            known = self._words = {}
            new = sorted(words)
        encoded = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        for word, one in zip(new, encoded, strict=True):
            known[word] = one.ids
        return known
