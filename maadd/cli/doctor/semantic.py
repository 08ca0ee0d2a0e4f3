"""Whether semantic search has what the settings ask for (spec 02 §6)."""

from __future__ import annotations

from collections.abc import Iterator

from maadd.cli.doctor.check import Check, ok, problem, warning
from maadd.protocol.messages import EmbeddingSettings
from maadd_worker.semantic.providers.choose import make_embedder
from maadd_worker.semantic.providers.embedder import ProviderUnusable


def checks(settings: EmbeddingSettings) -> Iterator[Check]:
    """The provider of embeddings; nothing is sent to it."""
    if not settings.enable:
        yield ok("embeddings", "semantic search is off (MAAD_SEMANTIC_ENABLE)")
        return
    try:
        embedder = make_embedder(settings)
    except ProviderUnusable as failure:
        text, _, advice = str(failure).partition("; ")
        yield problem("embeddings", text, advice or "set MAAD_EMBED_PROVIDER to one that works")
        return
    if embedder is None:
        advice = "set MAAD_EMBED_PROVIDER, for example to local"
        yield warning("embeddings", "semantic search finds words only, no provider is set", advice)
    else:
        text = f"{settings.provider}: {embedder.model}, {embedder.dim} dimensions"
        yield ok("embeddings", text)
