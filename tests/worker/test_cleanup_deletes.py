"""`maad_bulk_delete` and `maad_delete_where` (spec 03 §5.2-5.4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maadd_worker.write.bulk.cleanup import record_limit


@pytest.fixture
def ships(open_project: Any) -> Any:
    project = open_project()
    records = [
        {"docType": "ship", "fields": {"name": name, "tonnage": tonnage}}
        for name, tonnage in (("Ada", 1), ("Bo", 2), ("Cy", 2), ("Dee", 3))
    ]
    project.ok("maad_bulk_create", records=records)
    project.catch_up()
    project.engine.poll_events()
    return project


def commits(project: Any) -> int:
    return len(project.git("log", "--format=%h").split())


@pytest.mark.parametrize("confirm", [1, "true", {}, None, False, [True]])
def test_only_true_confirms(ships: Any, confirm: Any) -> None:
    data = ships.ok("maad_bulk_delete", docIds=["shp-ada"], confirm=confirm)
    assert data["dryRun"] is True
    assert ships.ok("maad_get", docId="shp-ada")["version"] == 1


def test_a_preview_of_named_records(ships: Any) -> None:
    ids = ["shp-bo", "shp-none", "shp-ada", "shp-bo"]
    data = ships.ok("maad_bulk_delete", docIds=ids, mode="hard")
    token = data.pop("previewToken")
    assert len(token) == 64
    assert data == {
        "dryRun": True,
        "tool": "maad_bulk_delete",
        "confirmMode": "dry_run",
        "totalAffected": 2,
        "affected": [
            {"docId": "shp-bo", "docType": "ship", "filePath": "ships/shp-bo.md"},
            {"docId": "shp-ada", "docType": "ship", "filePath": "ships/shp-ada.md"},
        ],
        "mode": "hard",
        "missing": ["shp-none"],
        "maxRecords": 100,
    }
    assert commits(ships) == 2
    assert ships.ok("maad_summary")["totalDocuments"] == 4


def test_named_records_go_in_one_commit(ships: Any) -> None:
    reply = ships.reply(
        "maad_bulk_delete", docIds=["shp-bo", "shp-none", "shp-ada", "shp-bo"], confirm=True
    )
    data = msgspec.json.decode(reply.body)
    assert data["succeeded"] == [
        {
            "docId": doc_id,
            "docType": "ship",
            "filePath": f"ships/{doc_id}.md",
            "mode": "soft",
            "tombstonePath": f"ships/_deleted_{doc_id}.md",
        }
        for doc_id in ("shp-bo", "shp-ada")
    ]
    assert [(one["docId"], one["code"]) for one in data["failed"]] == [
        ("shp-none", "FILE_NOT_FOUND"),
        ("shp-bo", "FILE_NOT_FOUND"),
    ]
    assert data["totalRequested"] == 4
    assert reply.audit["doc_ids"] == ["shp-bo", "shp-ada"]
    assert [(one.action, one.doc_id) for one in ships.engine.poll_events()] == [
        ("delete", "shp-bo"),
        ("delete", "shp-ada"),
    ]
    ships.catch_up()
    assert ships.git("log", "-1", "--format=%B").strip() == (
        "maad:delete shp-bo [ship] bulk:soft:2 — 2 records deleted (soft)\n\n"
        "Maad-Write: delete shp-bo [ship] soft\nMaad-Write: delete shp-ada [ship] soft"
    )
    assert ships.git("status", "--porcelain") == ""


def test_hard_deletes_leave_neither_file_nor_row(ships: Any) -> None:
    ships.ok("maad_bulk_delete", docIds=["shp-bo"], mode="hard", confirm=True)
    assert not list((ships.root / "ships").glob("*shp-bo*"))
    assert ships.ok("maad_summary")["totalDocuments"] == 3
    ships.ok("maad_create", docType="ship", fields={"name": "Bo"})


def test_a_record_that_is_another_than_the_index_says_stays(ships: Any) -> None:
    path = ships.root / "ships/shp-bo.md"
    path.write_text(path.read_text().replace("doc_type: ship", "doc_type: barge"))
    data = ships.ok("maad_bulk_delete", docIds=["shp-ada", "shp-bo"], confirm=True)
    assert [one["docId"] for one in data["succeeded"]] == ["shp-ada"]
    assert [one["docId"] for one in data["failed"]] == ["shp-bo"]
    assert path.exists()


@pytest.mark.parametrize("confirm", [None, True])
def test_a_scope_over_the_limit_is_refused_in_previews_too(ships: Any, confirm: Any) -> None:
    named = ships.error(
        "maad_bulk_delete", docIds=["shp-ada", "shp-ada"], maxRecords=1, confirm=confirm
    )
    assert named["code"] == "BULK_LIMIT_EXCEEDED"
    assert named["details"] == {
        "tool": "maad_bulk_delete",
        "received": 2,
        "limit": 1,
        "suggestedChunkSize": 1,
    }
    found = ships.error(
        "maad_delete_where", docType="ship", filters={}, maxRecords=3, confirm=confirm
    )
    assert found["details"]["received"] == 4
    assert ships.ok("maad_summary")["totalDocuments"] == 4


def test_a_filter_chooses_what_goes(ships: Any) -> None:
    where = {"docType": "ship", "filters": {"tonnage": 2}}
    preview = ships.ok("maad_delete_where", **where)
    assert preview["affected"] == [
        {"docId": "shp-bo", "docType": "ship"},
        {"docId": "shp-cy", "docType": "ship"},
    ]
    assert (preview["docType"], preview["mode"]) == ("ship", "soft")
    data = ships.ok("maad_delete_where", **where, confirm=True)
    assert [one["docId"] for one in data["succeeded"]] == ["shp-bo", "shp-cy"]
    ships.catch_up()
    before = commits(ships)
    again = ships.ok("maad_delete_where", **where, confirm=True)
    assert again == {
        "succeeded": [],
        "failed": [],
        "totalRequested": 0,
        "writeDurable": True,
    }
    assert commits(ships) == before


def test_more_than_500_records_are_all_found(open_project: Any) -> None:
    project = open_project("feed")
    for start in range(0, 600, 200):
        records = [
            {"docType": "ship", "fields": {"name": f"N{number}"}, "body": ""}
            for number in range(start, start + 200)
        ]
        assert project.ok("maad_bulk_create", records=records)["failed"] == []
    data = project.ok(
        "maad_delete_where", docType="ship", filters={}, maxRecords=1000, confirm=True
    )
    assert len(data["succeeded"]) == 600
    assert project.ok("maad_summary")["totalDocuments"] == 0


def test_a_whole_type_needs_explicit_filters(ships: Any) -> None:
    assert ships.ok("maad_delete_where", docType="ship")["totalAffected"] == 4
    error = ships.error("maad_delete_where", docType="ship", confirm=True)
    assert (error["code"], error["details"]) == ("INVALID_FIELDS", {"field": "filters"})
    data = ships.ok("maad_delete_where", docType="ship", filters={}, confirm=True)
    assert len(data["succeeded"]) == 4


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"docType": "barge", "filters": {}}, "UNKNOWN_TYPE"),
        ({"docType": "ship", "filters": {"name": []}}, "FILTER_EMPTY_ARRAY"),
        (
            {"docType": "ship", "filters": {"name": {"op": "like", "value": "x"}}},
            "FILTER_OP_INVALID",
        ),
    ],
)
def test_errors_of_the_query_pass_through(ships: Any, where: dict[str, Any], code: str) -> None:
    assert ships.error("maad_delete_where", **where)["code"] == code
    assert ships.error("maad_delete_where", **where, confirm=True)["code"] == code


def test_a_filter_on_a_field_without_index_is_told(ships: Any) -> None:
    reply = ships.reply(
        "maad_delete_where", docType="ship", filters={"colour": "red"}, confirm=True
    )
    assert msgspec.json.decode(reply.body)["totalRequested"] == 0
    assert [one["code"] for one in reply.meta["warnings"]] == ["FILTER_FIELD_NOT_INDEXED"]


def test_a_record_edited_outside_may_not_match_any_more_and_stays(ships: Any) -> None:
    path = ships.root / "ships/shp-bo.md"
    path.write_text(path.read_text().replace("tonnage: 2", "tonnage: 9"))
    data = ships.ok("maad_delete_where", docType="ship", filters={"tonnage": 2}, confirm=True)
    assert [one["docId"] for one in data["succeeded"]] == ["shp-cy"]
    assert [(one["docId"], one["code"]) for one in data["failed"]] == [
        ("shp-bo", "VERSION_CONFLICT")
    ]
    assert path.exists()


def test_a_preview_token_holds_as_long_as_nothing_changes(ships: Any) -> None:
    where = {"docType": "ship", "filters": {"tonnage": 2}}
    token = ships.ok("maad_delete_where", **where)["previewToken"]
    assert ships.ok("maad_delete_where", **where)["previewToken"] == token
    ships.ok("maad_update", docId="shp-cy", fields={"name": "Cyd"})
    error = ships.error("maad_delete_where", **where, confirm=True, expectPreview=token)
    assert (error["code"], error["details"]) == ("VERSION_CONFLICT", {"reason": "preview_changed"})
    token = ships.ok("maad_delete_where", **where)["previewToken"]
    data = ships.ok("maad_delete_where", **where, confirm=True, expectPreview=token)
    assert len(data["succeeded"]) == 2


def test_an_expected_preview_guards_named_records_too(ships: Any) -> None:
    token = ships.ok("maad_bulk_delete", docIds=["shp-ada", "shp-bo"])["previewToken"]
    path = ships.root / "ships/shp-bo.md"
    path.write_text(path.read_text().replace("tonnage: 2", "tonnage: 9"))
    data = ships.ok(
        "maad_bulk_delete", docIds=["shp-ada", "shp-bo"], confirm=True, expectPreview=token
    )
    assert [one["docId"] for one in data["succeeded"]] == ["shp-ada"]
    assert data["failed"][0]["code"] == "VERSION_CONFLICT"


def test_a_preview_never_answers_for_a_confirmed_call(ships: Any) -> None:
    call = {"docIds": ["shp-ada"], "idempotencyKey": "k"}
    assert ships.ok("maad_bulk_delete", **call)["dryRun"] is True
    first = ships.reply("maad_bulk_delete", **call, confirm=True)
    assert "replayed" not in first.meta
    again = ships.reply("maad_bulk_delete", **call, confirm=True)
    assert again.meta["replayed"] is True
    assert msgspec.json.decode(again.body) == msgspec.json.decode(first.body)
    assert ships.ok("maad_bulk_delete", **call)["missing"] == ["shp-ada"]


def test_a_confirmed_dry_run_deletes_nothing_and_has_no_data(ships: Any) -> None:
    calls = [
        ships.request("maad_bulk_delete", {"docIds": ["shp-ada"], "confirm": True}, dry_run=True),
        ships.request(
            "maad_delete_where", {"docType": "ship", "filters": {}, "confirm": True}, dry_run=True
        ),
        ships.request("maad_delete", {"docId": "shp-ada", "mode": "hard"}, dry_run=True),
    ]
    assert [(reply.ok, reply.body) for reply in ships.group(*calls)] == [(True, b"")] * 3
    assert ships.ok("maad_summary")["totalDocuments"] == 4


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        (None, 100),
        (2500, 1000),
        (1000, 1000),
        (0, 100),
        (-3, 100),
        (0.5, 100),
        (7.9, 7),
        (1, 1),
        (float("inf"), 100),
        (float("nan"), 100),
        (10**400, 1000),
        (True, 100),
        ("5", 100),
    ],
)
def test_the_limit_of_a_call(asked: object, limit: int) -> None:
    assert record_limit(asked, 100) == limit


def test_the_limit_of_a_project_applies_without_an_argument(open_project: Any) -> None:
    project = open_project(cleanup_max_records_bulk_delete=1)
    error = project.error("maad_bulk_delete", docIds=["a", "b"])
    assert error["details"]["limit"] == 1
    assert project.ok("maad_bulk_delete", docIds=["a", "b"], maxRecords=2)["maxRecords"] == 2


@pytest.mark.parametrize(
    ("setting", "tool", "args"),
    [
        ("delete_where", "maad_delete_where", {"docType": "ship"}),
        (
            "repair_where",
            "maad_repair_where",
            {"docType": "ship", "repairTypes": ["fix_schema_drift"]},
        ),
        ("purge_soft_deleted", "maad_purge_soft_deleted", {}),
    ],
)
def test_each_cleanup_tool_has_a_limit_of_its_own(
    open_project: Any, setting: str, tool: str, args: dict[str, Any]
) -> None:
    project = open_project("feed", **{f"cleanup_max_records_{setting}": 1})
    for name in ("Ada", "Bo"):
        project.ok("maad_create", docType="ship", fields={"name": name})
    if tool != "maad_purge_soft_deleted":
        error = project.error(tool, **args)
        assert (error["code"], error["details"]["limit"]) == ("BULK_LIMIT_EXCEEDED", 1)
        assert error["details"]["suggestedChunkSize"] == 1
        assert project.ok(tool, **args, maxRecords=7.9)["maxRecords"] == 7
    else:
        assert project.ok(tool)["maxRecords"] == 1
        assert project.ok(tool, maxRecords=2500)["maxRecords"] == 1000


def test_a_scope_may_lie_behind_a_ref(ships: Any) -> None:
    for number, ship in enumerate(("shp-ada", "shp-bo", "shp-gone")):
        ships.ok("maad_create", docType="voyage", docId=f"voy-{number}", fields={"ship": ship})
    scope = {"docType": "voyage", "filters": {"ship->name": {"op": "neq", "value": "Ada"}}}
    assert ships.ok("maad_delete_where", **scope)["totalAffected"] == 1
    ships.ok("maad_delete_where", **scope, confirm=True, mode="hard")
    left = ships.ok("maad_query", docType="voyage", sortBy="docId", sortOrder="asc")["results"]
    assert [row["docId"] for row in left] == ["voy-0", "voy-2"]
