"""Log lines wait for their reader; the server does not (spec 04 §16)."""

from __future__ import annotations

import os
import pty
import socket
from collections.abc import Callable, Iterator

import pytest

from maadd.protocol.line_sink import LineSink

KILOBYTE = b"x" * 1023 + b"\n"
Channel = tuple[int, int]


def dropped(lines: int) -> bytes:
    return b"%d dropped\n" % lines


def pipe() -> Channel:
    return os.pipe()


def sockets() -> Channel:
    reading, writing = socket.socketpair()
    return reading.detach(), writing.detach()


def terminal() -> Channel:
    return pty.openpty()


@pytest.fixture
def opened() -> Iterator[Callable[[Callable[[], Channel]], Channel]]:
    everything: list[int] = []

    def make(kind: Callable[[], Channel]) -> Channel:
        ends = kind()
        everything.extend(ends)
        return ends

    yield make
    for end in everything:
        os.close(end)


def read_until(reading: int, ending: bytes) -> bytes:
    read = b""
    while not read.endswith(ending):
        read += os.read(reading, 1 << 16)
    return read


@pytest.mark.parametrize("kind", [pipe, sockets, terminal])
def test_a_reader_that_does_not_read_holds_nobody_up(opened, kind) -> None:
    reading, writing = opened(kind)
    sink = LineSink(writing, dropped, queue_bytes=64 << 10)
    taken = [sink.write(b"%04d %s" % (number, KILOBYTE)) for number in range(2000)]
    refused = taken.count(False)
    assert sink.lost == refused > 0
    assert not sink.flush(0)
    text = read_until(reading, b" dropped\r\n" if kind is terminal else b" dropped\n")
    lines = text.splitlines()
    assert lines.pop() == dropped(refused).strip()
    expected = [number for number, was_taken in enumerate(taken) if was_taken]
    assert [int(line[:4]) for line in lines] == expected
    assert sink.flush(10)
    assert sink.write(b"flows again\n")
    assert read_until(reading, b"\n").startswith(b"flows again")
    sink.close()


def test_others_who_share_the_descriptor_still_block_in_it(opened) -> None:
    _, writing = opened(pipe)
    sink = LineSink(writing, dropped)
    sink.write(KILOBYTE)
    assert os.get_blocking(writing)
    sink.close()


def test_a_pipe_of_another_user_is_written_by_a_thread(opened, monkeypatch) -> None:
    reading, writing = opened(pipe)

    def refuse(*_args: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        sink = LineSink(writing, dropped, queue_bytes=4096)
    taken = [sink.write(KILOBYTE) for _ in range(2000)]
    assert False in taken
    told, text = 0, b""
    while told < taken.count(False):
        text += os.read(reading, 1 << 16)
        told = sum(int(line.split()[0]) for line in text.splitlines() if line.endswith(b"dropped"))
    assert sink.flush(10)


def test_a_reader_that_is_gone_costs_the_lines_alone() -> None:
    reading, writing = os.pipe()
    sink = LineSink(writing, dropped)
    while sink.flush(0):
        sink.write(KILOBYTE)
    os.close(reading)
    assert sink.flush(10)
    assert sink.lost > 0
    assert not sink.write(KILOBYTE)
    sink.close()
    os.close(writing)


def test_a_file_has_each_line_at_once(tmp_path) -> None:
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    sink = LineSink(descriptor, dropped, queue_bytes=0)
    assert sink.write(KILOBYTE)
    assert (tmp_path / "log").read_bytes() == KILOBYTE
    os.close(descriptor)
    assert not sink.write(KILOBYTE)
    assert sink.lost == 1
