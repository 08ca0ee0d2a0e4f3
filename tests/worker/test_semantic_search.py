"""`maad_semantic_search` on a real project (spec 02 §5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from semantic_bench import FAKE, ON, Provider, Woken, found, search, ship

from maadd_worker.semantic import service


@pytest.fixture
def words(open_project: Any) -> Any:
    """A project without a provider."""
    return open_project("feed", embedding=ON)


@pytest.fixture
def both(open_project: Any) -> Any:
    """A project with a provider, which has embedded three records."""
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "# Engine\n\nA diesel engine with a valve.\n\n## Deck\n\nTeak wood.")
    ship(project, "shp-b", "# Deck\n\nSteel deck, painted grey.", tonnage=7)
    ship(project, "shp-c", "Before any heading: a valve and a pump.", tonnage=9)
    Woken(project).drain()
    return project


def test_exact_mode_finds_words_and_shows_where(words: Any) -> None:
    ship(words, "shp-a", "# Top\n\n## Engine Room {#er}\n\nThe VALVE is open.\nNothing else.")
    reply = words.reply("maad_semantic_search", query="valve")
    assert msgspec.json.decode(reply.body) == {
        "mode": "exact",
        "total": 1,
        "results": [
            {
                "docId": "shp-a",
                "docType": "ship",
                "blockOrd": 1,
                "heading": "Engine Room",
                "score": pytest.approx(1 / 61),
                "snippet": "The VALVE is open.\nNothing else.",
            }
        ],
    }
    assert reply.meta == {"mode": "exact"}
    assert search(words, "valve", snippet=False)["results"][0]["snippet"] == ""


def test_a_word_of_the_heading_finds_the_block_too(words: Any) -> None:
    ship(words, "shp-a", "# Engine\n\nDiesel.")
    assert found(words, "engine") == ["shp-a"]


def test_a_long_text_is_cut_around_the_match(words: Any) -> None:
    filler = " ".join(f"w{number}" for number in range(100))
    ship(words, "shp-a", f"{filler} valve {filler}")
    [hit] = search(words, "valve")["results"]
    assert hit["snippet"].startswith("…")
    assert hit["snippet"].endswith("…")
    assert "valve" in hit["snippet"]
    assert len(hit["snippet"].split()) == 16


def test_a_word_at_the_end_of_a_large_body_is_found(words: Any) -> None:
    ship(words, "shp-a", "# Long\n\n" + "many words here " * 13_000 + "xylophone")
    assert found(words, "xylophone") == ["shp-a"]


def test_part_of_a_japanese_sentence_is_found_and_shown_as_written(words: Any) -> None:
    ship(words, "shp-a", "# 船の説明\n\nこの船は日本語で説明されています。")
    [hit] = search(words, "日本語で説明")["results"]
    assert (hit["heading"], hit["snippet"]) == (
        "船の説明",
        "この船は日本語で説明されています。",
    )


@pytest.mark.parametrize("query", ["A-1", "@x", "a AND", '"', "NEAR(", "*", "text: b", "'; DROP"])
def test_query_syntax_is_data(words: Any, query: str) -> None:
    ship(words, "shp-a", "nothing of this")
    assert search(words, query)["total"] == 0
    ship(words, "shp-b", f"this is {query} x, as written, drop")
    assert "shp-a" not in found(words, query)


@pytest.mark.parametrize("mode", ["exact", "semantic", "hybrid"])
def test_an_empty_query_finds_nothing_and_says_nothing(both: Any, mode: str) -> None:
    assert search(both, " \n ", mode) == {"mode": mode, "total": 0, "results": []}


def test_semantic_mode_asks_the_provider_once_and_remembers(both: Any) -> None:
    assert found(both, "pump valve", "semantic")[0] == "shp-c"
    assert found(both, " pump valve ", "hybrid")[0] == "shp-c"
    queries = [texts for kind, texts in both.embedder.asked if kind == "query"]
    assert queries == [("pump valve",)]


def test_exact_mode_never_asks_it(both: Any) -> None:
    both.embedder.asked.clear()
    assert set(found(both, "valve")) == {"shp-a", "shp-c"}
    assert both.embedder.asked == []


def test_a_hit_by_meaning_alone_shows_the_beginning_of_the_block(open_project: Any) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "# H\n\n" + "first  line\nand\tmore " * 30)
    Woken(project).drain()
    [hit] = search(project, "zebra", "semantic")["results"]
    assert len(hit["snippet"]) == 240
    assert hit["snippet"].startswith("first line and more first")
    assert hit["snippet"].endswith("…")


def test_hybrid_scores_add_up_over_both_lists(both: Any) -> None:
    [best, *_] = search(both, "pump", "hybrid")["results"]
    assert best["docId"] == "shp-c"
    assert best["score"] == pytest.approx(2 / 61)


def test_scopes_are_those_of_queries(both: Any) -> None:
    for mode in ("exact", "semantic", "hybrid"):
        assert found(both, "valve deck", mode, filters={"tonnage": {"op": "gt", "value": 8}}) == [
            "shp-c"
        ]
        assert found(both, "valve", mode, docType="voyage") == []
        assert set(found(both, "valve deck", mode, filters={})) == {"shp-a", "shp-b", "shp-c"}
        assert set(
            found(both, "valve deck", mode, filters={"name": {"op": "neq", "value": "x"}})
        ) == {
            "shp-a",
            "shp-b",
            "shp-c",
        }
    assert both.error("maad_semantic_search", query="x", filters={"tonnage": []})["code"] == (
        "FILTER_EMPTY_ARRAY"
    )
    reply = both.reply("maad_semantic_search", query="x", docType="nothing")
    assert reply.meta["warnings"][0]["code"] == "UNKNOWN_TYPE"


def test_a_small_scope_says_how_much_of_it_is_embedded(both: Any) -> None:
    scope = {"tonnage": {"op": "gt", "value": 0}}
    data = search(both, "valve", "semantic", filters=scope)
    assert data["coverage"] == {"eligibleBlocks": 2, "embeddedBlocks": 2}
    assert "coverage" not in search(both, "valve", docType="ship")


def test_without_a_provider_words_stand_in(words: Any) -> None:
    ship(words, "shp-a", "a valve")
    for mode in ("semantic", "hybrid"):
        reply = words.reply("maad_semantic_search", query="valve", mode=mode)
        data = msgspec.json.decode(reply.body)
        assert [hit["docId"] for hit in data["results"]] == ["shp-a"]
        assert data["degraded"] == "no_vector_provider"
        assert data["limitations"] == ["no_vector_provider", "embeddings_pending"]
        assert reply.meta == {"mode": mode, "degraded": "no_vector_provider"}
    assert "limitations" not in search(words, "valve")


def test_a_provider_that_fails_is_disclosed_and_exact_mode_unaffected(both: Any) -> None:
    def fail(_texts: object) -> None:
        raise RuntimeError

    both.embedder.before = fail
    for mode in ("semantic", "hybrid"):
        data = search(both, "teak", mode)
        assert [hit["docId"] for hit in data["results"]] == ["shp-a"]
        assert data["limitations"] == ["embed_failed"]
        assert data["degraded"] == "embed_failed"
    assert found(both, "teak") == ["shp-a"]


def test_an_offline_provider_a_full_list_and_a_queue_are_told_in_order(open_project: Any) -> None:
    provider = Provider()
    project = open_project("feed", embedding=FAKE, embedder=provider)

    def fail(_texts: object) -> None:
        raise OSError

    provider.before = fail
    project.ok(
        "maad_bulk_create",
        records=[
            {"docType": "ship", "docId": f"shp-{number}", "fields": {"name": "x"}, "body": "valve"}
            for number in range(50)
        ],
    )
    ship(project, "shp-last", "valve")
    data = search(project, "valve", "hybrid")
    assert data["total"] == 10
    assert data["limitations"] == [
        "embed_failed",
        "lexical_candidate_pool_saturated",
        "embeddings_pending",
    ]
    assert data["degraded"] == "embed_failed"


def test_a_slow_provider_is_not_waited_for(open_project: Any) -> None:
    import threading

    provider, gate = Provider(), threading.Event()
    embedding = msgspec.structs.replace(FAKE, timeout_ms=50)
    project = open_project("feed", embedding=embedding, embedder=provider)
    ship(project, "shp-a", "a valve")
    Woken(project).drain()
    provider.before = lambda _texts: gate.wait(10) and None
    assert search(project, "valve", "semantic")["degraded"] == "embed_failed"
    gate.set()


def test_a_broken_vector_table_falls_back_to_words(both: Any) -> None:
    both.engine._index.writer().connection.execute("ALTER TABLE vec_blocks RENAME TO gone")
    data = search(both, "teak", "semantic")
    assert [hit["docId"] for hit in data["results"]] == ["shp-a"]
    assert data["degraded"] == "vec_search_failed"
    assert data["limitations"] == ["vec_search_failed"]


def test_deleted_records_never_appear(both: Any) -> None:
    both.ok("maad_delete", docId="shp-a")
    both.ok("maad_delete", docId="shp-c", mode="hard")
    for mode in ("exact", "semantic", "hybrid"):
        assert found(both, "valve deck", mode) == ["shp-b"]
    count = both.engine._index.writer().connection.execute
    assert count("SELECT count(*) FROM block_text").get == 1
    assert count("SELECT count(*) FROM vec_blocks").get == 1


def test_a_record_that_comes_back_is_found_again(both: Any) -> None:
    both.ok("maad_delete", docId="shp-c")
    (both.root / "ships/_deleted_shp-c.md").rename(both.root / "ships/shp-c.md")
    both.ok("maad_reindex")
    Woken(both).drain()
    for mode in ("exact", "semantic"):
        assert found(both, "pump", mode)[0] == "shp-c"


def test_an_old_record_is_found_among_many_newer_ones_in_scope(words: Any) -> None:
    ship(words, "shp-z", "valve", tonnage=1)
    for batch in range(6):
        words.ok(
            "maad_bulk_create",
            records=[
                {
                    "docType": "ship",
                    "docId": f"shp-{batch}-{number}",
                    "fields": {"name": "x", "tonnage": 2},
                    "body": "valve valve",
                }
                for number in range(50)
            ],
        )
    assert found(words, "valve", filters={"tonnage": 1}) == ["shp-z"]
    assert found(words, "valve", docType="ship", k=500)[-1] == "shp-z"


def test_the_order_does_not_depend_on_the_time_of_indexing(words: Any) -> None:
    for number in (3, 1, 2):
        ship(words, f"shp-{number}", "the same text")
    assert found(words, "same") == ["shp-1", "shp-2", "shp-3"]
    words.ok("maad_update", docId="shp-1", body="another one")
    words.ok("maad_update", docId="shp-1", body="the same text")
    assert found(words, "same") == ["shp-1", "shp-2", "shp-3"]


def test_one_record_with_many_matches_leaves_room_for_others(words: Any) -> None:
    ship(words, "shp-many", "".join(f"# H{number}\n\nvalve valve\n" for number in range(80)))
    for number in range(12):
        ship(words, f"shp-{number:02}", f"a valve among {'other ' * 20} words")
    ids = found(words, "valve")
    assert ids[0] == "shp-many"
    assert len(ids) == 10


class TestMoreVectorsThanAreComparedOneByOne:
    """Above the limit of exact comparison, bits choose the candidates."""

    @pytest.fixture
    def crowd(self, open_project: Any) -> Any:
        embedding = msgspec.structs.replace(FAKE, exact_scope_max=5)
        project = open_project("feed", embedding=embedding, embedder=Provider())
        for number in range(8):
            ship(
                project,
                f"shp-{number}",
                f"# H\n\nvalve number{number} of the engine",
                tonnage=number,
            )
        Woken(project).drain()
        return project

    def test_the_nearest_come_first_all_the_same(self, crowd: Any) -> None:
        for number in range(8):
            query = f"valve number{number} of the engine"
            assert found(crowd, query, "semantic")[0] == f"shp-{number}"

    def test_a_small_scope_is_searched_exhaustively(self, crowd: Any) -> None:
        data = search(crowd, "valve", "semantic", filters={"tonnage": {"op": "lt", "value": 5}})
        assert data["total"] == 5
        assert data["coverage"]["eligibleBlocks"] == 5

    def test_a_crowded_pool_is_disclosed(self, crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from maadd_worker.semantic import search as search_module

        monkeypatch.setattr(search_module, "_SCOPED_POOL", 6)
        data = search(crowd, "valve", "semantic", docType="ship")
        assert data["limitations"] == ["vector_candidate_pool_saturated"]
        assert data["degraded"] == "scope_truncated"
        monkeypatch.setattr(search_module, "_LEAST_POOL", 1)
        data = search(crowd, "valve", "semantic", k=1)
        assert data["limitations"] == ["vector_candidate_pool_saturated"]
        assert "degraded" not in data

    def test_a_width_without_whole_bytes_of_bits_is_compared_in_full(
        self, open_project: Any
    ) -> None:
        embedding = msgspec.structs.replace(FAKE, exact_scope_max=1)
        project = open_project("feed", embedding=embedding, embedder=Provider(dim=13))
        ship(project, "shp-a", "# A\n\nvalve\n\n# B\n\npump")
        health = Woken(project).drain()
        assert health["embeddedBlocks"] == 2
        assert found(project, "pump", "semantic") == ["shp-a"]


def test_without_the_switch_there_is_nothing_to_ask(open_project: Any) -> None:
    project = open_project("feed")
    assert project.error("maad_semantic_search", query="x")["code"] == "SEMANTIC_DISABLED"
    assert project.ok("maad_describe")["capabilities"]["semantic"] == {
        "enabled": False,
        "vectors": False,
        "modes": [],
    }


def test_describe_says_what_can_be_asked(both: Any) -> None:
    assert both.ok("maad_describe")["capabilities"]["semantic"] == {
        "enabled": True,
        "vectors": True,
        "modes": ["exact", "hybrid", "semantic"],
    }


def test_vectors_that_cannot_be_compared_leave_the_words(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    def fail(_connection: object) -> None:
        raise apsw.ExtensionLoadingError("no such file")

    monkeypatch.setattr(service, "load_vector_functions", fail)
    project = open_project("feed", embedding=FAKE)
    warnings: list[str] = []
    project.engine.connect_log(lambda event, **members: warnings.append(event))
    ship(project, "shp-a", "a valve")
    assert found(project, "valve") == ["shp-a"]
    assert search(project, "valve", "semantic")["degraded"] == "no_vector_provider"
    health = project.ok("maad_health")["embeddings"]
    assert (health["enabled"], health["vecReady"], health["queueDepth"]) == (True, False, 1)
    assert "no such file" in health["lastError"]
    assert warnings == ["semantic_vectors_failed"]


def test_a_mode_that_does_not_exist(words: Any) -> None:
    """On the wire the argument check refuses it; a caller in the process meets this one."""
    from maadd.protocol.errors import MaadError
    from maadd_worker.index.scope import build_scope
    from maadd_worker.semantic.search import Request
    from maadd_worker.semantic.search import search as run

    scope = build_scope(None, None, words.engine._in_use.model)
    request = Request("x", "psychic", 1, False, scope, False, "")
    with pytest.raises(MaadError) as caught:
        run(words._reader, words.engine._semantic.reads, request, lambda: None)
    assert caught.value.code == "INVALID_MODE"
    assert words.error("maad_semantic_search", query="x", mode="psychic")["code"] == "INVALID_ARGS"


def test_a_project_that_is_closed_during_the_embedding_says_so(both: Any) -> None:
    semantic = both.engine._semantic

    def close(_texts: object) -> None:
        semantic._closed = True

    both.embedder.before = close
    error = both.error("maad_semantic_search", query="some", mode="semantic")
    assert (error["code"], error["details"]) == ("SEMANTIC_DISABLED", {"retryable": True})
    semantic._closed = False


@pytest.mark.parametrize("mode", ["exact", "hybrid"])
def test_a_query_of_repeated_words_is_that_of_the_words(both: Any, mode: str) -> None:
    once = [(hit["docId"], hit["snippet"]) for hit in search(both, "valve pump", mode)["results"]]
    many = search(both, "valve pump " * 1000, mode)["results"]
    assert [(hit["docId"], hit["snippet"]) for hit in many] == once


def test_a_query_of_thousands_of_words_finds_the_longest(words: Any) -> None:
    ship(words, "shp-a", "A compressor.")
    assert found(words, " ".join(f"n{number}" for number in range(2000)) + " compressor") == [
        "shp-a"
    ]
