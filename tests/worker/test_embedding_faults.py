"""A provider that misbehaves loses no block and holds up no write (spec 02 §6.5)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from semantic_bench import FAKE, Provider, Woken, found, search, ship

from maadd_worker.semantic import drain, queue
from maadd_worker.semantic.providers.embedder import ProviderUnavailable, TextRejected


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real waits are minutes; what is tested is what happens after them."""
    monkeypatch.setattr(queue, "_FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(queue, "_LONGEST_DELAY_S", 0.02)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def served(open_project: Any, provider: Provider) -> Any:
    """A project that embeds with the provider."""
    return open_project("feed", embedding=FAKE, embedder=provider)


def fail_while(condition: threading.Event, error: Exception) -> Any:
    def before(_texts: Sequence[str]) -> None:
        if condition.is_set():
            raise error

    return before


def poison(word: str, error: Exception) -> Any:
    def before(texts: Sequence[str]) -> None:
        if any(word in text for text in texts):
            raise error

    return before


def fill(project: Any, number: int, *, bad: int | None = None) -> None:
    project.ok(
        "maad_bulk_create",
        records=[
            {
                "docType": "ship",
                "docId": f"shp-{place}",
                "fields": {"name": "x"},
                "body": f"text {place}" + (" poison" if place == bad else ""),
            }
            for place in range(number)
        ],
    )


@pytest.mark.parametrize(
    "error",
    [RuntimeError("boom"), ProviderUnavailable("status 503: x"), MemoryError()],
    ids=["raises", "unavailable", "memory"],
)
def test_a_provider_that_fails_for_a_while(
    served: Any, provider: Provider, error: Exception
) -> None:
    down = threading.Event()
    down.set()
    provider.before = fail_while(down, error)
    fill(served, 40)
    woken = Woken(served)
    health = woken.until(lambda health: health["failures"] > 100)
    assert (health["queueDepth"], health["failedBlocks"], health["embeddedBlocks"]) == (40, 0, 0)
    assert type(error).__name__ in health["lastError"]
    ship(served, "shp-new", "written all the same")
    down.clear()
    health = woken.drain()
    assert health["embeddedBlocks"] == health["indexedBlocks"] == 41
    assert health["lastSuccessAt"] is not None


def test_health_shows_the_latest_failure_of_documents_and_queries(
    served: Any, provider: Provider
) -> None:
    down = threading.Event()
    down.set()
    provider.before = fail_while(down, RuntimeError("for documents"))
    fill(served, 1)
    woken = Woken(served)
    woken.until(lambda health: "for documents" in (health["lastError"] or ""))
    down.clear()
    woken.drain()
    provider.before = fail_while(down, RuntimeError("for queries"))
    down.set()
    assert search(served, "words", "hybrid")["degraded"] == "embed_failed"
    health = served.ok("maad_health")["embeddings"]
    assert health["lastError"] == "RuntimeError: for queries"


@pytest.mark.parametrize(
    "spoil",
    [lambda vectors: vectors[:-1], lambda vectors: [vector[:-1] for vector in vectors]],
    ids=["one too few", "wrong width"],
)
def test_vectors_that_are_not_right_are_not_stored(
    served: Any, provider: Provider, spoil: Any
) -> None:
    provider.after = spoil
    fill(served, 3)
    woken = Woken(served)
    health = woken.until(lambda health: health["failures"] >= 6)
    assert (health["embeddedBlocks"], health["queueDepth"]) == (0, 3)
    provider.after = lambda vectors: vectors
    assert woken.drain()["embeddedBlocks"] == 3


@pytest.mark.parametrize(
    "error", [TextRejected("status 400: poison"), ValueError("poison")], ids=["rejected", "raises"]
)
def test_one_bad_block_is_parked_and_holds_up_nobody(
    served: Any, provider: Provider, error: Exception
) -> None:
    provider.before = poison("poison", error)
    fill(served, 40, bad=3)
    woken = Woken(served)
    health = woken.until(lambda health: health["failedBlocks"] == 1)
    assert (health["embeddedBlocks"], health["queueDepth"]) == (39, 1)
    asked = len(provider.asked)
    ship(served, "shp-later", "one more")
    woken.until(lambda health: health["embeddedBlocks"] == 40)
    assert len(provider.asked) == asked + 1
    # Another text is another chance.
    served.ok("maad_update", docId="shp-3", body="harmless now")
    health = woken.drain()
    assert (health["failedBlocks"], health["embeddedBlocks"]) == (0, 41)


def test_a_rejected_batch_is_halved_at_once(served: Any, provider: Provider) -> None:
    provider.before = poison("poison", TextRejected("no"))
    fill(served, 16, bad=5)
    Woken(served).until(lambda health: health["embeddedBlocks"] == 15)
    assert len(provider.asked) <= 2 * 4 + 2


def test_a_block_that_makes_the_provider_hang_stalls_only_itself(
    open_project: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maadd_worker.semantic import service

    monkeypatch.setattr(service, "_DOCUMENT_TIMEOUT_S", 0.05)
    release = threading.Event()

    def before(texts: Sequence[str]) -> None:
        if any("poison" in text for text in texts):
            release.wait(0.15)
            raise OSError

    provider.before = before
    embedding = msgspec.structs.replace(FAKE, batch=4)
    project = open_project("feed", embedding=embedding, embedder=provider)
    fill(project, 12, bad=0)
    health = Woken(project).until(lambda health: health["embeddedBlocks"] == 11)
    assert health["queueDepth"] == 1
    release.set()


def test_a_provider_that_hangs_blocks_no_write_and_no_end(served: Any, provider: Provider) -> None:
    hung, release = threading.Event(), threading.Event()

    def before(_texts: Sequence[str]) -> None:
        hung.set()
        release.wait(30)

    provider.before = before
    ship(served, "shp-a", "first")
    woken = Woken(served)
    assert hung.wait(10)
    ship(served, "shp-b", "second")
    assert set(found(served, "first second")) == {"shp-a", "shp-b"}
    served.embedder = Provider()
    served.reopen()
    release.set()
    assert Woken(served).drain()["embeddedBlocks"] == 2
    assert woken is not None


def test_a_text_that_changes_while_it_is_embedded_gets_the_vector_of_the_new_one(
    served: Any, provider: Provider
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def before(_texts: Sequence[str]) -> None:
        began.set()
        go_on.wait(10)

    provider.before = before
    ship(served, "shp-a", "the old text")
    woken = Woken(served)
    assert began.wait(10)
    served.ok("maad_update", docId="shp-a", body="something new")
    go_on.set()
    woken.drain()
    assert provider.documents() == ["the old text", "something new"]
    stored = served.engine._index.writer().connection.execute("SELECT embedding FROM vec_blocks")
    from maadd_worker.semantic.providers.embedder import packed

    [wanted] = packed(Provider().embed(["something new"], "document"), 1, 64)
    assert stored.fetchall() == [(wanted,)]


def test_a_record_that_is_deleted_while_it_is_embedded_stays_gone(
    served: Any, provider: Provider
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def before(_texts: Sequence[str]) -> None:
        began.set()
        go_on.wait(10)

    provider.before = before
    ship(served, "shp-a", "the text")
    woken = Woken(served)
    assert began.wait(10)
    served.ok("maad_delete", docId="shp-a", mode="hard")
    go_on.set()
    ship(served, "shp-b", "another")
    assert woken.drain()["embeddedBlocks"] == 1


def test_a_kick_during_the_last_batch_is_not_lost(served: Any, provider: Provider) -> None:
    woken = Woken(served)
    for number in range(30):
        ship(served, f"shp-{number}", f"text {number}")
        served.engine.settle(False)
    assert woken.drain()["embeddedBlocks"] == 30


def test_a_wait_that_the_provider_asks_for_is_kept(
    served: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.before = poison("text", ProviderUnavailable("status 429: slow down", 3600.0))
    fill(served, 3)
    woken = Woken(served)
    woken.until(lambda health: health["failures"] == 3)
    asked = len(provider.asked)
    ship(served, "shp-b", "another")
    served.engine.settle(True)
    assert not served.engine._semantic._drain.wait(0.05)
    assert len(provider.asked) == asked


def test_long_texts_are_cut_for_the_provider(open_project: Any, provider: Provider) -> None:
    embedding = msgspec.structs.replace(FAKE, max_chars=10)
    project = open_project("feed", embedding=embedding, embedder=provider)
    ship(project, "shp-a", "0123456789abcdef")
    Woken(project).drain()
    assert provider.documents() == ["0123456789"]
    assert found(project, "0123456789abcdef") == ["shp-a"]


def test_trouble_with_the_index_is_reported_and_survived(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    real, broken = drain.due_blocks, threading.Event()
    broken.set()

    def flaky(*args: Any) -> Any:
        if broken.is_set():
            broken.clear()
            raise apsw.BusyError("locked")
        return real(*args)

    monkeypatch.setattr(drain, "due_blocks", flaky)
    monkeypatch.setattr(drain, "_AFTER_TROUBLE_S", 0.01)
    warned: list[str] = []
    served.engine.connect_log(lambda event, **members: warned.append(event))
    ship(served, "shp-a", "a text")
    assert Woken(served).drain()["embeddedBlocks"] == 1
    assert warned == ["embedding_trouble"]


def test_no_log_line_of_a_failure_quotes_a_record(served: Any, provider: Provider) -> None:
    lines: list[Any] = []
    served.engine.connect_log(lambda event, **members: lines.append((event, members)))
    provider.before = poison("secret", ProviderUnavailable("status 500: the secret text"))
    ship(served, "shp-a", "the secret text")
    Woken(served).until(lambda health: health["failures"] > 0)
    assert lines[0] == (
        "embedding_failed",
        {"error": "ProviderUnavailable", "reason": "status 500", "blocks": 1},
    )
    assert "secret" not in str(lines)


KILLED = """
import sys, threading, time
sys.path[:0] = {paths!r}
from pathlib import Path
from maadd.protocol.messages import EmbeddingSettings, HistorySettings, WorkerConfig, WorkerSettings
from maadd_worker.engine import Engine
from semantic_bench import Provider

provider = Provider(model="test")
def before(texts):
    if len(provider.asked) > 3:
        hung.set()
        woken.set()
        threading.Event().wait()
provider.before = before
settings = WorkerSettings(watch="off", embedding=EmbeddingSettings(enable=True, batch=2))
history = HistorySettings("feed", "feed", "x")
config = WorkerConfig("default", {root!r}, 1, "", None, history, settings)
engine = Engine.open(config, lambda _: None, provider)
woken, hung = threading.Event(), threading.Event()
engine.connect_wake(woken.set)
while True:
    engine.settle(True)
    if hung.is_set():
        print("half", flush=True)
    woken.wait()
    woken.clear()
"""


def test_a_process_that_is_killed_half_way_goes_on_where_it_was(served: Any) -> None:
    fill(served, 20)
    served.close()
    script = KILLED.format(paths=[str(Path(__file__).parent), *sys.path], root=str(served.root))
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "half\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    served.embedder = Provider()
    served.engine = served.open()
    served._reader = served.engine.open_reader()
    health = served.ok("maad_health")["embeddings"]
    assert health["embeddedBlocks"] + health["queueDepth"] == 20
    assert 0 < health["embeddedBlocks"] < 20
    assert Woken(served).drain()["embeddedBlocks"] == 20
    assert len(served.embedder.documents()) == 20 - health["embeddedBlocks"]
