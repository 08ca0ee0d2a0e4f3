"""`maad_bulk_create` through an open project (spec 03 §4.4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maadd.protocol.messages import Identity
from maadd_worker.write.bulk.readback import Submitted, sample_indexes, verify

NOTHING_VERIFIED = {"sampledIds": [], "sampled": 0, "passed": 0, "mismatches": []}


def ship(name: str, **more: Any) -> dict[str, Any]:
    return {"docType": "ship", "fields": {"name": name}, **more}


def messages(project: Any) -> list[str]:
    """Every commit message, oldest first."""
    log: str = project.git("log", "--reverse", "--format=%B%x00")
    return [text.strip() for text in log.split("\0") if text.strip()]


def test_good_records_are_written_and_bad_ones_are_listed(open_project: Any) -> None:
    project = open_project()
    data = project.ok(
        "maad_bulk_create",
        records=[
            ship("Ada"),
            {"docType": "barge", "fields": {"name": "x"}},
            ship("Ada"),
            {"docType": "ship", "fields": {"tonnage": 3}, "docId": "shp-nameless"},
            ship("Bo", body="# Bo\n\nText"),
            ship("Odd", docId="odd id"),
            {"docType": "ship", "fields": {"name": "G", "doc_id": "shp-g"}},
            {"docType": "ship", "fields": '{"name": "Json"}'},
        ],
    )
    assert [(one["index"], one["docId"]) for one in data["succeeded"]] == [
        (0, "shp-ada"),
        (4, "shp-bo"),
        (7, "shp-json"),
    ]
    assert data["succeeded"][0] | {"contentHash": ""} == {
        "index": 0,
        "docId": "shp-ada",
        "docType": "ship",
        "filePath": "ships/shp-ada.md",
        "version": 1,
        "contentHash": "",
    }
    assert [(one["index"], one["docId"], one["code"]) for one in data["failed"]] == [
        (1, None, "UNKNOWN_TYPE"),
        (2, "shp-ada", "DUPLICATE_DOC_ID"),
        (3, "shp-nameless", "VALIDATION_FAILED"),
        (5, "odd id", "INVALID_DOC_ID"),
        (6, None, "FRONTMATTER_GUARD"),
    ]
    assert all(one["error"].startswith(f"{one['code']}: ") for one in data["failed"])
    assert data["failed"][1]["details"]["suggestedDocId"] == "shp-ada-2"
    assert data["totalRequested"] == 8
    assert data["verification"] == {
        "sampledIds": ["shp-ada", "shp-bo", "shp-json"],
        "sampled": 3,
        "passed": 3,
        "mismatches": [],
    }
    assert data["writeDurable"] is True
    assert project.text("ships/shp-bo.md").endswith("name: Bo\n---\n\n# Bo\n\nText\n")


def test_every_finding_of_a_record_is_told(open_project: Any) -> None:
    project = open_project()
    bad = {"docType": "ship", "fields": {"name": "x" * 41, "tonnage": "heavy"}}
    [failed] = project.ok("maad_bulk_create", records=[bad])["failed"]
    assert [error["details"]["field"] for error in failed["errors"]] == ["name", "tonnage"]
    assert failed["details"]["field"] == "name"


def test_one_commit_names_every_record(open_project: Any) -> None:
    project = open_project()
    reply = project.reply(
        "maad_bulk_create",
        Identity("tok-1", agent_id="agt-7"),
        records=[ship("Ada"), ship("Bo"), {"docType": "voyage", "fields": {"ship": "shp-bo"}}],
    )
    project.catch_up()
    voyage = msgspec.json.decode(reply.body)["succeeded"][2]["docId"]
    who = "role=admin token=tok-1 agent=agt-7"
    [message] = messages(project)[1:]
    assert message == (
        "maad:create shp-ada [ship] bulk:3 — 3 records created\n\n"
        "role: admin\ntoken: tok-1\nagent: agt-7\n\n"
        f"Maad-Write: create shp-ada [ship] {who}\n"
        f"Maad-Write: create shp-bo [ship] {who}\n"
        f"Maad-Write: create {voyage} [voyage] {who}"
    )
    assert reply.meta["history"]["outcome"] == "committed"
    assert project.git("status", "--porcelain") == ""
    [entry] = project.ok("maad_history", docId="shp-bo")
    assert (entry["action"], entry["bulkSize"]) == ("create", 3)
    assert entry["sha"] == reply.meta["history"]["sha"]
    named = {one["docId"]: one["identity"]["agentId"] for one in project.ok("maad_audit")}
    assert named == dict.fromkeys(("shp-ada", "shp-bo", voyage), "agt-7")


def test_the_audit_members_name_all_records(open_project: Any) -> None:
    project = open_project()
    reply = project.reply("maad_bulk_create", records=[ship("Ada"), ship("Bo")])
    assert reply.audit == {
        "doc_id": None,
        "doc_ids": ["shp-ada", "shp-bo"],
        "doc_type": "ship",
        "version_before": None,
        "version_after": None,
        "changed_fields": ["name"],
        "git_commit": reply.meta["history"]["sha"],
    }
    nothing = project.reply("maad_bulk_create", records=[ship("Ada")])
    assert nothing.ok
    assert nothing.audit is None


def test_each_record_is_announced(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_bulk_create", records=[ship("Ada"), ship("Ada"), ship("Bo")])
    events = project.engine.poll_events()
    assert [(one.action, one.doc_id, one.origin) for one in events] == [
        ("create", "shp-ada", "tool"),
        ("create", "shp-bo", "tool"),
    ]
    assert events[0].seq < events[1].seq


def test_nothing_asked_is_nothing_done(open_project: Any) -> None:
    project = open_project()
    reply = project.reply("maad_bulk_create", records=[])
    assert msgspec.json.decode(reply.body) == {
        "succeeded": [],
        "failed": [],
        "totalRequested": 0,
        "verification": NOTHING_VERIFIED,
        "warnings": [],
        "writeDurable": True,
    }
    assert reply.meta["history"]["outcome"] == "none"
    assert len(messages(project)) == 1


def test_numbers_go_on_within_a_call(open_project: Any) -> None:
    project = open_project()
    record = {"docType": "voyage", "fields": {"ship": "shp-x"}}
    data = project.ok("maad_bulk_create", records=[record] * 3)
    assert [one["docId"][-3:] for one in data["succeeded"]] == ["001", "002", "003"]


def test_warnings_name_the_record_and_the_field(open_project: Any) -> None:
    project = open_project()
    reply = project.reply(
        "maad_bulk_create",
        records=[
            ship("Ada"),
            {"docType": "voyage", "fields": {"ship": "shp-ada"}, "docId": "voy-near"},
            {"docType": "voyage", "fields": {"ship": "shp-gone"}, "docId": "voy-far"},
        ],
    )
    data = msgspec.json.decode(reply.body)
    assert [one.get("warnings", []) for one in data["succeeded"][:2]] == [[], []]
    assert data["succeeded"][2]["warnings"][0]["field"] == "ship"
    assert [(one["field"], one["code"]) for one in data["warnings"]] == [
        ("voy-far.ship", "REF_TARGET_MISSING")
    ]
    assert reply.meta["warnings"] == data["warnings"]


def test_lists_and_booleans_are_no_false_mismatch(open_project: Any, project: Any) -> None:
    (project / "_schema/ship.v1.yaml").write_text(
        "type: ship\nversion: 1\nrequired: [doc_id, name]\nfields:\n"
        "  name: {type: string, index: true}\n  afloat: {type: boolean, index: true}\n"
        "  tags: {type: list, item_type: string, index: true}\n"
        "  built: {type: date, index: true}\n  price: {type: amount, index: true}\n"
    )
    fields = {
        "name": "Ada",
        "afloat": True,
        "tags": ["b", "a", "b"],
        "built": "2031-02-03",
        "price": "120.50 EUR",
    }
    data = open_project().ok("maad_bulk_create", records=[{"docType": "ship", "fields": fields}])
    assert data["verification"]["mismatches"] == []
    assert data["verification"]["passed"] == 1


def test_an_index_that_lies_is_found_by_reading_back(open_project: Any) -> None:
    project = open_project()
    project.index_trigger(
        "AFTER INSERT ON field_values WHEN new.field_value = 'Bo' BEGIN "
        "UPDATE field_values SET field_value = 'Ob' WHERE doc_id = new.doc_id "
        "AND field_name = new.field_name; END"
    )
    data = project.ok("maad_bulk_create", records=[ship("Ada"), ship("Bo")])
    assert len(data["succeeded"]) == 2
    assert data["verification"]["passed"] == 1
    assert data["verification"]["mismatches"] == [
        {"docId": "shp-bo", "field": "_index.name", "expected": ["Bo"], "actual": ["Ob"]}
    ]


@pytest.mark.parametrize(
    ("sent", "field", "shown"),
    [
        ({"fields": {"tonnage": "5"}}, None, ()),
        ({"fields": {"colour": None}}, None, ()),
        ({"fields": {"note": "7"}}, None, ()),
        ({"fields": {"tonnage": 6}}, "tonnage", (6, 5)),
        ({"fields": {"flag": 1}}, "flag", (1, True)),
        ({"fields": {"flag": "true"}}, "flag", ("true", True)),
        ({"fields": {"tags": ["b", "a"]}}, "tags", (["b", "a"], ["a", "b"])),
        ({"fields": {"colour": "red"}}, "colour", ("red", None)),
        ({"fields": {}, "body": " Text\r\n"}, None, ()),
        ({"fields": {}, "body": "Texts"}, "_body", ("5 chars", "4 chars")),
        ({"fields": {}, "append_body": "ext"}, None, ()),
        ({"fields": {}, "append_body": "More"}, "_appendBody", ("4 chars", "4 chars")),
    ],
)
def test_what_was_sent_is_compared_with_what_is_there(
    shared: Any, sent: dict[str, Any], field: str | None, shown: tuple[Any, ...]
) -> None:
    fields = {"name": "Read", "tonnage": 5, "flag": True, "tags": ["a", "b"], "note": 7}
    shared.reply("maad_create", docType="ship", fields=fields, body="Text")
    report = verify(shared.engine._write_context(), [Submitted("shp-read", "ship", **sent)])
    about = [one for one in report["mismatches"] if not one["field"].startswith("_index.")]
    expected = [] if field is None else [
        {"docId": "shp-read", "field": field, "expected": shown[0], "actual": shown[1]}
    ]  # fmt: skip
    assert about == expected
    assert report["passed"] == (0 if report["mismatches"] else 1)


@pytest.mark.parametrize(
    ("spoil", "field", "actual"),
    [
        ("gone", "_index", "missing"),
        ("unreadable", "_readable", "PARSE_ERROR"),
    ],
)
def test_a_record_that_cannot_be_read_back_is_told(
    shared: Any, spoil: str, field: str, actual: str
) -> None:
    doc_id = f"shp-{spoil}"
    if spoil == "unreadable":
        shared.ok("maad_create", docType="ship", fields={"name": spoil})
        (shared.root / f"ships/{doc_id}.md").write_text("---\nname: [\n---\n")
    report = verify(shared.engine._write_context(), [Submitted(doc_id, "ship", {"name": "x"})])
    [found] = report["mismatches"]
    assert (found["field"], found["actual"], report["passed"]) == (field, actual, 0)


@pytest.mark.parametrize(
    ("number", "indexes"),
    [
        (0, []),
        (1, [0]),
        (20, list(range(20))),
        (25, [0, 2, 5, 7, 10, 12, 15, 17, 20, 22]),
        (50, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]),
    ],
)
def test_the_sample_is_evenly_spaced(number: int, indexes: list[int]) -> None:
    assert sample_indexes(number) == indexes


def test_a_record_that_cannot_be_indexed_leaves_no_file(open_project: Any) -> None:
    project = open_project()
    project.index_trigger(
        "BEFORE INSERT ON documents WHEN new.doc_id = 'shp-bo' BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    data = project.ok("maad_bulk_create", records=[ship("Ada"), ship("Bo"), ship("Cy")])
    assert [one["docId"] for one in data["succeeded"]] == ["shp-ada", "shp-cy"]
    [failed] = data["failed"]
    assert failed["code"] == "BACKEND_ERROR"
    assert failed["details"]["fileWritten"] is False
    assert not (project.root / "ships/shp-bo.md").exists()
    assert "bulk:2" in messages(project)[-1]
    assert "shp-bo" not in messages(project)[-1]


def test_when_the_index_fails_as_a_whole_nothing_stays(open_project: Any) -> None:
    project = open_project()
    project.index_trigger(
        "BEFORE INSERT ON documents WHEN new.doc_id = 'shp-bo' "
        "BEGIN SELECT RAISE(ROLLBACK, 'full'); END"
    )
    data = project.ok("maad_bulk_create", records=[ship("Ada"), ship("Bo"), ship("Cy")])
    assert data["succeeded"] == []
    assert {one["code"] for one in data["failed"]} == {"BACKEND_ERROR"}
    assert data["verification"] == NOTHING_VERIFIED
    assert list((project.root / "ships").iterdir()) == []
    assert project.ok("maad_summary")["totalDocuments"] == 0
    assert len(messages(project)) == 1


class TestAtomic:
    def test_all_records_are_written_together(self, open_project: Any) -> None:
        project = open_project()
        data = project.ok("maad_bulk_create", records=[ship("Ada"), ship("Bo")], atomic=True)
        assert len(data["succeeded"]) == 2
        assert project.ok("maad_summary")["totalDocuments"] == 2

    def test_one_bad_record_stops_all_and_is_named(self, open_project: Any) -> None:
        project = open_project()
        records = [ship("Ada"), {"docType": "ship", "fields": {}}, ship("Ada")]
        reply = project.reply("maad_bulk_create", records=records, atomic=True)
        assert not reply.ok
        errors = msgspec.json.decode(reply.body)
        assert [(one["code"], one["details"]["index"]) for one in errors] == [
            ("VALIDATION_FAILED", 1),
            ("DUPLICATE_DOC_ID", 2),
        ]
        assert not (project.root / "ships").exists()
        assert len(messages(project)) == 1

    def test_a_record_that_cannot_be_indexed_takes_all_back(self, open_project: Any) -> None:
        project = open_project()
        project.index_trigger(
            "BEFORE INSERT ON documents WHEN new.doc_id = 'shp-bo' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        error = project.error(
            "maad_bulk_create", records=[ship("Ada"), ship("Bo"), ship("Cy")], atomic=True
        )
        assert error["code"] == "BACKEND_ERROR"
        assert list((project.root / "ships").iterdir()) == []
        assert project.ok("maad_summary")["totalDocuments"] == 0

    def test_a_file_that_cannot_be_written_takes_all_back(self, open_project: Any) -> None:
        project = open_project()
        (project.root / "voyages").write_text("in the way\n")
        voyage = {"docType": "voyage", "fields": {"ship": "shp-ada"}}
        reply = project.reply("maad_bulk_create", records=[ship("Ada"), voyage], atomic=True)
        assert not reply.ok
        assert not (project.root / "ships/shp-ada.md").exists()
        assert project.ok("maad_summary")["totalDocuments"] == 0


def test_a_bulk_and_a_single_write_keep_their_order(open_project: Any) -> None:
    project = open_project()
    bulk = project.request("maad_bulk_create", {"records": [ship(f"N{n}") for n in range(10)]})
    single = project.request("maad_create", ship("Last"))
    first = project.request("maad_create", ship("First"))
    replies = project.group(first, bulk, single)
    assert all(reply.ok for reply in replies)
    project.catch_up()
    assert [text.split(" — ")[0] for text in messages(project)[1:]] == [
        "maad:create shp-first [ship]",
        "maad:create shp-n0 [ship] bulk:10",
        "maad:create shp-last [ship]",
    ]


def test_a_repeated_key_replays_the_whole_answer(open_project: Any) -> None:
    project = open_project()
    call = {"records": [ship("Ada"), {"docType": "ship", "fields": {}}], "idempotencyKey": "k"}
    first = project.reply("maad_bulk_create", **call)
    again = project.reply("maad_bulk_create", **call)
    assert msgspec.json.decode(again.body) == msgspec.json.decode(first.body)
    assert again.meta["replayed"] is True
    assert again.meta["original_request_id"] == first.request_id
    assert project.ok("maad_summary")["totalDocuments"] == 1
    other = {**call, "records": [ship("Bo")]}
    assert project.error("maad_bulk_create", **other)["code"] == "IDEMPOTENCY_KEY_REUSED"
    project.ok("maad_delete", docId="shp-ada", mode="hard")
    assert "replayed" not in project.reply("maad_bulk_create", **call).meta


def test_an_atomic_failure_is_not_kept(open_project: Any) -> None:
    project = open_project()
    call = {"records": [ship("Ada")], "atomic": True, "idempotencyKey": "k"}
    (project.root / "ships").mkdir()
    (project.root / "ships/shp-ada.md").write_text("mine\n")
    assert project.error("maad_bulk_create", **call)["code"] == "DUPLICATE_DOC_ID"
    (project.root / "ships/shp-ada.md").unlink()
    assert "replayed" not in project.reply("maad_bulk_create", **call).meta


def test_an_atomic_call_that_the_disk_refused_is_not_kept(open_project: Any) -> None:
    project = open_project()
    voyage = {"docType": "voyage", "fields": {"ship": "shp-ada"}}
    call = {"records": [ship("Ada"), voyage], "atomic": True, "idempotencyKey": "k"}
    (project.root / "voyages").write_text("in the way\n")
    assert not project.reply("maad_bulk_create", **call).ok
    (project.root / "voyages").unlink()
    again = project.reply("maad_bulk_create", **call)
    assert again.ok
    assert "replayed" not in again.meta


def test_a_withdrawn_call_writes_nothing(open_project: Any) -> None:
    project = open_project()
    project.admits = False
    call = project.request("maad_bulk_create", {"records": [ship("Ada")]})
    assert project.deliveries(call) == []
    assert not (project.root / "ships").exists()


def test_a_dry_run_judges_every_record(open_project: Any) -> None:
    project = open_project()
    records = [ship("Ada"), ship("Ada"), {"docType": "voyage", "fields": {"ship": "shp-x"}}]
    [reply] = project.group(project.request("maad_bulk_create", {"records": records}, dry_run=True))
    data = msgspec.json.decode(reply.body)
    assert (data["dryRun"], data["valid"]) == (True, False)
    assert [(one["index"], one["code"]) for one in data["errors"]] == [(1, "DUPLICATE_DOC_ID")]
    assert [one["index"] for one in data["records"]] == [0, 2]
    assert data["records"][0]["filePath"] == "ships/shp-ada.md"
    assert [one["code"] for one in data["warnings"]] == ["REF_TARGET_MISSING"]
    assert not (project.root / "ships").exists()
