"""What a starting server does with the managed files, and what it never does (spec 03 §11.1)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from guided_project import OLD, PATHS, stamps, subjects

from maadd_worker.instructions.manifest import load_templates

CONTENT = {template.path: template.content for template in load_templates()}


def lines_at_start(engine: Any) -> list[tuple[str, dict[str, Any]]]:
    """What the log is told when the engine of a server is open."""
    told: list[tuple[str, dict[str, Any]]] = []
    engine.engine.offer_instructions()
    engine.engine.connect_log(lambda event, **members: told.append((event, members)))
    return told


def test_absent_files_are_made_and_nothing_is_committed(project: Path, served: Any) -> None:
    shutil.rmtree(project / "_skills")
    (project / "MAAD.md").unlink()
    assert lines_at_start(served()) == []
    after = stamps(project)
    assert {path: after[path][0] for path in PATHS} == CONTENT
    assert subjects(project) == []


def test_each_file_is_judged_by_itself(project: Path, served: Any) -> None:
    (project / PATHS[1]).unlink()
    before = stamps(project)
    lines_at_start(served())
    after = stamps(project)
    assert after.pop(PATHS[1])[0] == CONTENT[PATHS[1]]
    assert after == before


@pytest.mark.parametrize("content", [OLD, OLD + b"edit\n", b"# Ours\n", b""])
def test_what_exists_keeps_its_bytes_and_its_time(
    project: Path, served: Any, content: bytes
) -> None:
    (project / "_skills/schema-guide.md").write_bytes(content)
    before = stamps(project)
    lines_at_start(served())
    assert stamps(project) == before


def test_a_link_that_leads_nowhere_is_kept(project: Path, served: Any) -> None:
    (project / "MAAD.md").unlink()
    (project / "MAAD.md").symlink_to("elsewhere.md")
    assert lines_at_start(served()) == []
    assert os.readlink(project / "MAAD.md") == "elsewhere.md"


def test_a_command_makes_nothing(project: Path, served: Any) -> None:
    (project / "MAAD.md").unlink()
    served().ok("maad_summary")
    assert not (project / "MAAD.md").exists()


def test_reindex_and_reload_touch_no_guide(project: Path, served: Any) -> None:
    (project / "MAAD.md").unlink()
    (project / "_skills/schema-guide.md").write_bytes(OLD)
    engine = served()
    before = stamps(project)
    engine.ok("maad_reindex", force=True)
    engine.ok("maad_reload")
    assert stamps(project) == before


def test_a_read_only_project_gets_nothing_written(project: Path, served: Any) -> None:
    served().close()
    (project / "MAAD.md").unlink()
    before = stamps(project)
    assert lines_at_start(served("read")) == []
    assert stamps(project) == before


def test_outdated_files_are_told_once(project: Path, served: Any) -> None:
    (project / "_skills/schema-guide.md").write_bytes(OLD)
    (project / "_skills/graph-ontology.md").write_bytes(b"# Ours\n")
    engine = served()
    stale = [{"file": "_skills/schema-guide.md", "state": "outdated"}]
    told = [("instructions_outdated", {"project_root": str(project), "stale": stale})]
    assert lines_at_start(engine) == told
    again: list[Any] = []
    engine.engine.connect_log(lambda event, **members: again.append(event))
    assert again == []


def test_what_cannot_be_made_is_told_and_the_rest_is_served(project: Path, served: Any) -> None:
    shutil.rmtree(project / "_skills")
    (project / "_skills").write_text("in the way")
    engine = served()
    told = lines_at_start(engine)
    *failures, (event, members) = told
    assert [failed for failed, _ in failures] == ["instructions_not_created"] * 5
    assert {why["code"] for _, why in failures} == {"WRITE_ERROR"}
    assert event == "instructions_outdated"
    assert [one["state"] for one in members["stale"]] == ["missing"] * 5
    assert engine.ok("maad_summary")["totalDocuments"] == 0


def test_temporary_files_of_a_killed_refresh_are_removed(project: Path, served: Any) -> None:
    left = ["MAAD.md", "_skills/schema-guide.md"]
    name = ".maad-tmp-999999999-6f1c2a4e-0000-4000-8000-000000000000"
    for path in left:
        (project / f"{path}{name}").write_bytes(b"half")
    (project / "notes").mkdir()
    (project / f"notes/mine.md{name}").write_bytes(b"not ours to judge here")
    lines_at_start(served())
    assert [path.name for path in project.rglob("*.maad-tmp-*")] == [f"mine.md{name}"]
