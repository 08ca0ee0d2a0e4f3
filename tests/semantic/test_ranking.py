"""Fusion and the roll-up to records (spec 02 §5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from maadd_worker.semantic.ranking import Home, Ranking, collect, fuse

HOMES = {number: Home(f"doc-{number}", "note") for number in range(1, 10)}


def homes_of(numbers: Sequence[int]) -> dict[int, Home]:
    return {number: HOMES[number] for number in numbers if number in HOMES}


def ranking(*blocks: int) -> Ranking:
    """Blocks are numbered by record and place: 31 is the second block of record 3."""
    return Ranking(blocks, {block: HOMES[block // 10] for block in blocks})


def gather(ranked: list[tuple[int, float]], pool: int, documents: int) -> tuple[int, ...]:
    return collect(ranked, homes_of, lambda block: block // 10, pool, documents).blocks


def test_the_first_of_one_list_has_a_known_score() -> None:
    [hit] = fuse([ranking(10)])
    assert hit.score == pytest.approx(0.01639344262295082, abs=1e-18)


def test_ranks_of_both_lists_add_up() -> None:
    best = fuse([ranking(10, 20, 30), ranking(40, 50, 10)])[0]
    assert best.block == 10
    assert best.score == pytest.approx(0.032266458495966696, abs=1e-18)


def test_a_record_has_the_score_of_its_best_block_not_the_sum() -> None:
    hits = fuse([ranking(10, 11, 12, 20)])
    assert [hit.block for hit in hits] == [10, 20]
    assert hits[0].score == 1 / 61


def test_equal_scores_are_ordered_by_id() -> None:
    assert [hit.home.doc_id for hit in fuse([ranking(30), ranking(10)])] == ["doc-1", "doc-3"]


def test_equal_values_are_ordered_by_id_and_block_whatever_the_order() -> None:
    ranked = [(30, -2.0), (21, -1.0), (11, -1.0), (20, -1.0), (10, -1.0)]
    assert gather(ranked, 3, 1) == (30, 10, 11)
    assert gather([ranked[0], *reversed(ranked[1:])], 3, 1) == (30, 10, 11)


def test_what_is_out_of_scope_takes_no_place() -> None:
    assert gather([(990, -9.0), (10, -2.0), (980, -1.5), (20, -1.0)], 2, 1) == (10, 20)


def test_many_blocks_of_one_record_do_not_crowd_others_out() -> None:
    ranked = [(10 + place, -100.0 + place) for place in range(9)]
    ranked += [(20, -3.0), (21, -2.5), (30, -2.0), (40, -1.0)]
    assert gather(ranked, 4, 3) == (10, 11, 12, 13, 20, 30)


def test_a_long_ranking_is_read_no_further_than_needed() -> None:
    def endless():  # type: ignore[no-untyped-def]
        value = 0.0
        while True:
            value += 1.0
            yield 10 + int(value) % 9, value

    assert len(gather(endless(), 50, 1)) == 50
