"""What a search needs to know of the semantic index of a project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from maadd_worker.semantic.calls import QueryVectors


class SemanticReads(msgspec.Struct, frozen=True):
    """An index that can be asked. `vectors` tells that they can be compared, `bits` that there
    is one bit for each dimension too."""

    queries: QueryVectors | None
    vectors: bool
    bits: bool
    exact_scope_max: int
    """Blocks of a scope up to which all of its vectors are compared."""
    note_failure: Callable[[Exception], None]
    """Hears why a search had to do without vectors."""
    is_behind: Callable[[], bool]
    """Whether texts of records may still be missing."""
    is_closed: Callable[[], bool]
    health: Callable[[apsw.Connection], dict[str, Any]]
    """The member `embeddings` of health, asked on any connection."""

    @property
    def modes(self) -> list[str]:
        """The modes that work in full now."""
        if self.vectors and self.queries is not None:
            return ["exact", "hybrid", "semantic"]
        return ["exact"]
