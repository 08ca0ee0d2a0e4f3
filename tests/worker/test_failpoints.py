"""Failpoints themselves: off unless asked for, and then exactly what was asked for."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import maadd_worker
from maadd.protocol.errors import MaadError
from maadd_worker import failpoints
from maadd_worker.failpoints import NAMES, VARIABLE, arm, reach, reach_sqlite

ROOT = Path(maadd_worker.__file__).parent


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm({})


def test_names_in_the_code_and_in_the_list_are_the_same() -> None:
    text = "\n".join(
        path.read_text() for path in ROOT.rglob("*.py") if path.name != "failpoints.py"
    )
    used = set(re.findall(r'reach(?:_sqlite)?\("([a-z.]+)"\)', text))
    used |= set(re.findall(r'b"(?:blob|tree|commit)": "([a-z.]+)"', text))
    assert used == NAMES


def test_without_the_variable_nothing_happens(open_project: Any) -> None:
    assert arm({}) == ()
    for name in NAMES:
        reach(name)
        reach_sqlite(name)
    project = open_project()
    project.engine.offer_instructions()
    assert "failpoints_armed" not in [notice.event for notice in project.engine._notices]


def test_a_worker_says_that_failpoints_are_armed(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "read.slow=sleep:0; journal.begin=error:ENOSPC@1")
    project = open_project()
    project.engine.offer_instructions()
    [notice] = [one for one in project.engine._notices if one.event == "failpoints_armed"]
    assert notice.members == {"names": ["read.slow", "journal.begin"]}
    error = project.error("maad_create", docType="ship", fields={"name": "A"})
    assert (error["code"], "No space left" in error["message"]) == ("WRITE_ERROR", True)
    assert error["details"]["errno"] == "ENOSPC"
    project.ok("maad_create", docType="ship", fields={"name": "A"})
    assert project.ok("maad_get", docId="shp-a")["version"] == 1


@pytest.mark.parametrize(
    "text",
    ["nowhere=kill", "git.move", "git.move=explode", "git.move=error:NOTHING", "git.move=pause",
     "git.move=sleep:long", "git.move=kill@often"],
)  # fmt: skip
def test_what_is_no_failpoint_is_refused_by_name(open_project: Any, text: str) -> None:
    with pytest.raises(MaadError) as failure:
        arm({VARIABLE: text})
    assert failure.value.code == "INSTANCE_CONFIG_INVALID"
    assert failure.value.details == {"variable": VARIABLE, "value": text}


@pytest.mark.parametrize("place", ["journal.begin", "index.begun", "index.member", "index.commit"])
def test_a_write_without_room_is_refused_alike_at_every_step(open_project: Any, place: str) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "A"})
    many = [{"docType": "ship", "fields": {"name": name}} for name in ("B", "C")]
    arm({VARIABLE: f"{place}=error:ENOSPC"})
    for tool, args in (
        ("maad_create", {"docType": "ship", "fields": {"name": "B"}}),
        ("maad_update", {"docId": "shp-a", "fields": {"name": "B"}}),
        ("maad_delete", {"docId": "shp-a"}),
        ("maad_delete", {"docId": "shp-a", "mode": "hard"}),
        ("maad_bulk_create", {"records": many, "atomic": True}),
    ):
        error = project.error(tool, **args)
        assert (error["code"], error["details"]["errno"]) == ("WRITE_ERROR", "ENOSPC")
        assert "free some space" in error["message"]
    failed = project.ok("maad_bulk_create", records=many)["failed"]
    assert [one["code"] for one in failed] == ["WRITE_ERROR", "WRITE_ERROR"]
    arm({})
    assert os.listdir(project.root / "ships") == ["shp-a.md"]
    assert project.ok("maad_get", docId="shp-a")["version"] == 1


def test_errors_come_at_every_time_or_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arm({VARIABLE: "git.move=error:EIO;journal.begin=error:ENOSPC@2"})
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            reach("git.move")
    reach_sqlite("journal.begin")
    with pytest.raises(apsw.FullError):
        reach_sqlite("journal.begin")
    reach_sqlite("journal.begin")


def test_a_pause_lasts_until_the_other_end_has_come_and_gone(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    arm({VARIABLE: f"read.slow=pause:{fifo}"})
    thread = threading.Thread(target=reach, args=("read.slow",))
    thread.start()
    with fifo.open("wb"):  # opens once the other side has reached the place
        assert thread.is_alive()
    thread.join()


def test_a_kill_with_a_trigger_happens_once(tmp_path: Path, monkeypatch: Any) -> None:
    trigger = tmp_path / "trigger"
    killed: list[int] = []
    monkeypatch.setattr(failpoints.os, "kill", lambda _pid, number: killed.append(number))
    arm({VARIABLE: f"git.move=kill:{trigger}"})
    reach("git.move")
    assert killed == []
    trigger.touch()
    reach("git.move")
    reach("git.move")
    assert killed == [9]
    assert not trigger.exists()
