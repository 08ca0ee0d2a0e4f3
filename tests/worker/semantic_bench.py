"""Providers that misbehave on demand, and projects with a semantic index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from maadd.protocol.messages import EmbeddingSettings
from maadd_worker.semantic.providers.embedder import Kind, Vector
from maadd_worker.semantic.providers.fake import FakeEmbedder

ON = EmbeddingSettings(enable=True)
FAKE = EmbeddingSettings(enable=True, provider="fake")


class Provider:
    """The fake provider, with what a test wants to happen before each call of `embed`."""

    id = "injected"

    def __init__(self, dim: int = 64, model: str = "test") -> None:
        self.model = model
        self.dim = dim
        self.asked: list[tuple[Kind, tuple[str, ...]]] = []
        self.before: Callable[[Sequence[str]], None] = lambda texts: None
        self.after: Callable[[list[Vector]], list[Vector]] = lambda vectors: vectors
        self._fake = FakeEmbedder(dim)

    def embed(self, texts: Sequence[str], kind: Kind) -> list[Vector]:
        self.asked.append((kind, tuple(texts)))
        self.before(texts)
        return self.after(list(self._fake.embed(texts, kind)))

    def documents(self) -> list[str]:
        """Every text that was to become the vector of a block, in order."""
        return [text for kind, texts in self.asked if kind == "document" for text in texts]


class Woken:
    """The writer of an engine that embeds: `settle` is called whenever it is asked for."""

    def __init__(self, project: Any) -> None:
        self._project = project
        self._event = threading.Event()
        project.engine.connect_wake(self._event.set)

    def until(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Serve until health says so; its member `embeddings`."""
        for _ in range(2000):
            self._project.engine.settle(True)
            health: dict[str, Any] = self._project.ok("maad_health")["embeddings"]
            if done(health):
                return health
            self._event.wait(0.01)
            self._event.clear()
        raise AssertionError(health)

    def drain(self) -> dict[str, Any]:
        """Serve until nothing is queued."""
        return self.until(lambda health: health["queueDepth"] == 0)


def search(project: Any, query: str, mode: str = "exact", **args: Any) -> Any:
    """The data of a search."""
    return project.ok("maad_semantic_search", query=query, mode=mode, **args)


def found(project: Any, query: str, mode: str = "exact", **args: Any) -> list[str]:
    """The ids that a search finds, best first."""
    return [hit["docId"] for hit in search(project, query, mode, **args)["results"]]


def ship(project: Any, doc_id: str, body: str, **fields: Any) -> None:
    """Create a record."""
    project.ok(
        "maad_create", docType="ship", docId=doc_id, fields={"name": doc_id, **fields}, body=body
    )
