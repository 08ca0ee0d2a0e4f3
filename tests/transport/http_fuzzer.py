"""Requests that no client should send, from a seed: lines, headers, chunks, JSON, JSON-RPC."""

from __future__ import annotations

import errno
import json
import random
import re
import socket
from collections.abc import Callable
from typing import Any

Dice = random.Random

MODERN = "2026-07-28"
_VERSIONS = ("2025-11-25", "2024-11-05", MODERN, "", "1999-01-01", "2026-07-28 ")
_METHODS = ("POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD", "post", "P\x00ST", "", "CONNECT")
_TARGETS = (
    "/mcp", "/mcp?x=1", "/healthz", "*", "http://x/mcp", "//mcp", "/%", "/%zz", "/mcp/../mcp",
    "/\xff", "", "mcp", "/mcp#x", "http://[::1", "/" + "a" * 9000, "/mcp\x00",
)  # fmt: skip
_PROTOCOLS = ("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "HTTP/0.9", "ICY/1.1", "", "HTTP/1.")
_ORIGINS = ("null", "http://evil", "", "x://", "http://[")
_LENGTHS = ("-1", "+5", "1e3", "0x10", "5, 6", " ", "9" * 30, "99999999", "0")
_CODINGS = ("chunked", "gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked")
_RPC_METHODS = (
    "initialize", "ping", "tools/list", "tools/call", "prompts/get", "prompts/list",
    "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete",
    "notifications/cancelled", "notifications/initialized", "notifications/progress", "x", "",
)  # fmt: skip
_SCALARS: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**64, -(2**63) - 1, 1.5, 1e308, "", "x", "\ud800", "\x00", [], {},
)  # fmt: skip
_BODIES = (
    b"", b"[]", b"{", b"nul", b"\xff\xfe", b"\xef\xbb\xbf{}", b"NaN", b"1e999", b'"\\ud800"',
    b"[" * 60_000, b'{"a":' * 20_000, b'{"jsonrpc":"2.0","jsonrpc":"1.0"}', b"{}{}", b" " * 5000,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 3000 + b"]" * 3000 + b"}",
)  # fmt: skip


