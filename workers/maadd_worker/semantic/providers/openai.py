"""The provider `openai`: any endpoint that speaks OpenAI's embeddings (spec 02 §6.2)."""

from __future__ import annotations

import datetime as dt
import email.utils
import importlib.util
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from maadd_worker.semantic.providers.embedder import (
    Kind,
    ProviderUnavailable,
    ProviderUnusable,
    TextRejected,
)

DEFAULT_MODEL = "text-embedding-3-small"

_NATIVE_DIMS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
_SHORTENED = "text-embedding-3-"
_TIMEOUT_S = 30.0
_QUERY_TIMEOUT_S = 10.0
_CONNECT_S = 10.0
_SHOWN_BODY = 300
_BYTES_PER_NUMBER = 64
_BYTES_BESIDE = 65_536
_REJECTIONS = (400, 413, 422)
"""Answers that say something about the texts; all others are about the service or the key."""


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


class OpenAIEmbedder:
    """Sends texts to `<base url>/v1/embeddings` with a key, which no error shows."""

    id = "openai"

    def __init__(
        self, base_url: str, key: str | None, model: str | None = None, dim: int | None = None
    ) -> None:
        """ProviderUnusable without a key, and for a width that the model does not have."""
        if not key:
            raise ProviderUnusable("the provider openai needs MAAD_OPENAI_API_KEY")
        if importlib.util.find_spec("httpx") is None:
            raise ProviderUnusable(
                "the provider openai needs the package httpx; install the extra: "
                "pip install 'maadd[openai]'"
            )
        self.model = model or DEFAULT_MODEL
        self.dim, self._dimensions = _width(self.model, dim)
        self._url = f"{base_url.rstrip('/')}/v1/embeddings"
        self._key = key
        self._lock = threading.Lock()
        self._client: Any = None

    def embed(self, texts: Sequence[str], kind: Kind) -> list[list[float]]:
        if not texts:
            return []
        request: dict[str, Any] = {
            "model": self.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self._dimensions is not None:
            request["dimensions"] = self._dimensions
        limit_s = _TIMEOUT_S if kind == "document" else _QUERY_TIMEOUT_S
        cap = _BYTES_BESIDE + _BYTES_PER_NUMBER * self.dim * len(texts)
        answer, body = self._post(request, limit_s, cap)
        if answer.status_code in _REJECTIONS:
            raise TextRejected(self._refusal(answer, body))
        if not 200 <= answer.status_code < 300:
            raise ProviderUnavailable(self._refusal(answer, body), _retry_after(answer.headers))
        return self._vectors(body, len(texts))

    def _post(self, request: dict[str, Any], limit_s: float, cap: int) -> tuple[Any, bytes]:
        """The answer and its body of at most `cap` bytes, all of it within `limit_s` seconds or
        one silence of that length: an endpoint that trickles does not hold the caller."""
        import httpx

        end = time.monotonic() + limit_s
        timeout = httpx.Timeout(limit_s, connect=min(limit_s, _CONNECT_S))
        parts: list[bytes] = []
        size = 0
        try:
            with self._connected().stream(
                "POST", self._url, json=request, timeout=timeout
            ) as answer:
                for part in answer.iter_bytes():
                    size += len(part)
                    if size > cap:
                        raise ProviderUnavailable(f"an answer of more than {cap} bytes")
                    if time.monotonic() > end:
                        raise ProviderUnavailable(f"no whole answer within {limit_s:g} s")
                    parts.append(part)
                return answer, b"".join(parts)
        except httpx.HTTPError as error:
            # The text of these errors may hold the address, never a header or a body.
            raise ProviderUnavailable(f"no answer ({type(error).__name__})") from error

    def _connected(self) -> Any:
        import httpx

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(
                    headers={"Authorization": f"Bearer {self._key}"},
                    limits=httpx.Limits(max_connections=2),
                )
            return self._client

    def _refusal(self, answer: Any, body: bytes) -> str:
        text = body.decode(errors="replace").replace(self._key, "[redacted]")
        return f"status {answer.status_code}: {text[:_SHOWN_BODY]}"

    def _vectors(self, body: bytes, count: int) -> list[list[float]]:
        try:
            items = msgspec.json.decode(body, type=_Answer).data
        except msgspec.MsgspecError as error:
            raise ProviderUnavailable("the answer is not in OpenAI's form") from error
        if len(items) != count:
            raise ProviderUnavailable(f"{len(items)} vectors for {count} texts")
        placed: dict[int, list[float]] = {}
        for item in items:
            if not 0 <= item.index < count or item.index in placed:
                raise ProviderUnavailable(f"the index {item.index} is out of range or repeated")
            if len(item.embedding) != self.dim:
                raise ProviderUnavailable(
                    f"a vector of width {len(item.embedding)} instead of {self.dim}"
                )
            placed[item.index] = item.embedding
        return [placed[place] for place in range(count)]


def _width(model: str, dim: int | None) -> tuple[int, int | None]:
    """The width of the vectors, and what to ask for when that is less than the model's own."""
    native = _NATIVE_DIMS.get(model)
    if native is None:
        if dim is None:
            raise ProviderUnusable(
                f'the width of the model "{model}" is unknown; set MAAD_EMBED_DIM'
            )
        return dim, None
    if dim is None or dim == native:
        return native, None
    if dim > native:
        raise ProviderUnusable(f"MAAD_EMBED_DIM={dim} is above the width of {model} ({native})")
    if not model.startswith(_SHORTENED):
        raise ProviderUnusable(f"{model} has the width {native} and no other; unset MAAD_EMBED_DIM")
    return dim, dim


def _retry_after(headers: Any) -> float | None:
    """Seconds to wait, from `Retry-After`: a number or a date."""
    text = headers.get("retry-after")
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - dt.datetime.now(dt.UTC)).total_seconds())
