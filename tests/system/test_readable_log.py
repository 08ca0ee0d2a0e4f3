"""`MAAD_LOG_PRETTY` of a whole server: front, worker and audit channel (spec 04 §16)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from daemon_bench import make_project
from stdio_bench import Stdio

LINE = re.compile(r"\d\d:\d\d:\d\d (TRACE|DEBUG|INFO |WARN |ERROR|FATAL) (.+)")
SECRET = "maad_pat_" + "0123456789abcdef" * 2


def served(project: Path, **environment: str) -> list[str]:
    """What a server says on standard error while it answers some calls."""
    server = Stdio(project, "--role=admin", **environment)
    server.initialize()
    assert server.call("maad_summary")["data"]["totalDocuments"] == 3
    assert server.call("maad_get", docId=f"x\n12:00:00 INFO  forged {SECRET}")["errors"]
    assert server.call("maad_validate", docId="nte-1")["ok"]
    assert server.process.stdin is not None
    assert server.process.stdout is not None
    assert server.process.stderr is not None
    server.process.stdin.close()
    assert server.process.wait(20) == 0
    # Only the protocol goes to standard output.
    assert server.process.stdout.read() == b""
    return server.process.stderr.read().decode().splitlines()


def test_lines_are_for_people_but_for_the_audit_channel(tmp_path: Path) -> None:
    project = make_project(tmp_path / "main", records=3, indexed=True)
    (project / "notes/nte-2.md").write_text("---\ndoc_id: [\n---\n")
    audit = tmp_path / "audit.log"
    told = served(project, MAAD_LOG_PRETTY="1", MAAD_LOG_LEVEL="debug", MAAD_AUDIT_PATH=str(audit))
    found = [LINE.fullmatch(line) for line in told]
    assert all(found), [line for line, match in zip(told, found, strict=True) if match is None]
    texts = [match[2] for match in found if match is not None]
    assert texts[0].startswith("ops_channel_ready destination=pretty log_level=debug")
    calls = [text for text in texts if text.startswith("tool_call ")]
    assert len(calls) == 3
    assert " tool=maad_summary role=admin " in calls[0]
    assert " result=ok error_code=null" in calls[0]
    assert " result=error error_code=FILE_NOT_FOUND" in calls[1]
    assert any(text.startswith("shutdown_complete ") for text in texts)
    of_the_worker = [text for text in texts if " project=default" in text]
    assert len(of_the_worker) > len([text for text in calls if " project=default" in text])
    assert not any(SECRET in text or "forged" in text for text in texts)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [line["msg"] for line in lines] == ["session_open", "session_close"]
    assert {line["channel"] for line in lines} == {"audit"}


def test_only_one_turns_it_on(tmp_path: Path) -> None:
    project = make_project(tmp_path / "main", records=3, indexed=True)
    told = served(project, MAAD_LOG_PRETTY="true", MAAD_LOG_LEVEL="info")
    assert all(isinstance(json.loads(line)["level"], int) for line in told)
    assert json.loads(told[0])["destination"] == "stderr"
