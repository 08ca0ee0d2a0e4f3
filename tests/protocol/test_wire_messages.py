"""Messages between front and worker survive the wire unchanged (design §4)."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from maadd.protocol.errors import WireError
from maadd.protocol.messages import (
    Bye,
    Call,
    CallProgress,
    Cancel,
    Cancelled,
    Drain,
    Event,
    Failed,
    Heartbeat,
    Hello,
    HistorySettings,
    Identity,
    Permit,
    PermitRequest,
    Ready,
    Reply,
    SessionEnded,
    ToFront,
    ToWorker,
    WorkerConfig,
    WorkerSettings,
    decode_to_front,
    decode_to_worker,
    encode,
)

TO_FRONT: list[ToFront] = [
    Hello(pid=42),
    Ready(documents=3, recovery_actions=["journal_empty"]),
    Failed([WireError("INDEX_EMPTY", "no rows", {"onDiskMarkdownFiles": 3})]),
    Reply("r-1", ok=True, body='{"a":"ä😀"}'.encode()),
    Reply("r-2", ok=False, body=b"[]", meta={"warnings": []}, error_code="UNKNOWN_TYPE", rows=0),
    Reply("r-3", ok=True, body=b"{}", audit={"doc_id": "wo-1", "version_after": 2}),
    Cancelled("r-4", withdrawn=True),
    PermitRequest("r-4", 3),
    CallProgress("r-5", done=500),
    CallProgress("r-5", done=1000, total=2000, text="note: 1000 files"),
    Event(7, "update", "wo-1", "work_order", "2031-02-03T04:05:06.007Z", "tool"),
    Heartbeat(rss_bytes=60_000_000, queue_depth=2, state="ready", progress="12/40"),
    Heartbeat(60_000_000, 2, "ready", pending_history=7, pending_changes=3),
    Bye(clean=True),
]
TO_WORKER: list[ToWorker] = [
    Call("r-1", "maad_get", {"docId": "wo-1"}, 0, "s-1", generation=3, deadline_ms=30_000),
    Call(
        "r-2",
        "maad_create",
        {"docType": "note", "fields": {"n": None, "x": [1, 2.5, "ü"]}},
        1,
        "s-1",
        3,
        30_000,
        identity=Identity("tok-1", agent_id="agt-1"),
        dry_run=True,
        is_write=True,
        verdict=WireError("RATE_LIMITED", "slow down", {"reason": "writes_per_sec"}),
    ),
    Cancel("r-1"),
    Permit("r-4"),
    Permit("r-5", WireError("TOKEN_REVOKED", "no more")),
    SessionEnded("s-1"),
    Drain(),
]


def test_the_examples_cover_every_message() -> None:
    assert {type(message) for message in TO_FRONT} == set(get_args(ToFront))
    assert {type(message) for message in TO_WORKER} == set(get_args(ToWorker))


@pytest.mark.parametrize("message", TO_FRONT)
def test_worker_to_front(message: ToFront) -> None:
    assert decode_to_front(encode(message)) == message


@pytest.mark.parametrize("message", TO_WORKER)
def test_front_to_worker(message: ToWorker) -> None:
    assert decode_to_worker(encode(message)) == message


@pytest.mark.parametrize("message", TO_WORKER)
def test_a_message_for_the_other_side_is_refused(message: ToWorker) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_to_front(encode(message))


@pytest.mark.parametrize("frame", [b"", b"\xff", b"\x80", encode(Drain())[:-1]])
def test_a_frame_that_is_no_message_is_refused(frame: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_to_worker(frame)


def test_a_worker_is_known_by_project_and_generation() -> None:
    config = WorkerConfig(
        project="häfen",
        root="/srv/häfen",
        generation=4,
        endpoint="ipc://w.sock",
        control_endpoint=None,
        history=HistorySettings("audit", None, "inferred"),
        settings=WorkerSettings(),
    )
    assert config.wire_identity == "häfen#4".encode()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=WorkerConfig) == config
