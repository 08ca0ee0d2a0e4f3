from __future__ import annotations

import asyncio
import os

import pytest
import structlog
import zmq

from maadd.pool.router import PeerFull, PeerGone, Router
from maadd.protocol.messages import Call, Cancel, Hello, ToFront, encode


async def test_a_message_to_an_unknown_peer_is_an_error(short_dir: str) -> None:
    router = Router(
        f"ipc://{short_dir}/s", lambda *_: None, high_water=10, log=structlog.get_logger()
    )
    try:
        with pytest.raises(PeerGone):
            router.send(b"nobody#1", Cancel("x"))
    finally:
        router.close()


async def test_a_peer_that_does_not_read_is_full_in_the_end_and_never_blocks(
    short_dir: str,
) -> None:
    heard = asyncio.Event()
    router = Router(
        f"ipc://{short_dir}/s", lambda *_: heard.set(), high_water=10, log=structlog.get_logger()
    )
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.identity = b"peer#1"
    peer.rcvhwm = 1
    peer.connect(f"ipc://{short_dir}/s")
    peer.send(encode(Hello(1)))
    await heard.wait()
    bulky = Call("x", "echo", {"text": "x" * 1_000_000}, 0, "s", 1, 1)
    try:
        with pytest.raises(PeerFull):
            fill(router, bulky)
    finally:
        router.close()
        peer.close(linger=0)
        context.term()


def fill(router: Router, call: Call) -> None:
    for _ in range(1000):
        router.send(b"peer#1", call)


async def test_nothing_that_arrives_is_missed_between_sends(short_dir: str) -> None:
    """The socket's descriptor only tells of changes, and every send uses changes up."""
    heard: list[str] = []
    enough = asyncio.Event()

    def on_message(identity: bytes, message: ToFront) -> None:
        heard.append(identity.decode())
        if len(heard) == 2001:
            enough.set()
        if heard[:-1]:
            router.send(identity, Cancel("x"))

    router = Router(f"ipc://{short_dir}/s", on_message, high_water=5000, log=structlog.get_logger())
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.identity = b"peer#1"
    peer.sndhwm = peer.rcvhwm = 0
    peer.connect(f"ipc://{short_dir}/s")
    try:
        peer.send(encode(Hello(1)))
        for _ in range(2000):
            peer.send(encode(Hello(os.getpid())))
            if len(heard) % 7 == 0:
                await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await enough.wait()
        assert set(heard) == {"peer#1"}
    finally:
        router.close()
        peer.close(linger=0)
        context.term()


async def test_what_is_no_message_is_dropped(short_dir: str) -> None:
    heard: asyncio.Queue[ToFront] = asyncio.Queue()
    router = Router(
        f"ipc://{short_dir}/s",
        lambda _, m: heard.put_nowait(m),
        high_water=10,
        log=structlog.get_logger(),
    )
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.connect(f"ipc://{short_dir}/s")
    try:
        for frame in (b"", b"\xff\xff", b"\x81\xa4type\xa4call", encode(Hello(7))):
            peer.send(frame)
        async with asyncio.timeout(20):
            assert await heard.get() == Hello(7)
    finally:
        router.close()
        peer.close(linger=0)
        context.term()
