"""Retrieval over the texts of blocks (spec 02 §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.pages import list_matches
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.scope import Scope
from maadd_worker.semantic.block_store import ordinal_of
from maadd_worker.semantic.layout import ORDINAL_BITS, ORDINAL_MASK
from maadd_worker.semantic.ranking import Hit, Home, Ranking, collect, fuse
from maadd_worker.semantic.reads import SemanticReads
from maadd_worker.semantic.snippet import around_match
from maadd_worker.semantic.words import match_text, plain_form, query_words, wanted_forms

Mode = Literal["exact", "hybrid", "semantic"]
MODES: tuple[str, ...] = get_args(Mode)

_SCOPED_POOL = 1000
_LEAST_POOL = 50
_POOL_PER_HIT = 5
_LEAST_CANDIDATES = 1000
_CANDIDATES_PER_PLACE = 4
"""Blocks chosen by one bit for each dimension, for each place in the pool of the vector leg."""

_LISTED_FOR_WORDS = 2000
"""Records of a scope up to which listing them is cheaper than testing those that match."""

_SNIPPET_CHARS = 240


class Request(msgspec.Struct, frozen=True):
    """What is asked. `scoped` tells that the caller gave a scope, even an empty one."""

    query: str
    mode: str
    k: int
    snippet: bool
    scope: Scope
    scoped: bool
    fingerprint: str
    """Of the type of the scope."""


class Answer(msgspec.Struct, frozen=True):
    """The `data` of the tool, and its `_meta.degraded`."""

    data: dict[str, Any]
    degraded: str | None


class _Listed(msgspec.Struct, frozen=True):
    """A scope that is small enough to be looked through: the numbers of its records as JSON, and
    how many blocks they have."""

    numbers: str
    blocks: int


def search(
    reader: IndexReader, reads: SemanticReads, request: Request, look: Callable[[], None]
) -> Answer:
    """Answer a request inside a snapshot that begins with the first statement here.

    `look` is called while a provider is waited for; an exception from it ends that. Raises
    INVALID_MODE, SEMANTIC_DISABLED.
    """
    if request.mode not in MODES:
        raise MaadError(
            "INVALID_MODE", f'"{request.mode}" is no mode; use one of {", ".join(MODES)}'
        )
    query = request.query.strip()
    if not query:
        return Answer({"mode": request.mode, "total": 0, "results": []}, None)
    fallback: str | None = None
    vector: bytes | None = None
    if request.mode != "exact":
        # Before anything is read: a slow provider must not hold a snapshot of the index.
        vector, fallback = _query_vector(reads, query, look)
    return _Search(reader, reads, request, query).answer(vector, fallback)


def _query_vector(
    reads: SemanticReads, query: str, look: Callable[[], None]
) -> tuple[bytes | None, str | None]:
    if reads.queries is None or not reads.vectors:
        return None, "no_vector_provider"
    try:
        vector = reads.queries.embed(query, look)
    except MaadError:
        raise
    except Exception as error:
        # Providers are code of others; the answer says that it had to do without.
        reads.note_failure(error)
        return None, "embed_failed"
    if reads.is_closed():
        raise MaadError(
            "SEMANTIC_DISABLED",
            "the project was closed while the query was being embedded; ask again",
            {"retryable": True},
        )
    return vector, None


class _Search:
    """One search on one snapshot."""

    def __init__(
        self, reader: IndexReader, reads: SemanticReads, request: Request, query: str
    ) -> None:
        self._reader = reader
        self._connection = reader.connection
        self._reads = reads
        self._request = request
        words = query_words(query)
        self._match = match_text(words)
        self._wanted = wanted_forms(words)
        self._pool = max(_POOL_PER_HIT * request.k, _LEAST_POOL)
        self._listed = self._list_scope() if request.scoped else None

    def answer(self, vector: bytes | None, fallback: str | None) -> Answer:
        request = self._request
        semantic: Ranking | None = None
        crowded = False
        if vector is not None:
            try:
                semantic, crowded = self._semantic(vector)
            except apsw.InterruptError:
                raise
            except apsw.Error as error:
                self._reads.note_failure(error)
                fallback = "vec_search_failed"
        lexical: Ranking | None = None
        if request.mode != "semantic" or semantic is None:
            lexical = self._lexical()
        hits = fuse([one for one in (lexical, semantic) if one is not None])[: request.k]
        limitations = [fallback] if fallback is not None else []
        if lexical is not None and len(lexical.blocks) >= self._pool:
            limitations.append("lexical_candidate_pool_saturated")
        if request.mode != "exact" and self._is_pending():
            limitations.append("embeddings_pending")
        if crowded:
            limitations.append("vector_candidate_pool_saturated")
        degraded = fallback
        if degraded is None and crowded and request.scoped:
            degraded = "scope_truncated"
        data: dict[str, Any] = {
            "mode": request.mode,
            "total": len(hits),
            "results": self._views(hits, set() if lexical is None else set(lexical.blocks)),
        }
        if limitations:
            data["limitations"] = limitations
        if degraded is not None:
            data["degraded"] = degraded
        if request.mode != "exact" and self._listed is not None:
            data["coverage"] = {
                "eligibleBlocks": self._listed.blocks,
                "embeddedBlocks": self._embedded(self._listed),
            }
        return Answer(data, degraded)

    # -- the two legs --------------------------------------------------------------------

    def _lexical(self) -> Ranking:
        if not self._match:
            return Ranking((), {})
        if self._listed is not None:
            ranked = self._rows(_MATCHES_LISTED, (self._match, self._listed.numbers))
        else:
            ranked = self._rows(_MATCHES, (self._match,))
        return self._collect(ranked, self._pool)

    def _semantic(self, vector: bytes) -> tuple[Ranking, bool]:
        """The nearest blocks, and whether others in scope may have been crowded out."""
        exact_most = self._reads.exact_scope_max
        if self._listed is not None:
            ranked = self._rows(_NEAREST_LISTED, (vector, self._listed.numbers))
            return self._collect(ranked, self._pool), False
        if not self._reads.bits or self._is_small(exact_most):
            return self._collect(self._rows(_NEAREST, (vector,)), self._pool), False
        pool = _SCOPED_POOL if self._request.scoped else self._pool
        candidates = max(_LEAST_CANDIDATES, _CANDIDATES_PER_PLACE * pool)
        bits: bytes = self._connection.execute(_BITS, (vector,)).get
        nearest = self._rows(_NEAREST_BY_BITS, (vector, bits, candidates, pool)).fetchall()
        crowded = len(nearest) >= pool
        return self._collect(nearest, pool), crowded

    def _rows(self, sql: str, params: Sequence[Any]) -> Any:
        return self._connection.execute(sql, tuple(params))

    def _collect(self, ranked: Iterable[tuple[int, float]], pool: int) -> Ranking:
        return collect(ranked, self._homes, _doc_no, pool, self._request.k)

    def _homes(self, numbers: Sequence[int]) -> dict[int, Home]:
        """The records in scope among some numbers."""
        rows = self._rows(self._scoped(_HOMES), (_json(numbers), *self._request.scope.params))
        return {doc_no: Home(doc_id, doc_type) for doc_no, doc_id, doc_type in rows}

    # -- the scope -----------------------------------------------------------------------

    def _list_scope(self) -> _Listed | None:
        """The records of a small scope; None for one with more blocks than the setting says."""
        scope = self._request.scope
        if not scope.conditions and self._is_everything(scope.doc_type):
            return None
        exact = self._request.mode == "exact"
        most = self._reads.exact_scope_max
        doc_ids = list_matches(
            self._reader, scope, self._request.fingerprint, _LISTED_FOR_WORDS if exact else most
        )
        if doc_ids is None:
            return None
        listing = msgspec.json.encode(doc_ids).decode()
        rows = self._rows(_NUMBERS, (listing,)).fetchall()
        blocks = sum(number for _, number in rows)
        if not exact and blocks > most:
            return None
        return _Listed(_json([no for no, _ in rows]), blocks)

    def _is_everything(self, doc_type: str | None) -> bool:
        """Whether there are no records but those of the type."""
        documents = self._reader.counters().documents_by_type
        return doc_type is None or documents.get(doc_type, 0) == sum(documents.values())

    def _scoped(self, sql: str) -> str:
        return f"{sql} WHERE {self._request.scope.sql}"

    def _is_small(self, most: int) -> bool:
        """Whether all vectors of the project are few enough to be compared one by one."""
        return bool(self._rows(_AT_MOST, (most + 1,)).fetchone()[0] <= most)

    def _is_pending(self) -> bool:
        """Whether a block in scope waits for its vector."""
        if self._listed is not None:
            found = self._rows(_PENDING_LISTED, (self._listed.numbers,))
        elif self._request.scoped:
            found = self._rows(
                f"{self._scoped(_PENDING_SCOPED)} LIMIT 1", self._request.scope.params
            )
        else:
            found = self._rows("SELECT 1 FROM embed_queue LIMIT 1", ())
        return found.fetchone() is not None

    def _embedded(self, listed: _Listed) -> int:
        if not self._reads.vectors:
            return 0
        return int(self._rows(_EMBEDDED_LISTED, (listed.numbers,)).get)

    # -- the page ------------------------------------------------------------------------

    def _views(self, hits: Sequence[Hit], matched: set[int]) -> list[dict[str, Any]]:
        views = []
        for hit in hits:
            heading, text = self._rows(_TEXT, (hit.block,)).fetchone()
            snippet = ""
            if self._request.snippet:
                if hit.block in matched:
                    snippet = around_match(text, self._wanted)
                else:
                    snippet = _beginning(plain_form(text))
            views.append(
                {
                    "docId": hit.home.doc_id,
                    "docType": hit.home.doc_type,
                    "blockOrd": ordinal_of(hit.block),
                    "heading": plain_form(heading),
                    "score": hit.score,
                    "snippet": snippet,
                }
            )
        return views


def _doc_no(block: int) -> int:
    return block >> ORDINAL_BITS


def _beginning(text: str) -> str:
    """The text in one line, at most `_SNIPPET_CHARS` long."""
    line = " ".join(text.split())
    return line if len(line) <= _SNIPPET_CHARS else f"{line[: _SNIPPET_CHARS - 1]}…"


def _json(numbers: Sequence[int]) -> str:
    return msgspec.json.encode(numbers).decode()


_RANGE = f"BETWEEN i.value << {ORDINAL_BITS} AND i.value << {ORDINAL_BITS} | {ORDINAL_MASK}"

# Ordered by its column `rank`, FTS5 would sort by itself, slower, and rank what is out of scope.
_MATCHES = """
SELECT rowid, bm25(fts_blocks) AS r FROM fts_blocks WHERE fts_blocks MATCH ? ORDER BY r
"""
_MATCHES_LISTED = f"""
SELECT rowid, bm25(fts_blocks) AS r FROM fts_blocks
WHERE fts_blocks MATCH ? AND rowid >> {ORDINAL_BITS} IN (SELECT value FROM json_each(?))
ORDER BY r
"""
_TEXT = "SELECT heading, text FROM block_text WHERE block = ?"
_NEAREST = "SELECT block, vec_distance_l2(embedding, ?) AS d FROM vec_blocks ORDER BY d"
_NEAREST_LISTED = f"""
SELECT v.block, vec_distance_l2(v.embedding, ?) AS d
FROM json_each(?) i CROSS JOIN vec_blocks v ON v.block {_RANGE} ORDER BY d
"""
_BITS = "SELECT vec_quantize_binary(?)"
_NEAREST_BY_BITS = """
SELECT v.block, vec_distance_l2(v.embedding, ?1) AS d
FROM (SELECT block FROM vec_bits
      ORDER BY vec_distance_hamming(vec_bit(bits), vec_bit(?2)) LIMIT ?3) n
CROSS JOIN vec_blocks v ON v.block = n.block ORDER BY d, v.block LIMIT ?4
"""
_HOMES = """
SELECT s.doc_no, d.doc_id, d.doc_type FROM json_each(?) i
CROSS JOIN semantic_docs s ON s.doc_no = i.value CROSS JOIN documents d ON d.doc_id = s.doc_id
"""
_NUMBERS = """
SELECT s.doc_no, s.blocks FROM json_each(?) i CROSS JOIN semantic_docs s ON s.doc_id = i.value
"""
_AT_MOST = "SELECT count(*) FROM (SELECT 1 FROM vec_blocks LIMIT ?)"
_PENDING_LISTED = f"""
SELECT 1 FROM json_each(?) i CROSS JOIN embed_queue q ON q.block {_RANGE} LIMIT 1
"""
_PENDING_SCOPED = f"""
SELECT 1 FROM embed_queue q CROSS JOIN semantic_docs s ON s.doc_no = q.block >> {ORDINAL_BITS}
CROSS JOIN documents d ON d.doc_id = s.doc_id
"""
_EMBEDDED_LISTED = f"""
SELECT count(*) FROM json_each(?) i CROSS JOIN vec_blocks v ON v.block {_RANGE}
"""
