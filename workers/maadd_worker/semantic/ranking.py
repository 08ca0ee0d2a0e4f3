"""Ranked lists of blocks, and one list of records out of them (spec 02 §5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

RRF_CONSTANT = 60

_CHUNK = 200


class Home(msgspec.Struct, frozen=True):
    """The record that a block belongs to."""

    doc_id: str
    doc_type: str


class Place(msgspec.Struct, frozen=True):
    """A block in a ranking; `value` is less for better ones. The order of the members is that of
    places."""

    value: float
    doc_id: str
    block: int


class Ranking(msgspec.Struct, frozen=True):
    """The best blocks, best first, and the records they belong to by block."""

    blocks: tuple[int, ...]
    homes: dict[int, Home]


class Hit(msgspec.Struct, frozen=True):
    """A record with its best block."""

    home: Home
    block: int
    score: float


def collect(
    ranked: Iterable[tuple[int, float]],
    homes_of: Callable[[Sequence[int]], dict[int, Home]],
    doc_no_of: Callable[[int], int],
    pool: int,
    documents: int,
) -> Ranking:
    """The first `pool` blocks of a ranking whose records are in scope.

    `ranked` gives (block, value), best first; `homes_of` the records in scope among some
    numbers. Equal values are ordered by id of the record, then block, whatever order they come
    in. When these blocks belong to fewer than `documents` records, the best block of each
    further one follows, until there are so many.
    """
    places: list[Place] = []
    homes: dict[int, Home | None] = {}
    found: set[str] = set()
    last = 0.0
    for chunk in _chunks(iter(ranked)):
        new = list(dict.fromkeys(no for block, _ in chunk if (no := doc_no_of(block)) not in homes))
        inside = homes_of(new)
        homes.update((no, inside.get(no)) for no in new)
        for block, value in chunk:
            if len(places) >= pool and len(found) >= documents and value != last:
                return _cut(places, homes, doc_no_of, pool, documents)
            home = homes[doc_no_of(block)]
            if home is None:
                continue
            places.append(Place(value, home.doc_id, block))
            found.add(home.doc_id)
            last = value
    return _cut(places, homes, doc_no_of, pool, documents)


def fuse(rankings: Sequence[Ranking]) -> list[Hit]:
    """Reciprocal rank fusion of blocks; each record with its best one, best first."""
    scores: dict[int, float] = {}
    homes: dict[int, Home] = {}
    for ranking in rankings:
        homes |= ranking.homes
        for rank, block in enumerate(ranking.blocks, 1):
            scores[block] = scores.get(block, 0.0) + 1.0 / (RRF_CONSTANT + rank)
    best: dict[str, Hit] = {}
    for block, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
        best.setdefault(homes[block].doc_id, Hit(homes[block], block, score))
    return sorted(best.values(), key=lambda hit: (-hit.score, hit.home.doc_id))


def _cut(
    places: list[Place],
    homes: dict[int, Home | None],
    doc_no_of: Callable[[int], int],
    pool: int,
    documents: int,
) -> Ranking:
    places.sort(key=lambda place: (place.value, place.doc_id, place.block))
    kept = places[:pool]
    found = {place.doc_id for place in kept}
    for place in places[pool:]:
        if len(found) >= documents:
            break
        if place.doc_id not in found:
            found.add(place.doc_id)
            kept.append(place)
    blocks = tuple(place.block for place in kept)
    of_block = {block: home for block in blocks if (home := homes[doc_no_of(block)]) is not None}
    return Ranking(blocks, of_block)


def _chunks(ranked: Iterator[tuple[int, float]]) -> Iterator[list[tuple[int, float]]]:
    while chunk := [pair for _, pair in zip(range(_CHUNK), ranked, strict=False)]:
        yield chunk
