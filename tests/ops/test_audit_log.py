"""The audit channel (spec 04 §16)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maadd.ops.audit import AuditLog
from maadd.protocol.errors import MaadError

TOKEN = "maad_pat_" + "0123456789abcdef" * 2
Reader = Callable[[Path], list[dict[str, Any]]]


def test_a_line(tmp_path: Path, read_lines: Reader) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog.open(str(path))
    audit.write("write", tool="maad_create", doc_id=None, token_id="tok-1", note=TOKEN, token="x")
    audit.close()
    (line,) = read_lines(path)
    assert isinstance(line.pop("time"), int)
    assert line == {
        "level": 30,
        "channel": "audit",
        "tool": "maad_create",
        "doc_id": None,
        "token_id": "tok-1",
        "note": "maad_pat_[redacted]",
        "token": "[redacted]",
        "msg": "write",
    }


def test_the_file_is_appended_to_and_not_open_to_everybody(
    tmp_path: Path, read_lines: Reader
) -> None:
    path = tmp_path / "audit.log"
    for number in range(3):
        audit = AuditLog.open(str(path))
        audit.write("x", number=number)
        audit.close()
    assert [line["number"] for line in read_lines(path)] == [0, 1, 2]
    assert path.stat().st_mode & 0o007 == 0


def test_reopening_after_a_rotation(tmp_path: Path, read_lines: Reader) -> None:
    path, rotated = tmp_path / "audit.log", tmp_path / "audit.log.1"
    audit = AuditLog.open(str(path))
    audit.write("first")
    path.rename(rotated)
    audit.write("second")
    audit.reopen()
    audit.write("third")
    audit.close()
    assert [line["msg"] for line in read_lines(rotated)] == ["first", "second"]
    assert [line["msg"] for line in read_lines(path)] == ["third"]


def test_a_failed_reopening_goes_on_with_the_old_file(tmp_path: Path, read_lines: Reader) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    audit = AuditLog.open(str(folder / "audit.log"))
    folder.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        audit.reopen()
    audit.write("still here")
    audit.close()
    assert [line["msg"] for line in read_lines(tmp_path / "moved" / "audit.log")] == ["still here"]


def test_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(MaadError) as caught:
        AuditLog.open(str(tmp_path))
    assert caught.value.code == "INSTANCE_CONFIG_INVALID"
    assert "MAAD_AUDIT_PATH" in caught.value.message


def test_threads_never_mix_lines(tmp_path: Path, read_lines: Reader) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog.open(str(path))

    def work(worker: int) -> None:
        for number in range(200):
            audit.write("x", worker=worker, number=number, padding="p" * 500)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    audit.close()
    lines = read_lines(path)
    for worker in range(4):
        assert [line["number"] for line in lines if line["worker"] == worker] == list(range(200))


def test_the_first_failure_and_the_recovery_are_told(
    tmp_path: Path, read_lines: Reader, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    told: list[str | None] = []
    audit = AuditLog.open(str(path), on_fault=told.append)
    for _ in range(3):
        audit.write("lost")
    assert told == ["No space left on device"]
    path.unlink()
    audit.reopen()
    for _ in range(2):
        audit.write("kept")
    audit.close()
    assert told == ["No space left on device", None]
    assert audit.lost == 3
    assert [line["msg"] for line in read_lines(path)] == ["kept", "kept"]
    assert capfd.readouterr().err.count('"msg":"lost"') == 3


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MaadError, match="MAAD_AUDIT_PATH"):
        AuditLog.open(str(tmp_path / "pipe"))


SCRIPT = """
import os, sys
from maadd.ops.audit import AuditLog
audit = AuditLog.open(sys.argv[1] or None)
audit.write("to the file")
audit.close()
audit.write("after the end")
print(audit.lost)
"""


@pytest.mark.parametrize(("path", "lost"), [("", 0), ("/dev/full", 1)])
def test_without_a_file_or_with_a_full_one_lines_go_to_standard_error(path: str, lost: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=True
    )
    assert [json.loads(line)["msg"] for line in run.stderr.splitlines()] == [
        "to the file",
        "after the end",
    ]
    assert run.stdout == f"{lost}\n"


def test_reopening_without_a_file_is_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    audit = AuditLog.open(None)
    audit.reopen()
    audit.write("x")
    assert json.loads(capfd.readouterr().err)["channel"] == "audit"
    assert os.fstat(2)
