"""The semantic index through the life of a project (spec 02 §6.3, §6.4, §6.6)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest
from semantic_bench import FAKE, ON, Provider, Woken, found, search, ship

from maadd.protocol.messages import EmbeddingSettings
from maadd_worker.index.block_texts import text_hash

EMPTY = {
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


def sql(project: Any, statement: str) -> list[Any]:
    """Rows straight from the index."""
    rows: list[Any] = project.engine._index.writer().connection.execute(statement).fetchall()
    return rows


def tables(project: Any) -> set[str]:
    return {name for (name,) in sql(project, "SELECT name FROM sqlite_schema WHERE type = 'table'")}


def reopened(project: Any, embedding: EmbeddingSettings, embedder: Provider | None = None) -> Any:
    """The same project under other settings."""
    project.embedder = embedder
    project._settings = msgspec.structs.replace(project._settings, embedding=embedding)
    project.reopen()
    return project


def is_sound(project: Any) -> bool:
    """Whether words, texts and vectors belong together."""
    sql(project, "INSERT INTO fts_blocks (fts_blocks, rank) VALUES ('integrity-check', 1)")
    [(texts, blocks)] = sql(
        project, "SELECT (SELECT count(*) FROM block_text), (SELECT sum(blocks) FROM semantic_docs)"
    )
    [(stray,)] = sql(
        project,
        "SELECT count(*) FROM vec_blocks WHERE block NOT IN (SELECT block FROM block_text)",
    )
    return texts == (blocks or 0) and stray == 0


def test_the_hash_of_a_text() -> None:
    assert text_hash("Valve torque checked at 40 Nm.") == "d8d48a300459ababc429e26b56719b9c"


def test_off_costs_nothing(open_project: Any) -> None:
    project = open_project("feed")
    ship(project, "shp-a", "a text")
    assert not tables(project) & {"block_text", "fts_blocks", "embed_queue", "vec_blocks"}
    assert project.engine._index.writer().texts is None
    assert project.ok("maad_health")["embeddings"] == EMPTY


def test_health_tells_the_state(open_project: Any) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "# A\n\nx\n\n# Empty\n\n# B\n\ny")
    before = project.ok("maad_health")["embeddings"]
    assert before["oldestQueuedAt"] is not None
    health = Woken(project).drain()
    assert health == EMPTY | {
        "enabled": True,
        "provider": "injected",
        "model": "test",
        "dim": 64,
        "vecReady": True,
        "embeddedBlocks": 2,
        "indexedBlocks": 2,
        "lastSuccessAt": health["lastSuccessAt"],
    }
    assert [row for (row,) in sql(project, "SELECT block & 16777215 FROM block_text")] == [0, 2]


def test_only_blocks_that_changed_are_embedded_again(open_project: Any) -> None:
    provider = Provider()
    project = open_project("feed", embedding=FAKE, embedder=provider)
    woken = Woken(project)
    ship(project, "shp-a", "# A\n\none\n\n# B\n\ntwo\n\n# C\n\nthree")
    woken.drain()
    provider.asked.clear()
    for change in (
        {"body": "# A\n\none\n\n# B\n\nTWO\n\n# C\n\nthree"},
        {"fields": {"tonnage": 3}},
        {"body": "# A renamed {#x}\n\none\n\n# B\n\nTWO\n\n# C\n\nthree"},
        {"body": "# A renamed {#x}\n\none"},
    ):
        project.ok("maad_update", docId="shp-a", **change)
        woken.drain()
        assert is_sound(project)
    assert provider.documents() == ["TWO"]
    assert found(project, "renamed") == ["shp-a"]
    assert found(project, "three") == []
    assert search(project, "one")["results"][0]["heading"] == "A renamed"


def test_the_words_of_a_file_edited_by_hand_are_found(open_project: Any) -> None:
    project = open_project(embedding=ON)
    ship(project, "shp-a", "# Log\n\nSeen from the lighthouse.")
    file = project.root / "ships/shp-a.md"
    file.write_text(file.read_text().replace("lighthouse", "harbour"))
    project.engine._watching.findings.add(["ships/shp-a.md"], "seen")
    project.settle()
    assert found(project, "harbour") == ["shp-a"]
    assert found(project, "lighthouse") == []


def test_saving_again_queues_nothing_twice(open_project: Any) -> None:
    project = open_project("feed", embedding=ON)
    ship(project, "shp-a", "a text")
    project.ok("maad_reindex", force=True)
    assert sql(project, "SELECT id FROM embed_queue") == [(1,)]


def test_turned_on_late_the_texts_follow_by_themselves(open_project: Any) -> None:
    project = open_project("feed")
    for number in range(5):
        ship(project, f"shp-{number}", f"valve {number}")
    reopened(project, FAKE, Provider())
    reply = project.reply("maad_semantic_search", query="valve")
    assert [one["code"] for one in reply.meta["warnings"]] == ["INDEX_BEHIND"]
    assert Woken(project).until(lambda health: health["embeddedBlocks"] == 5)
    reply = project.reply("maad_semantic_search", query="valve")
    assert msgspec.json.decode(reply.body)["total"] == 5
    assert reply.meta == {"mode": "exact"}


def test_what_was_written_while_it_was_off_is_caught_up(open_project: Any) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "old words")
    ship(project, "shp-b", "to be deleted")
    ship(project, "shp-c", "to be deleted softly")
    Woken(project).drain()
    reopened(project, EmbeddingSettings())
    project.ok("maad_update", docId="shp-a", body="new words")
    project.ok("maad_delete", docId="shp-b", mode="hard")
    project.ok("maad_delete", docId="shp-c")
    ship(project, "shp-d", "added meanwhile")
    assert project.ok("maad_health")["embeddings"] == EMPTY
    provider = Provider()
    reopened(project, FAKE, provider)
    Woken(project).until(lambda health: health["embeddedBlocks"] == 2)
    assert sorted(provider.documents()) == ["added meanwhile", "new words"]
    assert found(project, "old deleted") == []
    assert found(project, "new", "semantic")[0] == "shp-a"
    assert is_sound(project)


def test_a_file_that_cannot_be_read_holds_up_nobody(open_project: Any) -> None:
    project = open_project("feed")
    for name in ("a", "b", "c"):
        ship(project, f"shp-{name}", "valve")
    (project.root / "ships/shp-a.md").write_text("edited behind the back")
    (project.root / "ships/shp-b.md").unlink()
    reopened(project, ON)
    for _ in range(5):
        project.engine.settle(True)
    assert found(project, "valve") == ["shp-c"]


@pytest.mark.parametrize(
    ("model", "dim"), [("other", 64), ("test", 32), ("other", 24)], ids=["model", "width", "both"]
)
def test_another_model_or_width_makes_all_vectors_anew(
    open_project: Any, model: str, dim: int
) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "# A\n\none\n\n# B\n\ntwo")
    Woken(project).drain()
    provider = Provider(dim, model)
    reopened(project, FAKE, provider)
    health = project.ok("maad_health")["embeddings"]
    assert (health["model"], health["dim"], health["embeddedBlocks"]) == (model, dim, 0)
    assert found(project, "two") == ["shp-a"]
    assert search(project, "two", "semantic")["limitations"] == ["embeddings_pending"]
    assert Woken(project).drain()["embeddedBlocks"] == 2
    assert sorted(provider.documents()) == ["one", "two"]
    assert found(project, "two", "semantic") == ["shp-a"]


def test_the_same_model_keeps_them(open_project: Any) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "a text")
    Woken(project).drain()
    provider = Provider()
    reopened(project, FAKE, provider)
    assert Woken(project).drain()["embeddedBlocks"] == 1
    assert provider.documents() == []


def test_blocks_wait_for_a_provider(open_project: Any) -> None:
    project = open_project("feed", embedding=ON)
    ship(project, "shp-a", "a text")
    assert "vec_blocks" not in tables(project)
    reopened(project, FAKE, Provider())
    assert Woken(project).drain()["embeddedBlocks"] == 1


def test_lost_places_in_the_queue_are_found_at_the_start(open_project: Any) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "# A\n\none\n\n# B\n\ntwo")
    Woken(project).drain()
    sql(project, "DELETE FROM vec_blocks WHERE block & 1 = 1")
    sql(project, "DELETE FROM vec_bits WHERE block & 1 = 1")
    reopened(project, FAKE, Provider())
    assert Woken(project).drain()["embeddedBlocks"] == 2


def test_tables_of_another_layout_are_made_anew(open_project: Any) -> None:
    project = open_project("feed", embedding=FAKE, embedder=Provider())
    ship(project, "shp-a", "a text")
    Woken(project).drain()
    sql(project, "UPDATE engine_meta SET value = '0' WHERE key = 'semantic_layout'")
    reopened(project, FAKE, Provider())
    Woken(project).until(lambda health: health["embeddedBlocks"] == 1)
    assert found(project, "text", "hybrid") == ["shp-a"]


def test_settings_without_a_usable_provider_start_all_the_same(open_project: Any) -> None:
    embedding = EmbeddingSettings(enable=True, provider="openai")
    project = open_project("feed", embedding=embedding)
    warned: list[Any] = []
    project.engine.connect_log(lambda event, **members: warned.append((event, members)))
    assert warned[0][0] == "embedding_provider_unusable"
    ship(project, "shp-a", "a text")
    assert found(project, "text") == ["shp-a"]
    assert "MAAD_OPENAI_API_KEY" in project.ok("maad_health")["embeddings"]["lastError"]


class Anybody:
    """Admits every write."""

    def admit(self, request_id: str) -> bool:
        return True

    def defer(self, request_id: str) -> None:
        """The reply comes later."""

    def depth(self) -> int:
        return 1


class TestReindex:
    def test_every_block_is_embedded_anew_before_the_answer(self, open_project: Any) -> None:
        provider = Provider()
        project = open_project("feed", embedding=FAKE, embedder=provider)
        for number in range(70):
            ship(project, f"shp-{number}", f"text {number}")
        Woken(project).drain()
        provider.asked.clear()
        report = project.ok("maad_reindex", embeddings=True)
        assert (report["indexed"], report.get("warnings")) == (70, None)
        assert len(provider.documents()) == 70
        assert project.ok("maad_health")["embeddings"]["queueDepth"] == 0

    def test_it_embeds_in_a_command_without_a_server(self, open_project: Any) -> None:
        project = open_project("feed")
        ship(project, "shp-a", "a text")
        reopened(project, FAKE, Provider())
        assert project.ok("maad_reindex", embeddings=True)["indexed"] == 1
        assert project.ok("maad_health")["embeddings"]["embeddedBlocks"] == 1

    def test_it_gives_up_on_a_provider_that_does_not_work(
        self, open_project: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from maadd_worker.semantic import queue

        monkeypatch.setattr(queue, "_FIRST_DELAY_S", 0.001)
        provider = Provider()

        def fail(_texts: object) -> None:
            raise OSError

        provider.before = fail
        project = open_project("feed", embedding=FAKE, embedder=provider)
        ship(project, "shp-a", "a text")
        logged: list[str] = []
        project.engine.connect_log(lambda event, **members: logged.append(event))
        report = project.ok("maad_reindex", embeddings=True)
        assert report["warnings"] == ["1 blocks still wait to be embedded"]
        assert "embeddings_incomplete" in logged

    def test_writes_go_on_while_it_embeds(self, open_project: Any) -> None:
        provider, release = Provider(), threading.Event()
        provider.before = lambda _texts: release.wait(10) and None
        project = open_project("feed", embedding=FAKE, embedder=provider)
        ship(project, "shp-a", "a text")
        replies: list[Any] = []

        def write(tool: str, **args: Any) -> None:
            project.engine.write_group([project.request(tool, args)], Anybody(), replies.append)
            for _ in range(5):
                project.engine.settle(False)

        write("maad_reindex", embeddings=True)
        assert replies == []
        write("maad_create", docType="ship", fields={"name": "x"}, body="another")
        assert [reply.ok for reply in replies] == [True]
        assert [job["state"] for job in project.ok("maad_health")["jobs"]] == ["running"]
        release.set()
        while len(replies) < 2:
            project.engine.settle(True)
        assert msgspec.json.decode(replies[1].body).get("warnings") is None
        assert project.ok("maad_health")["embeddings"]["embeddedBlocks"] == 2

    def test_off_it_is_a_forced_reindex(self, open_project: Any) -> None:
        project = open_project("feed")
        ship(project, "shp-a", "a text")
        assert project.ok("maad_reindex", embeddings=True)["indexed"] == 1


class TestReadOnly:
    def test_an_index_that_is_there_is_served(self, open_project: Any) -> None:
        project = open_project("feed", embedding=FAKE, embedder=Provider())
        ship(project, "shp-a", "a valve")
        Woken(project).drain()
        project.mode = "read"
        provider = Provider()
        reopened(project, FAKE, provider)
        for mode in ("exact", "semantic", "hybrid"):
            data = search(project, "valve", mode)
            assert (data["total"], data.get("degraded")) == (1, None)
        project.engine.connect_wake(lambda: None)
        assert provider.documents() == []
        assert project.ok("maad_health")["embeddings"]["vecReady"]

    def test_vectors_of_another_model_are_not_compared(self, open_project: Any) -> None:
        project = open_project("feed", embedding=FAKE, embedder=Provider())
        ship(project, "shp-a", "a valve")
        Woken(project).drain()
        project.mode = "read"
        reopened(project, FAKE, Provider(model="other"))
        assert search(project, "valve", "semantic")["degraded"] == "no_vector_provider"

    def test_nothing_is_made_where_there_is_none(self, open_project: Any) -> None:
        project = open_project("feed")
        ship(project, "shp-a", "a valve")
        project.mode = "read"
        reopened(project, FAKE, Provider())
        assert project.error("maad_semantic_search", query="x")["code"] == "SEMANTIC_DISABLED"


SECRET = "xylophonesecret"


class TestForgotten:
    """Hard deletes leave no text and no vector anywhere under `_backend`."""

    def holders(self, project: Any, needle: bytes) -> list[str]:
        return sorted(
            path.name
            for path in (project.root / "_backend").iterdir()
            if needle in path.read_bytes()
        )

    @pytest.mark.parametrize("way", ["hard", "purge", "off"])
    def test_the_text_its_words_and_its_vector_are_gone(self, open_project: Any, way: str) -> None:
        project = open_project(
            "feed", embedding=FAKE, embedder=Provider(), purge_default_retention_days=0
        )
        for number in range(30):
            ship(project, f"shp-{number}", f"# H {number}\n\ncommon words {number}")
        ship(project, "shp-x", f"# Top {SECRET}head\n\ncommon {SECRET}text words")
        Woken(project).drain()
        [(vector,)] = sql(
            project,
            "SELECT embedding FROM vec_blocks WHERE block = (SELECT max(block) FROM vec_blocks)",
        )
        for needle in (SECRET.encode(), vector):
            assert self.holders(project, needle)
        if way == "off":
            reopened(project, EmbeddingSettings())
        project.ok("maad_delete", docId="shp-x", mode="soft" if way == "purge" else "hard")
        if way == "purge":
            sql(
                project,
                "UPDATE documents SET updated_at = '2020-01-01T00:00:00.000Z' WHERE deleted = 1",
            )
            assert len(project.ok("maad_purge_soft_deleted", confirm=True)["purged"]) == 1
        project.settle()
        for needle in (SECRET.encode(), f"{SECRET}head".encode(), vector):
            assert self.holders(project, needle) == []


def test_replacing_vectors_does_not_grow_the_file_without_bound(open_project: Any) -> None:
    """Half of the texts replaced, four times (known trap 28)."""
    project = open_project("feed", embedding=FAKE, embedder=Provider(dim=1024))
    woken = Woken(project)

    def text(number: int, turn: int) -> str:
        return " ".join(
            hashlib.sha256(f"{number} {turn} {place}".encode()).hexdigest() for place in range(20)
        )

    for start in (0, 50, 100):
        project.ok(
            "maad_bulk_create",
            records=[
                {
                    "docType": "ship",
                    "docId": f"shp-{number}",
                    "fields": {"name": "x"},
                    "body": text(number, 0),
                }
                for number in range(start, start + 50)
            ],
        )
    woken.drain()

    def pages() -> int:
        [(number,)] = sql(project, "SELECT page_count FROM pragma_page_count")
        return int(number)

    before = pages()
    for turn in range(1, 5):
        project.ok(
            "maad_bulk_update",
            updates=[{"docId": f"shp-{n}", "body": text(n, turn)} for n in range(0, 100, 2)],
        )
        assert woken.drain()["embeddedBlocks"] == 150
    assert pages() < 1.3 * before
    assert is_sound(project)


def test_a_worker_that_is_not_asked_to_embed_loads_nothing_for_it() -> None:
    heavy = "numpy httpx wordllama tokenizers safetensors sqlite_vec"
    code = (
        "import sys, maadd_worker.engine, maadd_worker.process.main; "
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout == "[]\n"
