"""The provider `openai` against a server of its own, over real HTTP (spec 02 §6.2)."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from maadd_worker.semantic.calls import BoundedCalls
from maadd_worker.semantic.providers.embedder import Kind, ProviderUnavailable, TextRejected
from maadd_worker.semantic.providers.openai import OpenAIEmbedder

KEY = "sk-secret-key"


class Endpoint:
    """Answers with what a test sets; keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body: Any = None
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.endless: bytes | None = None
        self.endless_headers = False
        self.given_up = threading.Semaphore(0)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoint.seen.append((self.path, headers, sent))
                endpoint.may_answer.wait(10)
                if endpoint.endless is not None:
                    self.stream(endpoint.endless)
                    return
                body = endpoint.answer(sent)
                self.send_response(endpoint.status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def stream(self, part: bytes) -> None:
                """Sends one part after the other until the client is gone."""
                self.close_connection = True
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                if not endpoint.endless_headers:
                    self.wfile.write(b"\r\n")
                pause = threading.Event()
                try:
                    while True:
                        self.wfile.write(part)
                        # The pace of a trickle; a flood has none.
                        pause.wait(0.01 if len(part) < 100 else 0)
                except OSError:
                    endpoint.given_up.release()

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, sent: dict[str, Any]) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        if self.body is not None:
            return json.dumps(self.body).encode()
        # Out of order, as the protocol allows.
        items = [
            {"index": place, "embedding": [float(len(text)), 0.0, 1.0]}
            for place, text in enumerate(sent["input"])
        ]
        return json.dumps({"object": "list", "data": items[::-1], "usage": {}}).encode()

    def embedder(
        self, model: str = "own", dim: int | None = 3, limit_s: float = 30.0
    ) -> OpenAIEmbedder:
        return OpenAIEmbedder(
            f"{self.url}//", KEY, model, dim, query_timeout_s=limit_s, document_timeout_s=limit_s
        )

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def test_a_batch_is_one_request_and_comes_back_in_order(endpoint: Endpoint) -> None:
    vectors = endpoint.embedder().embed(["a", "bbb", "cc"], "document")
    assert [vector[0] for vector in vectors] == [1, 3, 2]
    [(path, headers, sent)] = endpoint.seen
    assert path == "/v1/embeddings"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert sent == {"model": "own", "input": ["a", "bbb", "cc"], "encoding_format": "float"}


def test_dimensions_are_sent_only_when_they_shorten(endpoint: Endpoint) -> None:
    endpoint.embedder("text-embedding-3-small", 3).embed(["a"], "query")
    assert endpoint.seen[0][2]["dimensions"] == 3


def test_nothing_is_asked_about_nothing(endpoint: Endpoint) -> None:
    assert endpoint.embedder().embed([], "document") == []
    assert endpoint.seen == []


def item(index: Any, *numbers: float) -> dict[str, Any]:
    return {"index": index, "embedding": list(numbers or (1.0, 2.0, 3.0))}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"data": [item(0)]}, "1 vectors for 2 texts"),
        ({"data": [item(0), item(2)]}, "index 2"),
        ({"data": [item(0), item(-1)]}, "index -1"),
        ({"data": [item(0), item(0)]}, "index 0"),
        ({"data": [item(0), item(1, 1.0)]}, "width 1 instead of 3"),
        ({"data": [item(0), item("1")]}, "form"),
        ({"data": [item(0), item(1.5)]}, "form"),
        ({"error": "no"}, "form"),
        (b"<html>", "form"),
    ],
)
def test_an_answer_that_is_not_right_is_no_answer(endpoint: Endpoint, body: Any, told: str) -> None:
    endpoint.body = body
    with pytest.raises(ProviderUnavailable, match=told):
        endpoint.embedder().embed(["a", "b"], "document")


@pytest.mark.parametrize("status", [400, 413, 422])
def test_some_refusals_are_about_the_texts(endpoint: Endpoint, status: int) -> None:
    endpoint.status, endpoint.body = status, b"too long"
    with pytest.raises(TextRejected, match=f"status {status}: too long"):
        endpoint.embedder().embed(["a"], "document")