class Fuzzer:
    """Draws requests around good ones: `token`, and a session that `open_session` opens."""

    def __init__(self, seed: int, token: str, open_session: Callable[[], str]) -> None:
        self._dice = Dice(seed)
        self._token = token
        self._open_session = open_session
        self._session = open_session()
        self._calm = 0.0

    def renew(self) -> None:
        """The session has gone, perhaps by a DELETE."""
        self._session = self._open_session()

    def request(self) -> bytes:
        """The next request: mostly one thing is wrong with it, sometimes everything."""
        dice = self._dice
        self._calm = dice.choice((0.99, 0.97, 0.95, 0.7))
        body = self._body()
        method, target, protocol = "POST", "/mcp", "HTTP/1.1"
        if dice.random() < 0.12:
            method = dice.choice(_METHODS)
        if dice.random() < 0.06:
            target = dice.choice(_TARGETS)
        if dice.random() < 0.03:
            protocol = dice.choice(_PROTOCOLS)
        line = f"{method} {target} {protocol}".encode("latin-1")
        framed, framing = self._framed(body)
        headers = self._headers() + framing
        dice.shuffle(headers)
        request = b"\r\n".join([line, *headers, b"", framed])
        if dice.random() < 0.1:
            request = self._mutated(request)
        return request[: dice.randrange(len(request) + 1)] if dice.random() < 0.05 else request

    def _headers(self) -> list[bytes]:
        dice = self._dice
        headers = [
            "Host: x",
            "Connection: close",
            f"Accept: {self._mostly('*/*', 'application/json', '', 'text/html')}",
            f"Content-Type: {self._mostly('application/json', 'text/plain', '')}",
            f"Authorization: {self._mostly(f'Bearer {self._token}', 'Bearer')}",
        ]
        if dice.random() < 0.8:
            known = self._mostly(self._session, "x", "", "a" * 3000)
            headers.append(f"Mcp-Session-Id: {known}")
        if dice.random() < 0.15:
            headers.append(f"MCP-Protocol-Version: {dice.choice(_VERSIONS)}")
        if dice.random() < 0.1:
            headers.append(f"Mcp-Method: {dice.choice(_RPC_METHODS)}")
        if dice.random() < 0.03:
            headers.append(f"Origin: {dice.choice(_ORIGINS)}")
        if dice.random() < 0.04:
            headers.append(f"X-Maad-Pin-Project: {dice.choice(('alpha', 'none', '', 'A B'))}")
        if dice.random() < 0.04:
            headers.append(dice.choice(headers))
        if dice.random() < 0.04:
            headers.append(
                dice.choice(("no colon", ": x", "A\x00: x", "A : x", " folded", "X: \r", "X: \xff"))
            )
        return [header.encode("latin-1") for header in headers]

    def _framed(self, body: bytes) -> tuple[bytes, list[bytes]]:
        dice = self._dice
        kind = dice.random()
        if kind < 0.6:
            return body, [b"Content-Length: %d" % len(body)]
        if kind < 0.65:
            return body, [f"Content-Length: {dice.choice(_LENGTHS)}".encode()]
        if kind < 0.95:
            coding = self._mostly("chunked", *_CODINGS)
            headers = [f"Transfer-Encoding: {coding}".encode()]
            if dice.random() < 0.05:
                headers.append(b"Content-Length: %d" % len(body))
            return self._chunked(body), headers
        return body, []

    def _chunked(self, body: bytes) -> bytes:
        dice = self._dice
        framed = bytearray()
        while body:
            size = dice.randint(1, max(1, len(body)))
            told = self._mostly(
                f"{size:x}", "zz", "-1", "f" * 20, f"{size + 7:x}", "", f"{size:x};x=y"
            )
            framed += told.encode() + b"\r\n" + body[:size] + dice.choice((b"\r\n",) * 9 + (b"",))
            body = body[size:]
        end = self._mostly(
            "0\r\n\r\n", "0\r\nX: y\r\n\r\n", "", "0\r\n", "0\r\nContent-Length: 9\r\n\r\n"
        )
        return bytes(framed) + end.encode()

    def _body(self) -> bytes:
        dice = self._dice
        kind = dice.random()
        if kind < 0.08:
            return dice.choice(_BODIES)
        if kind < 0.16:
            return self._mutated(self._encoded(self._message()))
        if kind < 0.24:
            return self._encoded([self._message() for _ in range(dice.randint(0, 4))])
        return self._encoded(self._message())

    def _message(self) -> Any:
        dice = self._dice
        message: dict[str, Any] = {
            "jsonrpc": self._mostly("2.0", "1.0", 2, None),
            "method": dice.choice(_RPC_METHODS),
        }
        if dice.random() < 0.8:
            message["id"] = self._mostly(dice.randint(1, 9), *_SCALARS)
        if dice.random() < 0.8:
            message["params"] = self._mostly(self._params(), *_SCALARS)
        if dice.random() < 0.05:
            message[dice.choice(("result", "error", "extra"))] = dice.choice(_SCALARS)
        if dice.random() < 0.05:
            del message[dice.choice(list(message))]
        return message

    def _params(self) -> dict[str, Any]:
        dice = self._dice
        params: dict[str, Any] = {}
        if dice.random() < 0.7:
            params["name"] = self._mostly("maad_get", "maad-md", *_SCALARS)
        if dice.random() < 0.7:
            params["arguments"] = self._mostly({"docId": "x"}, *_SCALARS)
        if dice.random() < 0.3:
            params["protocolVersion"] = self._mostly("2025-11-25", *_SCALARS)
            params["capabilities"] = self._mostly({}, *_SCALARS)
            params["clientInfo"] = self._mostly({"name": "f", "version": "1"}, *_SCALARS)
        if dice.random() < 0.3:
            params["_meta"] = self._mostly(
                {
                    "io.modelcontextprotocol/protocolVersion": self._mostly(MODERN, *_SCALARS),
                    "io.modelcontextprotocol/clientInfo": {"name": "f", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": self._mostly({}, *_SCALARS),
                    "progressToken": dice.choice(_SCALARS),
                },
                *_SCALARS,
            )
        return params

    def _mutated(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._dice.randint(1, 4)):
            if changed:
                changed[self._dice.randrange(len(changed))] = self._dice.randrange(256)
        return bytes(changed)

    def _mostly(self, usual: Any, *strange: Any) -> Any:
        return usual if self._dice.random() < self._calm else self._dice.choice(strange)

    @staticmethod
    def _encoded(value: Any) -> bytes:
        return json.dumps(value).encode()


def exchange(port: int, request: bytes) -> bytes:
    """Send, then close our side, so that nobody waits for what never comes; what came back."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
        received = b""
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                received += chunk
        except OSError as failure:
            # Refused before it was read to the end.
            if failure.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise
            return received
        return received


STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


def run(fuzzer: Fuzzer, port: int, goes_on: Callable[[int], bool]) -> dict[int, int]:
    """Send until `goes_on`, given the number sent, says no; how often each status came back
    (0: closed without an answer). AssertionError for a failure of the server's."""
    found: dict[int, int] = {}
    sent = 0
    while goes_on(sent):
        request = fuzzer.request()
        answer = exchange(port, request)
        status = STATUS.match(answer)
        number = int(status[1]) if status else 0
        assert status or not answer, (request, answer)
        assert number != 500, (request, answer)
        if number == 404:
            fuzzer.renew()
        found[number] = found.get(number, 0) + 1
        sent += 1
    return found
