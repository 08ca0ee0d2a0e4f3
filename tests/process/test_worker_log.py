from __future__ import annotations

import json
import os
import socket

import pytest

from maadd_worker.process.log import Log


def written(level: str, project: str = "notes") -> list[dict[str, object]]:
    read_fd, write_fd = os.pipe()
    log = Log(level, project, write_fd)
    log.info("worker_thing", count=3)
    log.warn("worker_odd", error="OSError")
    log.error("worker_bad")
    log.engine("warn", "write_slow", "held for 600 ms", op="maad_create", elapsedMs=600)
    log.close(10)
    os.close(write_fd)
    with open(read_fd) as lines:
        return [json.loads(line) for line in lines]


def test_a_line_is_one_json_object_of_the_logs_shape() -> None:
    lines = written("info")
    for line in lines:
        assert isinstance(line.pop("time"), int)
        assert line.pop("pid") == os.getpid()
        assert line.pop("hostname") == socket.gethostname()
        assert line.pop("project") == "notes"
    assert lines == [
        {"level": 30, "msg": "worker_thing", "count": 3},
        {"level": 40, "msg": "worker_odd", "error": "OSError"},
        {"level": 50, "msg": "worker_bad"},
        {
            "level": 40,
            "msg": "held for 600 ms",
            "event": "engine",
            "category": "engine",
            "operation": "write_slow",
            "op": "maad_create",
            "elapsedMs": 600,
        },
    ]


def test_lines_for_people() -> None:
    read_fd, write_fd = os.pipe()
    log = Log("warn", "notes", write_fd, pretty=True)
    log.info("worker_thing")
    log.engine("warn", "write_slow", "held for 600 ms", op="maad_create", elapsedMs=600)
    log.close(10)
    os.close(write_fd)
    with open(read_fd) as lines:
        (line,) = lines
    assert line[8:] == (
        " WARN  held for 600 ms project=notes category=engine operation=write_slow"
        " op=maad_create elapsedMs=600\n"
    )


@pytest.mark.parametrize(
    ("level", "levels"),
    [("trace", [30, 40, 50, 40]), ("warn", [40, 50, 40]), ("error", [50]), ("silent", [])],
)
def test_lines_below_the_level_are_not_written(level: str, levels: list[int]) -> None:
    assert [line["level"] for line in written(level)] == levels


def test_a_closed_standard_error_disturbs_nobody() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    Log("info", "notes", write_fd).info("worker_thing")
    os.close(write_fd)
