"""The first files of a project are served by themselves; an index that may have lost its records
is not served, and health says what to do (spec 01 §14.6, §14.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from watched_project import Watched, ship

from maadd_worker.index.store import make_first_index


def write_ships(project: Path, count: int) -> set[str]:
    (project / "ships").mkdir(exist_ok=True)
    names = {f"s{number}" for number in range(count)}
    for name in names:
        (project / f"ships/shp-{name}.md").write_text(ship(f"shp-{name}", name))
    return names


def advisories(harness: Any) -> dict[str, str]:
    return {one["code"]: one["message"] for one in harness.ok("maad_health")["advisories"]}


@pytest.mark.parametrize("mode", ["audit", "feed"])
def test_files_written_before_the_first_call_of_a_new_project_are_served(
    open_project: Any, project: Path, mode: str
) -> None:
    (project / "_backend").mkdir()
    make_first_index(str(project))
    names = write_ships(project, 60)
    served = Watched(open_project(mode, watch="auto"))
    assert served.names() == names
    assert {event.action for event in served.harness.engine.poll_events()} == {"create"}
    assert served.health()["watcher"]["enabled"]
    served.harness.ok("maad_reindex", force=True)
    assert not {"versionsReset", "INDEX_EMPTY"} & advisories(served.harness).keys()
    served.write("ships/shp-late.md", ship("shp-late", "late"))
    served.until(lambda: served.names() == names | {"late"})


def test_files_that_come_while_no_server_runs_are_served_at_the_next_start(
    open_project: Any, project: Path
) -> None:
    open_project().close()
    names = write_ships(project, 3)
    (project / "ships/broken.md").write_text("---\ntitle: [\n---\n")
    served = Watched(open_project(watch="off"))
    assert served.names() == names
    assert advisories(served.harness).keys() == {"PARSE_ERROR"}


def test_the_first_files_are_committed_where_edits_are(open_project: Any, project: Path) -> None:
    open_project().close()
    write_ships(project, 3)
    served = Watched(open_project(watch="auto", external_edits="commit"))
    served.until(lambda: served.harness.git("status", "--porcelain") == "")
    assert "external:3" in served.harness.git("log", "-1", "--format=%s")


def test_a_new_file_met_by_a_reindex_is_no_lost_record(open_project: Any, project: Path) -> None:
    served = open_project()
    write_ships(project, 2)
    assert served.ok("maad_reindex")["indexed"] == 2
    assert not served.ok("maad_health").get("versionsReset")


def test_an_empty_index_over_files_waits_for_a_reindex_and_health_says_so(
    open_project: Any, project: Path
) -> None:
    names = write_ships(project, 3)
    served = Watched(open_project(watch="auto"))
    for _ in range(2):
        assert served.harness.error("maad_query", docType="ship")["code"] == "INDEX_EMPTY"
        assert "run maad_reindex" in advisories(served.harness)["INDEX_EMPTY"]
        assert not served.health()["watcher"]["enabled"]
        served.harness.close()
        served = Watched(open_project(watch="auto"))
    served.harness.ok("maad_reindex")
    assert "INDEX_EMPTY" not in advisories(served.harness)
    served.write("ships/shp-b.md", ship("shp-b", "Bo"))
    served.until(lambda: served.names() == names | {"Bo"})
