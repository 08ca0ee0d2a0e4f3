"""The provider `openai`: any endpoint that speaks OpenAI's embeddings (spec 02 §6.2)."""

from __future__ import annotations

import datetime as dt
import email.utils
import importlib.util
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from maadd_worker.semantic.providers.deadline import Line
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
_DOCUMENTS_S = 30.0
_CONNECT_S = 10.0
_SHOWN_BODY = 300
_BYTES_PER_NUMBER = 64
_BYTES_PER_TEXT = 1024
_SLACK_BYTES = 65_536
_REJECTIONS = (400, 413, 422)
"""Answers that say something about the texts; all others are about the service or the key."""


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


class _Reply(msgspec.Struct, frozen=True):
    """An answer that was read to its end."""

    status: int
    headers: Any
    body: bytes


class OpenAIEmbedder:
    """Sends texts to `<base url>/v1/embeddings` with a key, which no error shows. A request ends
    with its time, and with an answer that is larger than vectors can be."""

    id = "openai"

    def __init__(
        self,
        base_url: str,
        key: str | None,
        model: str | None = None,
        dim: int | None = None,
        *,
        query_timeout_s: float = _DOCUMENTS_S,
        document_timeout_s: float = _DOCUMENTS_S,
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
        self._clients = {
            "query": _Client(key, query_timeout_s),
            "document": _Client(key, document_timeout_s),
        }

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
        most = len(texts) * (self.dim * _BYTES_PER_NUMBER + _BYTES_PER_TEXT) + _SLACK_BYTES
        reply = self._clients[kind].post(self._url, request, most)
        if reply.status in _REJECTIONS:
            raise TextRejected(self._refusal(reply))
        if not 200 <= reply.status < 300:
            raise ProviderUnavailable(self._refusal(reply), _retry_after(reply.headers))
        return self._vectors(reply.body, len(texts))

    def _refusal(self, reply: _Reply) -> str:
        shown = reply.body.decode("utf-8", "replace").replace(self._key, "[redacted]")
        return f"status {reply.status}: {shown[:_SHOWN_BODY]}"

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


class _Client:
    """One request at a time over one connection, which is kept between them."""

    def __init__(self, key: str, limit_s: float) -> None:
        self._key = key
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._line = Line()
        self._client: Any = None

    def post(self, url: str, request: dict[str, Any], most: int) -> _Reply:
        """The answer; ProviderUnavailable without a whole one in time, or above `most` bytes."""
        import httpx

        with self._lock:
            try:
                with self._line.limit(self._limit_s):
                    reply = self._exchange(url, request, most)
            except (httpx.HTTPError, OSError) as error:
                if self._line.is_over:
                    raise self._too_late() from error
                # The text of these errors may hold the address, never a header or a body.
                raise ProviderUnavailable(f"no answer ({type(error).__name__})") from error
            if self._line.is_over:
                # An answer without a length ends with its connection, as if it were whole.
                raise self._too_late()
            return reply

    def _too_late(self) -> ProviderUnavailable:
        return ProviderUnavailable(f"no answer within {self._limit_s:g} s")

    def _exchange(self, url: str, request: dict[str, Any], most: int) -> _Reply:
        sent = self._connected().stream(
            "POST", url, json=request, extensions={"trace": self._line.trace}
        )
        with sent as answer:
            body = bytearray()
            for part in answer.iter_bytes():
                body += part
                if len(body) > most:
                    raise ProviderUnavailable(f"an answer of more than {most} bytes")
            return _Reply(answer.status_code, answer.headers, bytes(body))

    def _connected(self) -> Any:
        import httpx

        if self._client is None:
            self._client = httpx.Client(
                # Packed, a few bytes could become more than the limit at once.
                headers={"Authorization": f"Bearer {self._key}", "Accept-Encoding": "identity"},
                timeout=httpx.Timeout(self._limit_s, connect=min(self._limit_s, _CONNECT_S)),
                limits=httpx.Limits(max_connections=1),
            )
        return self._client


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
