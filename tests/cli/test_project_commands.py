"""`maad reindex` and `maad validate`, for programs and on a terminal."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BROKEN = "---\ndoc_id: nt-bad\ndoc_type: note\n\ttitle: x\n---\n"


@pytest.fixture
def run(maad_here: Any, project: Path) -> Any:
    """`maad` inside the project."""

    def inside(*arguments: str, **more: Any) -> Any:
        return maad_here(*arguments, cwd=project, **more)

    return inside


@pytest.fixture
def on_terminal(project: Path, environment: dict[str, str]) -> Any:
    """`maad` inside the project as a person sees it; exit code and text."""

    def run(*arguments: str, typed: str = "") -> tuple[int, str]:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "maadd.cli", *arguments],
            cwd=project,
            env=environment | {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            shown = b""
            # Linux ends a terminal that nobody holds any more with an error.
            while chunk := _read(ours):
                shown += chunk
            os.close(ours)
        return process.returncode, shown.decode().replace("\r\n", "\n")

    return run


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def test_reindex_reports_and_writes_the_schema_page(run: Any, project: Path) -> None:
    first = run("reindex")
    assert first.code == 0
    assert first.json["scanned"] == first.json["indexed"] == 3
    page = project / "SCHEMA.md"
    assert "| note | 3 | nt | title |" in page.read_text()
    written = page.stat().st_mtime_ns
    again = run("reindex", "--json")
    assert again.json == {"scanned": 3, "indexed": 0, "skipped": 3, "errors": []}
    assert page.stat().st_mtime_ns == written
    assert run("reindex", "--force").json["indexed"] == 3
    for part in ("--doc=nt-fog", "--path=notes/nt-fog.md"):
        assert run("reindex", "--force", part).json["indexed"] == 1
    assert run("reindex", "--force", "--type=note").json["indexed"] == 3


def test_a_broken_file_fails_the_run_and_nothing_else(run: Any, project: Path) -> None:
    (project / "notes/nt-bad.md").write_text(BROKEN)
    done = run("reindex")
    assert done.code == 1
    assert done.json["indexed"] == 3
    (error,) = done.json["errors"]
    assert error["code"] == "PARSE_ERROR"
    assert error["location"]["file"] == "notes/nt-bad.md"
    assert run("get", "nt-tide").code == 0


def test_rows_of_an_empty_folder_go_only_when_confirmed(run: Any, project: Path) -> None:
    run("reindex")
    shutil.rmtree(project / "notes")
    kept = run("reindex", "--prune")
    assert kept.code == 0
    assert kept.json["wouldPrune"]["count"] == 3
    assert "add --yes" in kept.err
    gone = run("reindex", "--prune", "--yes")
    assert gone.json["pruned"] == 3
    assert run("query", "note").json == []


def test_validate_indexes_and_counts(run: Any, project: Path) -> None:
    done = run("validate")
    assert done.code == 0
    assert done.json == {"total": 3, "valid": 3, "invalid": 0, "errors": []}
    page = run("validate", "--limit=2", "--precision", "--constraints").json
    assert (page["total"], page["precisionDrift"], page["constraintViolations"]) == (2, [], [])
    last = run("validate", "--limit=2", f"--cursor={page['nextCursor']}").json
    assert (last["total"], last["nextCursor"]) == (1, None)
    path = project / "notes/nt-fog.md"
    path.write_text(path.read_text().replace("stage: draft", "stage: lost"))
    invalid = run("validate")
    assert invalid.code == 1
    assert invalid.json["invalid"] == 1
    assert invalid.json["errors"][0]["docId"] == "nt-fog"
    assert run("validate", "nt-tide").code == 0
    assert run("validate", "nt-fog").code == 1
    assert "FILE_NOT_FOUND" in run("validate", "nt-none").err


def test_a_file_that_is_no_record_is_invalid_too(run: Any, project: Path) -> None:
    (project / "notes/nt-bad.md").write_text(BROKEN)
    done = run("validate")
    assert done.code == 1
    assert done.json["invalid"] == 0
    assert done.json["notIndexed"][0]["location"]["file"] == "notes/nt-bad.md"


def test_a_person_gets_sentences_and_tables(on_terminal: Any, project: Path) -> None:
    (project / "notes/nt-bad.md").write_text(BROKEN)
    code, shown = on_terminal("reindex")
    assert code == 1
    assert "4 files: 3 indexed, 0 unchanged, 1 failed" in shown
    assert "notes/nt-bad.md:4:" in shown
    (project / "notes/nt-bad.md").unlink()
    code, shown = on_terminal("query", "note", "--filter=stage=draft", "--sort=pages")
    assert code == 0
    rows = [line.split() for line in shown.splitlines() if line.startswith("nt-")]
    assert [row[:2] for row in rows] == [["nt-fog", "Fog"], ["nt-wind", "North"]]
    assert "1 to 2 of 2" in shown
    code, shown = on_terminal("validate")
    assert code == 0
    assert "3 records: 3 valid, 0 invalid" in shown


def test_a_person_is_asked_before_rows_go(on_terminal: Any, project: Path) -> None:
    on_terminal("reindex")
    shutil.rmtree(project / "notes")
    code, shown = on_terminal("reindex", "--prune", typed="y\n")
    assert code == 0
    assert "3 rows have no file any more" in shown
    assert "removed, file gone: 3" in shown
