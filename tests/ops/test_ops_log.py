"""The ops channel (spec 04 §16)."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Protocol

import pytest

from maadd.ops.lines import open_sink
from maadd.ops.logs import (
    capture_library_logs,
    log_channel_ready,
    log_engine,
    open_ops_log,
)
from maadd.protocol.line_sink import LineSink

TOKEN = "maad_pat_" + "0123456789abcdef" * 2
LEVELS = ["debug", "info", "warning", "error", "critical"]


class LogFile(Protocol):
    descriptor: int
    sink: LineSink

    def text(self) -> str: ...
    def lines(self) -> list[dict[str, object]]: ...


def test_the_line_of_a_call(log_file: LogFile) -> None:
    before = int(time.time() * 1000)
    open_ops_log(sink=log_file.sink).info(
        "tool_call",
        request_id="r",
        session_id="s",
        project=None,
        tool="maad_get",
        role="reader",
        payload_size=12,
        latency_ms=1.5,
        result="ok",
        error_code=None,
    )
    (line,) = log_file.lines()
    moment = line.pop("time")
    assert isinstance(moment, int)
    assert before <= moment <= int(time.time() * 1000)
    assert line == {
        "level": 30,
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "request_id": "r",
        "session_id": "s",
        "project": None,
        "tool": "maad_get",
        "role": "reader",
        "payload_size": 12,
        "latency_ms": 1.5,
        "result": "ok",
        "error_code": None,
        "msg": "tool_call",
    }
    assert log_file.text().startswith('{"level":30,"time":')
    assert log_file.text().endswith('"msg":"tool_call"}\n')


@pytest.mark.parametrize(
    ("threshold", "numbers"),
    [
        ("trace", [20, 30, 40, 50, 60]),
        ("debug", [20, 30, 40, 50, 60]),
        ("info", [30, 40, 50, 60]),
        ("warn", [40, 50, 60]),
        ("error", [50, 60]),
        ("fatal", [60]),
        ("silent", []),
    ],
)
def test_levels_are_numbers_and_filter(
    log_file: LogFile, threshold: str, numbers: list[int]
) -> None:
    log = open_ops_log(threshold, sink=log_file.sink)
    for method in LEVELS:
        getattr(log, method)("x")
    assert [line["level"] for line in log_file.lines()] == numbers


def test_the_first_line_of_a_boot(log_file: LogFile) -> None:
    log = open_ops_log("debug", sink=log_file.sink)
    log_channel_ready(log, "debug", descriptor=log_file.descriptor)
    (line,) = log_file.lines()
    assert line["msg"] == "ops_channel_ready"
    assert line["level"] == 30
    assert (line["destination"], line["log_level"], line["pid"]) == ("custom", "debug", os.getpid())


def test_some_lines_repeat_their_name_in_event(log_file: LogFile) -> None:
    log = open_ops_log(sink=log_file.sink)
    log.info("tokens_reload", total=2, active=1)
    log.info("auth_failure", reason="unknown")
    assert [line.get("event") for line in log_file.lines()] == ["tokens_reload", None]


@pytest.mark.parametrize(
    ("severity", "number"),
    [("fatal", 60), ("error", 50), ("degraded", 40), ("best_effort", 40), ("info", 30)],
)
def test_engine_lines(log_file: LogFile, severity: str, number: int) -> None:
    log = open_ops_log(sink=log_file.sink)
    log_engine(log, severity, "engine", "write_slow", "a slow write", op="create", elapsedMs=700)
    (line,) = log_file.lines()
    shown = {key: line[key] for key in ("level", "msg", "event", "category", "operation", "op")}
    assert shown == {
        "level": number,
        "msg": "a slow write",
        "event": "engine",
        "category": "engine",
        "operation": "write_slow",
        "op": "create",
    }


def test_fields_never_replace_the_members_of_the_line(log_file: LogFile) -> None:
    open_ops_log(sink=log_file.sink).info("x", level="high", pid=0, time="noon")
    (line,) = log_file.lines()
    assert line["level"] == 30
    assert line["pid"] == os.getpid()
    assert (line["level_"], line["pid_"], line["time_"]) == ("high", 0, "noon")


def test_an_exception_shows_type_message_and_frames_but_no_second_line(log_file: LogFile) -> None:
    log = open_ops_log(sink=log_file.sink)
    text = "\n".join([f"refused {TOKEN}", "private"])
    try:
        raise ValueError(text)
    except ValueError as error:
        log.error("failed", exc_info=True)
        log.exception("failed")
        log.warning("failed", exc_info=error)
    log.error("failed", exc_info=True)
    *failures, without = [line.get("err") for line in log_file.lines()]
    for error_members in failures:
        assert isinstance(error_members, dict)
        assert error_members["type"] == "ValueError"
        assert error_members["message"] == "refused maad_pat_[redacted]"
        assert "test_ops_log.py" in error_members["stack"]
    assert without is None
    assert "private" not in log_file.text()


def test_the_cause_of_an_exception_is_shown(log_file: LogFile) -> None:
    log = open_ops_log(sink=log_file.sink)
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise RuntimeError("second") from error
    except RuntimeError:
        log.exception("failed")
    shown = log_file.lines()[0]["err"]
    assert isinstance(shown, dict)
    assert (shown["type"], shown["cause"]["type"]) == ("RuntimeError", "KeyError")


def test_no_token_in_any_place_of_a_line(log_file: LogFile) -> None:
    for pretty in (False, True):
        log = open_ops_log(sink=log_file.sink, pretty=pretty)
        log.info(TOKEN, a=TOKEN, b={"c": [TOKEN]}, authorization=f"Bearer {TOKEN}")
        log.bind(bound=TOKEN).info("x %s", TOKEN)
        log_engine(log, "info", TOKEN, TOKEN, TOKEN)
    assert TOKEN not in log_file.text()
    assert TOKEN[9:] not in log_file.text()


def test_text_that_is_no_unicode_is_escaped(log_file: LogFile) -> None:
    open_ops_log(sink=log_file.sink).info("x", a="\ud800", b={"\udfff": ["é"]})
    (line,) = log_file.lines()
    assert line["a"] == "\\ud800"
    assert line["b"] == {"\\udfff": ["é"]}


def test_the_format_for_people(log_file: LogFile) -> None:
    log = open_ops_log(sink=log_file.sink, pretty=True)
    log.warning("session_token_evicted", token_id="tok-1", reason="revoked")
    log.info("x", told="two words", forged='a\n12:00:00 INFO  "b"', none=None, counts={"a": [1]})
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        log.exception("failed")
    first, odd, second, *rest = log_file.text().splitlines()
    assert first[8:] == " WARN  session_token_evicted token_id=tok-1 reason=revoked"
    assert odd[8:] == (
        r' INFO  x told="two words" forged="a\n12:00:00 INFO  \"b\"" none=null counts={"a":[1]}'
    )
    assert second[8:] == " ERROR failed"
    assert rest[-1] == "RuntimeError: boom"


def test_a_channel_that_is_gone_does_not_stop_the_server() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    sink = open_sink(writer)
    open_ops_log(sink=sink).info("x")
    sink.close()
    os.close(writer)
    assert sink.lost == 1


def test_a_slow_reader_of_a_pipe_loses_nothing() -> None:
    reader, writer = os.pipe()
    received = bytearray()

    def drain() -> None:
        while chunk := os.read(reader, 4096):
            received.extend(chunk)

    sink = open_sink(writer)
    log = open_ops_log(sink=sink)
    thread = threading.Thread(target=drain)
    thread.start()
    for number in range(500):
        log.info("x", number=number, padding="p" * 1000)
    sink.close(10)
    os.close(writer)
    thread.join()
    os.close(reader)
    numbers = [json.loads(line)["number"] for line in received.splitlines()]
    assert numbers == list(range(500))


@pytest.fixture
def library_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # A command that ran in this process may have left its own way.
    logging.captureWarnings(False)
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("library_logging")
def test_what_libraries_log_goes_the_same_way_from_warning_on(log_file: LogFile) -> None:
    capture_library_logs(open_ops_log(sink=log_file.sink))
    logging.getLogger("library.access").info("GET /mcp")
    logging.getLogger("library.server").warning("slow %s", TOKEN)
    logging.getLogger("mcp.server").error("invalid request\ninput_value={'body': 'private'}")
    logging.getLogger("asyncio").critical("bad format %d", "x")
    try:
        raise KeyError("k")
    except KeyError:
        logging.getLogger("asyncio").exception("task failed")
    warnings.warn("old call", DeprecationWarning, stacklevel=1)
    shown = [(line["level"], line["category"], line["msg"]) for line in log_file.lines()[:4]]
    assert shown == [
        (40, "library.server", "slow maad_pat_[redacted]"),
        (50, "mcp.server", "invalid request"),
        (60, "asyncio", "bad format %d"),
        (50, "asyncio", "task failed"),
    ]
    assert all(line["event"] == "library" for line in log_file.lines())
    assert log_file.lines()[3]["err"]["type"] == "KeyError"
    assert log_file.lines()[4]["category"] == "py.warnings"
    assert "private" not in log_file.text()


def test_nothing_is_ever_written_to_standard_output() -> None:
    script = """
import logging, warnings
from maadd.ops.logs import capture_library_logs, log_channel_ready, open_ops_log
log = open_ops_log()
capture_library_logs(log)
log_channel_ready(log, "info")
logging.getLogger("x").error("from a library")
warnings.warn("a warning")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [line["msg"] for line in lines[:2]] == ["ops_channel_ready", "from a library"]
    assert lines[0]["destination"] == "stderr"
    assert len(lines) == 3
