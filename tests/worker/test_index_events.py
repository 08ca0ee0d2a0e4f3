"""What the ops log and health tell of the index (spec 01 §3.2, §14; 04 §16)."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from maadd_worker.engine_events import changed_id_events
from maadd_worker.index.pass_report import ChangedId

SHIP = "---\ndoc_id: {id}\ndoc_type: ship\nschema: ship.v1\nname: N\n---\n{body}"


def write_ship(project: Any, doc_id: str, body: str = "") -> None:
    folder = project.root / "ships"
    folder.mkdir(exist_ok=True)
    (folder / f"{doc_id}.md").write_text(SHIP.format(id=doc_id, body=body))


@pytest.fixture
def logged() -> list[tuple[str, dict[str, Any]]]:
    return []


def connect(project: Any, logged: list[tuple[str, dict[str, Any]]]) -> None:
    project.engine.connect_log(lambda event, **members: logged.append((event, members)))


def test_a_pass_tells_of_files_that_it_could_not_take_whole(open_project: Any, logged: Any) -> None:
    project = open_project(max_doc_bytes=200, max_doc_annotations=1)
    connect(project, logged)
    write_ship(project, "shp-big", "x" * 300)
    write_ship(project, "shp-two", "[[person:A|a]] [[person:B|b]]")
    (project.root / "ships/_deleted_shp-odd.md").write_text("no frontmatter")
    project.ok("maad_reindex")
    project.settle()
    told = dict(logged)
    assert told["doc_too_large"].items() >= {"capBytes": 200}.items()
    assert told["doc_too_large"]["sizeBytes"] > 300
    assert told["doc_body_truncated"] == {"records": 1}
    assert told["index_scan_warnings"]["count"] == 1
    assert "_deleted_shp-odd.md" in told["index_scan_warnings"]["messages"][0]


def test_writes_and_hand_edits_beyond_the_annotation_cap_are_told(
    open_project: Any, logged: Any
) -> None:
    project = open_project(max_doc_annotations=1)
    connect(project, logged)
    many = "[[person:A|a]] [[person:B|b]]"
    project.ok("maad_create", docType="ship", docId="shp-a", fields={"name": "A"}, body=many)
    project.ok("maad_create", docType="ship", docId="shp-b", fields={"name": "B"}, body="few")
    project.ok("maad_delete", docId="shp-a")
    project.settle()
    assert logged == [("doc_body_truncated", {"records": 1})]
    write_ship(project, "shp-b", many)
    project.engine._watching.findings.add(["ships/shp-b.md"], "seen")
    project.settle()
    assert logged[1:] == [("doc_body_truncated", {"records": 1})]
    assert project.ok("maad_summary")["warnings"]["partialDocs"] == 1


def test_the_pass_of_the_start_is_told_when_a_log_is_there(open_project: Any, logged: Any) -> None:
    project = open_project()
    write_ship(project, "shp-big", "x" * 300)
    project.close()
    opened = open_project(max_doc_bytes=200, boot_reindex=True)
    connect(opened, logged)
    assert [event for event, _ in logged] == ["doc_too_large"]


def test_ids_that_were_changed_in_place_are_told_at_level_info(
    open_project: Any, logged: Any
) -> None:
    project = open_project()
    told: list[dict[str, Any]] = []

    def info(event: str, **members: Any) -> None:
        assert event == "doc_id_changed_in_place"
        told.append(members)

    project.engine.connect_log(lambda event, **members: logged.append((event, members)), info)
    (project.root / "ships").mkdir()
    by_pass, narrowed, watched = (project.root / f"ships/{name}.md" for name in "abc")
    for file in (by_pass, narrowed, watched):
        file.write_text(SHIP.format(id=f"shp-{file.stem}", body=""))
    project.ok("maad_reindex")

    by_pass.write_text(SHIP.format(id="shp-new-a", body=""))
    project.ok("maad_reindex")
    narrowed.write_text(SHIP.format(id="shp-new-b", body=""))
    project.ok("maad_reindex", path="ships/b.md")
    watched.write_text(SHIP.format(id="shp-new-c", body=""))
    project.engine._watching.findings.add(["ships/c.md"], "seen")
    project.settle()
    assert told == [
        {"file": f"ships/{name}.md", "old_doc_id": f"shp-{name}", "doc_id": f"shp-new-{name}"}
        for name in "abc"
    ]
    assert logged == []


def test_of_very_many_changed_ids_the_first_are_told_and_the_rest_counted() -> None:
    changed = [ChangedId(f"ships/{n}.md", f"shp-{n}", f"shp-x-{n}") for n in range(50)]
    notices = changed_id_events(changed)
    assert len(notices) == 21
    assert notices[-1].members == {"count": 50}


def test_schemas_that_are_read_again_name_the_write_that_noticed(
    open_project: Any, logged: Any
) -> None:
    project = open_project()
    connect(project, logged)
    schema = project.root / "_schema/ship.v1.yaml"
    schema.write_text(schema.read_text() + "# a remark\n")
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    project.settle()
    assert logged == [
        (
            "schema_cache_stale",
            {
                "project": "default",
                "trigger_op": "maad_create",
                "changed_files": ["_schema/ship.v1.yaml"],
            },
        )
    ]


def test_an_unwatched_index_that_lost_records_is_completed_behind_the_answers(
    open_project: Any, logged: Any
) -> None:
    project = open_project()
    for number in range(30):
        write_ship(project, f"shp-{number}")
    project.ok("maad_reindex")
    lose(project, [f"shp-{number}" for number in range(20)])
    project.reopen()
    connect(project, logged)
    woken = threading.Event()
    project.engine.connect_wake(woken.set)
    project.engine.start_watching(lambda _: None)
    assert woken.wait(20)
    health = project.ok("maad_health")
    assert health["indexIncomplete"] is True
    assert "indexIncomplete" in [one["code"] for one in health["advisories"]]
    assert [event for event, _ in logged] == ["index_incomplete"]
    project.settle()
    assert project.ok("maad_summary")["totalDocuments"] == 30
    assert "indexIncomplete" not in project.ok("maad_health")


def test_an_unwatched_index_with_a_single_edit_is_left_alone(open_project: Any) -> None:
    project = open_project()
    for number in range(11):
        write_ship(project, f"shp-{number}")
    project.ok("maad_reindex")
    lose(project, ["shp-1"])
    project.reopen()
    project.engine.start_watching(lambda _: None)
    project.engine._watching.stop()
    project.settle()
    assert project.ok("maad_summary")["totalDocuments"] == 10


def test_answers_during_a_pass_say_that_more_may_come(open_project: Any) -> None:
    project = open_project()
    write_ship(project, "shp-1")
    project.ok("maad_reindex")
    met: list[bool] = []

    def read_meanwhile(_progress: Any) -> None:
        reply = project.reply("maad_query", docType="ship")
        met.append(b"INDEX_BEHIND" in msgspec.json.encode(reply.meta))

    project.engine.connect_progress(read_meanwhile)
    call = project.request("maad_reindex", {"force": True}, wants_progress=True)
    [reply] = project.group(call)
    assert reply.ok
    assert met
    assert all(met)
    after = project.reply("maad_query", docType="ship")
    assert b"INDEX_BEHIND" not in msgspec.json.encode(after.meta)


def lose(project: Any, doc_ids: list[str]) -> None:
    """Have the index forget records, as a restored older file does."""
    writer = project.engine._index.writer()
    with writer.transaction():
        for doc_id in doc_ids:
            writer.remove_document(doc_id)