@pytest.mark.parametrize("status", [302, 401, 403, 404, 429, 500, 503])
def test_others_are_about_the_service(endpoint: Endpoint, status: int) -> None:
    endpoint.status, endpoint.body = status, b"x" * 1000
    with pytest.raises(ProviderUnavailable) as caught:
        endpoint.embedder().embed(["a"], "document")
    assert str(caught.value) == f"status {status}: " + "x" * 300
    assert caught.value.retry_after_s is None


def test_the_time_to_wait_is_honoured(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.body = 429, b"{}"
    later = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=90)
    waits = []
    for text in ("7", "0.5", format_datetime(later, usegmt=True), "soon"):
        endpoint.headers = {"Retry-After": text}
        with pytest.raises(ProviderUnavailable) as caught:
            endpoint.embedder().embed(["a"], "document")
        waits.append(caught.value.retry_after_s)
    assert waits[:2] == [7, 0.5]
    assert 80 < waits[2] <= 90
    assert waits[3] is None


def test_no_error_shows_the_key(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    for status in (400, 401):
        endpoint.status, endpoint.body = status, f"bad key {KEY}".encode()
        with pytest.raises((ProviderUnavailable, TextRejected)) as caught:
            embedder.embed(["a"], "document")
        assert KEY not in str(caught.value)
        assert "[redacted]" in str(caught.value)
    assert KEY not in repr(embedder)


def test_nobody_there(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    endpoint.close()
    with pytest.raises(ProviderUnavailable, match="ConnectError"):
        embedder.embed(["a"], "document")


def test_an_endpoint_that_hangs_is_given_up_in_time(endpoint: Endpoint) -> None:
    endpoint.may_answer.clear()
    calls = BoundedCalls(endpoint.embedder(), 0.1)
    with pytest.raises(ProviderUnavailable, match="no answer within"):
        calls.embed(["a"], "document", lambda: None)
    with pytest.raises(ProviderUnavailable, match="an earlier request"):
        calls.embed(["a"], "document", lambda: None)
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("kind", ["query", "document"])
@pytest.mark.parametrize(
    ("part", "in_headers"), [(b" ", False), (b"X-A: b\r\n", True)], ids=["body", "headers"]
)
def test_a_trickle_without_an_end_ends_with_the_time_of_the_request(
    endpoint: Endpoint, kind: Kind, part: bytes, in_headers: bool
) -> None:
    endpoint.endless, endpoint.endless_headers = part, in_headers
    embedder = endpoint.embedder(limit_s=0.2)
    with pytest.raises(ProviderUnavailable, match="no answer within"):
        embedder.embed(["a"], kind)
    assert endpoint.given_up.acquire(timeout=10)
    endpoint.endless = None
    assert len(embedder.embed(["a"], kind)) == 1


def test_the_place_of_a_request_without_an_end_is_free_again(endpoint: Endpoint) -> None:
    endpoint.endless = b" "
    calls = BoundedCalls(endpoint.embedder(limit_s=0.2), 5)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match=r"no answer within 0\.2 s"):
            calls.embed(["a"], "document", lambda: None)
    assert len(endpoint.seen) == 2


def test_a_flood_is_cut_off(endpoint: Endpoint) -> None:
    endpoint.endless = b" " * 8192
    embedder = endpoint.embedder()
    with pytest.raises(ProviderUnavailable, match="more than 66752 bytes"):
        embedder.embed(["a"], "document")
    assert endpoint.given_up.acquire(timeout=10)
    endpoint.endless = None
    assert len(embedder.embed(["a"], "document")) == 1


def test_a_connection_is_kept_and_still_ends_in_time(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder(limit_s=0.5)
    assert len(embedder.embed(["a"], "query")) == 1
    endpoint.endless = b" "
    with pytest.raises(ProviderUnavailable, match="no answer within"):
        embedder.embed(["b"], "query")
    assert endpoint.given_up.acquire(timeout=10)
