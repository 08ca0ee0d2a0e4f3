"""Commands that change tokens have running servers act by it before they end (spec 04 §7.3)."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from maadd.auth.registry import TokenRegistry
from maadd.cli.running_servers import sync_tokens
from maadd.front.control import ControlServer


@contextlib.asynccontextmanager
async def listening(bench: Any, monkeypatch: Any, **more: Any) -> AsyncIterator[None]:
    """The bench's control socket, where commands look for it."""
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="maadd-test-") as runtime:
        monkeypatch.setenv("MAADD_RUNTIME_DIR", runtime)
        parts = {"follower": bench.follower, **more}
        server = ControlServer(
            f"{runtime}/control.sock",
            state=bench.state,
            pool=bench.pool,
            reloader=bench.reloader,
            transport="http",
            log=bench.log,
            audit=bench.audit,
            **parts,
        )
        await server.start()
        try:
            yield
        finally:
            await server.close()


async def sync(bench: Any, tokens_path: str) -> list[str]:
    return await asyncio.to_thread(sync_tokens, str(bench.path), tokens_path, bench.settings)


def elsewhere(bench: Any) -> TokenRegistry:
    """The registry as a command has it."""
    return TokenRegistry.load(bench.tokens.path)


async def test_a_revoked_token_is_dead_when_the_command_has_its_answer(
    make_bench: Any, monkeypatch: Any
) -> None:
    bench = make_bench("alpha")
    token = bench.issue("admin *")
    bench.open("s-1", "alpha", token=token)
    async with listening(bench, monkeypatch):
        elsewhere(bench).revoke(token.id)
        assert bench.tokens.death_of(token) is None
        assert await sync(bench, bench.tokens.path) == []
        assert bench.tokens.death_of(token) == "revoked"
    assert bench.closed == [("s-1", "auth")]
    assert bench.audited == [{"event": "token_revoked", "token_id": token.id, "origin": "file"}]


async def test_a_change_that_several_tell_of_is_audited_once(
    make_bench: Any, monkeypatch: Any
) -> None:
    bench = make_bench("alpha")
    token = bench.issue("admin *")
    async with listening(bench, monkeypatch):
        elsewhere(bench).revoke(token.id)
        path = bench.tokens.path
        await asyncio.gather(bench.follower.catch_up(), *(sync(bench, path) for _ in range(3)))
    assert len(bench.audited) == 1


async def test_the_tokens_of_another_instance_are_not_read(
    make_bench: Any, monkeypatch: Any
) -> None:
    bench = make_bench("alpha")
    token = bench.issue("admin *")
    async with listening(bench, monkeypatch):
        elsewhere(bench).revoke(token.id)
        assert await sync(bench, str(bench.folder / "elsewhere/tokens.yaml")) == []
    assert bench.tokens.death_of(token) is None


async def test_a_server_without_tokens_has_nothing_to_do(make_bench: Any, monkeypatch: Any) -> None:
    bench = make_bench("alpha")
    async with listening(bench, monkeypatch, follower=None):
        assert await sync(bench, bench.tokens.path) == []


async def test_a_server_that_refuses_the_registry_says_why(
    make_bench: Any, monkeypatch: Any
) -> None:
    bench = make_bench("alpha")
    token = bench.issue("admin *")
    async with listening(bench, monkeypatch):
        Path(bench.tokens.path).write_text("tokens: 7\n")
        (complaint,) = await sync(bench, bench.tokens.path)
    assert "TOKENS_FILE_INVALID" in complaint
    assert bench.tokens.death_of(token) is None
    assert bench.logged("tokens_reload_failed")


async def test_no_server_is_no_complaint(make_bench: Any, monkeypatch: Any, tmp_path: Path) -> None:
    bench = make_bench("alpha")
    monkeypatch.setenv("MAADD_RUNTIME_DIR", str(tmp_path / "nowhere"))
    assert await sync(bench, bench.tokens.path) == []


async def test_a_server_that_says_nothing_is_left_alone(make_bench: Any, monkeypatch: Any) -> None:
    bench = make_bench("alpha")
    gone = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    with tempfile.TemporaryDirectory(prefix="maadd-test-") as runtime:
        monkeypatch.setenv("MAADD_RUNTIME_DIR", runtime)
        async with await asyncio.start_unix_server(keep_silent, f"{runtime}/control.sock"):
            assert await sync(bench, bench.tokens.path) == []
            await gone.wait()
