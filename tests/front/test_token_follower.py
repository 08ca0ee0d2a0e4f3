"""Changes of tokens.yaml by other processes, seen by watch and by poll (spec 04 §7.3)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from maadd.auth.registry import TokenRegistry
from maadd.protocol.errors import MaadError

POLL = {"poll_s": 0.05, "watch": False}
WATCH = {"poll_s": 0, "watch": True}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def following(bench: Any, how: dict[str, Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.follow(**how).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def elsewhere(bench: Any) -> TokenRegistry:
    """The registry as another process has it."""
    return TokenRegistry.load(bench.tokens.path)


@pytest.mark.parametrize("how", [POLL, WATCH], ids=["poll", "watch"])
async def test_a_revocation_elsewhere_ends_the_sessions(
    make_bench: Any, how: dict[str, Any]
) -> None:
    bench = make_bench("alpha")
    dead, alive = bench.issue("admin *"), bench.issue("reader *")
    session = bench.open("s-dead", "alpha", token=dead)
    assert session.notices.attach()
    bench.open("s-alive", "alpha", token=alive)
    async with following(bench, how):
        elsewhere(bench).revoke(dead.id)
        # The session's stream ends with it.
        async with asyncio.timeout(20):
            assert await session.notices.take(None) is None
    assert bench.closed == [("s-dead", "auth")]
    assert bench.logged("session_token_evicted")[0]["reason"] == "revoked"
    assert bench.audited == [{"event": "token_revoked", "token_id": dead.id, "origin": "file"}]


async def test_a_registry_behind_a_link_is_followed_where_it_lies(
    make_bench: Any, tmp_path: Path
) -> None:
    bench = make_bench("alpha")
    bench.issue("admin *")
    behind = tmp_path / "secrets/registry.yaml"
    behind.parent.mkdir(mode=0o700)
    link = Path(bench.tokens.path)
    link.rename(behind)
    link.symlink_to(behind)
    async with following(bench, WATCH):
        issued = TokenRegistry.load(str(behind)).issue(_spec())
        await until(lambda: bench.audited)
    assert link.is_symlink()
    assert bench.tokens.authenticate([f"Bearer {issued.plaintext}"]).token == issued.record


@pytest.mark.parametrize("how", [POLL, WATCH], ids=["poll", "watch"])
async def test_a_token_issued_elsewhere_is_good_at_once(
    make_bench: Any, how: dict[str, Any]
) -> None:
    bench = make_bench("alpha")
    bench.issue("admin *")
    async with following(bench, how):
        issued = elsewhere(bench).issue(_spec())
        await until(lambda: bench.audited)
    header = [f"Bearer {issued.plaintext}"]
    assert bench.tokens.authenticate(header).token == issued.record
    assert bench.audited == [
        {"event": "token_issued", "token_id": issued.record.id, "origin": "file"}
    ]


@pytest.mark.parametrize("how", [POLL, WATCH], ids=["poll", "watch"])
async def test_the_first_token_of_an_instance(make_bench: Any, how: dict[str, Any]) -> None:
    bench = make_bench("alpha")
    assert not Path(bench.tokens.path).parent.exists()
    async with following(bench, how):
        first = elsewhere(bench).issue(_spec()).record
        await until(lambda: bench.tokens.find(first.id))
        # The folder itself is watched now.
        second = elsewhere(bench).issue(_spec()).record
        await until(lambda: bench.tokens.find(second.id))


@pytest.mark.parametrize("how", [POLL, WATCH], ids=["poll", "watch"])
async def test_a_registry_that_vanishes_and_comes_back(
    make_bench: Any, how: dict[str, Any]
) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *")
    folder = Path(bench.tokens.path).parent
    saved = bench.folder / "saved"
    async with following(bench, how):
        shutil.copytree(folder, saved)
        saved.chmod(0o700)
        shutil.rmtree(folder)
        await until(lambda: not bench.tokens.present)
        assert bench.tokens.records() == ()
        saved.rename(folder)
        await until(lambda: bench.tokens.find(record.id))
    assert bench.audited[0] == {"event": "token_removed", "token_id": record.id, "origin": "file"}


async def test_a_bad_file_is_logged_once_and_the_old_tokens_go_on(make_bench: Any) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *")
    path = Path(bench.tokens.path)
    good = path.read_text()
    path.write_text("tokens: 7\n")
    for _ in range(3):
        await bench.follower.catch_up()
    (line,) = bench.logged("tokens_reload_failed")
    assert (line["level"], line["code"]) == ("warning", "TOKENS_FILE_INVALID")
    assert bench.tokens.find(record.id) == record
    path.write_text("tokens: 77\n")
    await bench.follower.catch_up()
    assert len(bench.logged("tokens_reload_failed")) == 2
    path.write_text(good)
    await bench.follower.catch_up()
    assert len(bench.logged("tokens_reload")) == 1


async def test_an_own_change_is_no_news(make_bench: Any) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *")
    bench.tokens.revoke(record.id)
    await bench.follower.catch_up()
    assert bench.logged("tokens_reload") == []
    assert bench.audited == []


async def test_a_folder_that_cannot_be_watched_leaves_the_poll(make_bench: Any) -> None:
    bench = make_bench("alpha")
    bench.tokens.path = "/proc/no/_auth/tokens.yaml"
    follower = bench.follow(poll_s=60, watch=True)
    assert follower.mode == "watch"
    task = asyncio.create_task(follower.run())
    await until(lambda: bench.logged("tokens_watch_unavailable"))
    assert follower.mode == "poll"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.follow(**{**POLL, "poll_s": 0}).mode == "off"


async def test_reload_raises_what_is_wrong(make_bench: Any) -> None:
    bench = make_bench("alpha")
    bench.issue("admin *")
    Path(bench.tokens.path).write_text("tokens: 7\n")
    with pytest.raises(MaadError) as caught:
        await bench.follower.reload()
    assert caught.value.code == "TOKENS_FILE_INVALID"


async def test_an_expiry_is_audited_once(make_bench: Any) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *", expires_at="2096-10-02T07:06:40.000Z")
    revoked = bench.issue("admin *", expires_at="2096-10-02T07:06:40.000Z")
    bench.tokens.revoke(revoked.id)
    for now in (4_000_000_000.0, 4_000_000_000.5, 4_000_000_001.0):
        bench.follower.audit_expiries(now)
    assert bench.audited == [
        {"event": "token_expired", "token_id": record.id, "expired_at": record.expires_at}
    ]


def _spec() -> Any:
    from maadd.auth.issue import TokenSpec, parse_grants
    from maadd.protocol.roles import Role

    return TokenSpec(Role.ADMIN, parse_grants("*"))
