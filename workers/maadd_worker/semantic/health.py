"""The member `embeddings` of health (spec 02 §6.6)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import apsw

from maadd_worker.index.documents import read_meta
from maadd_worker.markdown.text import iso_milliseconds
from maadd_worker.semantic.layout import DIM_KEY, MODEL_KEY, has_vectors
from maadd_worker.semantic.queue import queue_state

NO_EMBEDDINGS: Mapping[str, Any] = MappingProxyType(
    {
        "enabled": False,
        "provider": None,
        "model": None,
        "dim": None,
        "vecReady": False,
        "queueDepth": 0,
        "embeddedBlocks": 0,
        "indexedBlocks": 0,
        "failures": 0,
        "failedBlocks": 0,
        "lastError": None,
        "lastSuccessAt": None,
        "oldestQueuedAt": None,
    }
)
"""A project without a semantic index."""


def no_embeddings() -> dict[str, Any]:
    """The report of a project without a semantic index."""
    return dict(NO_EMBEDDINGS)


def embeddings_health(connection: apsw.Connection) -> dict[str, Any]:
    """What the tables say; the rest is for the caller to fill in."""
    dim = read_meta(connection, DIM_KEY)
    queue = queue_state(connection)
    embedded = 0
    if has_vectors(connection):
        embedded = connection.execute("SELECT count(*) FROM vec_bits").get
    return {
        **NO_EMBEDDINGS,
        "enabled": True,
        "model": read_meta(connection, MODEL_KEY),
        "dim": None if dim is None else int(dim),
        "queueDepth": queue.depth,
        "embeddedBlocks": embedded,
        "indexedBlocks": connection.execute(
            "SELECT coalesce(sum(blocks), 0) FROM semantic_docs"
        ).get,
        "failedBlocks": queue.failed,
        "oldestQueuedAt": iso_time(queue.oldest_queued_ms),
    }


def iso_time(milliseconds: int | None) -> str | None:
    """Milliseconds since 1970 as an ISO-8601 time."""
    if milliseconds is None:
        return None
    return iso_milliseconds(dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC))
