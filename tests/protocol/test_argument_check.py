"""Step 0 of a call: arguments fit, or `INVALID_ARGS` names everything that does not (04 §1.2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from maadd.protocol.arguments import (
    BackupArgs,
    BulkUpdateArgs,
    CreateArgs,
    DeleteWhereArgs,
    GetArgs,
    QueryArgs,
    UpdateArgs,
    UseProjectArgs,
    VerifyArgs,
)
from maadd.protocol.errors import MaadError
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import (
    MAX_ISSUES,
    check_arguments,
    decode_arguments,
    unknown_tool_error,
)

DIGEST = "a" * 64
GUARDED: dict[str, Any] = {
    "contract": "guarded-create-v1",
    "docType": "memo",
    "docId": "me-1",
    "fields": {"topic": "Harbour"},
    "body": "",
    "expectedSchemaDigest": DIGEST,
    "expectedContentDigest": DIGEST,
    "allowedHistoryModes": ["audit"],
}


def check(tool: str, raw: Any) -> Any:
    return check_arguments(TOOLS[tool], raw)


def issues(tool: str, raw: Any) -> dict[str, str]:
    """Path to message of the problems of a call that must be refused."""
    with pytest.raises(MaadError) as caught:
        check(tool, raw)
    assert caught.value.code == "INVALID_ARGS"
    details = caught.value.details
    assert details is not None
    assert set(details) == {"tool", "issues"}
    assert details["tool"] == tool
    return {issue["path"]: issue["message"] for issue in details["issues"]}


def suggestion(tool: str, argument: str) -> Any:
    with pytest.raises(MaadError) as caught:
        check(tool, {argument: "x"})
    details = caught.value.details
    assert details is not None
    return next(issue.get("suggestion") for issue in details["issues"] if issue["path"] == argument)


class TestGoodCalls:
    def test_wire_names_become_attributes(self) -> None:
        assert check("maad_get", {"docId": "wo-1", "depth": "warm", "block": "x"}) == GetArgs(
            doc_id="wo-1", depth="warm", block="x"
        )

    def test_what_is_not_given_has_its_default(self) -> None:
        args = check("maad_query", {"docType": "asset"})
        assert args == QueryArgs(doc_type="asset")
        assert (args.limit, args.offset, args.sort_order, args.project) == (50, 0, "desc", None)

    def test_no_arguments_at_all_are_an_empty_object(self) -> None:
        assert check("maad_summary", None) == check("maad_summary", {})

    def test_names_with_a_leading_underscore_reach_nobody(self) -> None:
        assert check("maad_get", {"docId": "a", "_meta": None, "_x": 1}) == GetArgs(doc_id="a")
        assert check("maad_create_guarded", {**GUARDED, "_trace": "t"})

    def test_a_nested_name_with_a_leading_underscore_is_unknown(self) -> None:
        raw = {"updates": [{"docId": "a", "_x": 1}]}
        assert list(issues("maad_bulk_update", raw)) == ["updates[0]._x"]

    @pytest.mark.parametrize("limit", [3, 3.0])
    def test_an_integral_number_is_an_integer(self, limit: float) -> None:
        args = check("maad_query", {"docType": "asset", "limit": limit})
        assert args.limit == 3
        assert type(args.limit) is int

    def test_as_is_the_requested_role(self) -> None:
        assert check("maad_use_project", {"name": "a", "as": "reader"}) == UseProjectArgs(
            name="a", requested_role="reader"
        )

    def test_items_are_typed(self) -> None:
        args = check("maad_bulk_update", {"updates": [{"docId": "a", "expectedVersion": 2}]})
        assert isinstance(args, BulkUpdateArgs)
        assert args.updates[0].expected_version == 2
        assert args.updates[0].fields is UNSET

    def test_arguments_survive_the_way_to_a_worker(self) -> None:
        raw = {"docType": "asset", "filters": {"status": None}, "fields": ["a"], "limit": 50}
        args = check("maad_query", raw)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(args))
        assert sent == {"docType": "asset", "filters": {"status": None}, "fields": ["a"]}
        assert check("maad_query", sent) == args

    def test_a_default_spelled_out_is_the_same_call(self) -> None:
        plain, spelled = check("maad_reindex", {}), check("maad_reindex", {"force": False})
        assert msgspec.json.encode(plain) == msgspec.json.encode(spelled)


class TestBadCalls:
    @pytest.mark.parametrize(
        ("tool", "raw", "path"),
        [
            ("maad_get", {}, "docId"),
            ("maad_get", {"docId": 7}, "docId"),
            ("maad_get", {"docId": "a", "depth": "deep"}, "depth"),
            ("maad_get", {"docId": "a", "depth": ["hot"]}, "depth"),
            ("maad_get", {"docId": "a", "project": 1}, "project"),
            ("maad_query", {"docType": "a", "limit": 0}, "limit"),
            ("maad_query", {"docType": "a", "limit": -1}, "limit"),
            ("maad_query", {"docType": "a", "limit": 1.5}, "limit"),
            ("maad_query", {"docType": "a", "limit": 2**60}, "limit"),
            ("maad_query", {"docType": "a", "limit": 1e300}, "limit"),
            ("maad_query", {"docType": "a", "limit": float("inf")}, "limit"),
            ("maad_query", {"docType": "a", "limit": "5"}, "limit"),
            ("maad_query", {"docType": "a", "offset": -1}, "offset"),
            ("maad_query", {"docType": "a", "includeFilePath": 1}, "includeFilePath"),
            ("maad_query", {"docType": "a", "fields": "x"}, "fields"),
            ("maad_query", {"docType": "a", "fields": ["x", 1]}, "fields[1]"),
            ("maad_relationship_paths", {"startDocId": "a", "maxDepth": 5}, "maxDepth"),
            ("maad_relationship_paths", {"startDocId": "a", "fieldLabels": [""]}, "fieldLabels[0]"),
            ("maad_join", {"docType": "a", "refs": [], "refFields": {"x": "y"}}, "refFields.x"),
            ("maad_aggregate", {"groupBy": "a", "metric": {"field": "x"}}, "metric.op"),
            ("maad_aggregate", {"groupBy": "a", "metric": []}, "metric"),
            ("maad_verify", {"mode": "integrity", "expectedCount": "1"}, "expectedCount"),
            ("maad_history", {"docId": "a", "limit": 1001}, "limit"),
            ("maad_delete", {"docId": "a", "idempotencyKey": "k" * 129}, "idempotencyKey"),
            ("maad_bulk_create", {"records": [{"docType": "a"}]}, "records[0].fields"),
            ("maad_bulk_create", {"records": [3]}, "records[0]"),
            ("maad_bulk_delete", {"docIds": []}, "docIds"),
            ("maad_repair_where", {"docType": "a", "repairTypes": []}, "repairTypes"),
            ("maad_use_projects", {"names": []}, "names"),
            ("maad_use_projects", {"names": ["p"] * 65}, "names"),
            ("maad_issue_token", {"role": "owner", "projects": [{"name": "*"}]}, "role"),
            ("maad_issue_token", {"role": "reader", "projects": []}, "projects"),
            ("maad_issue_token", {"role": "reader", "projects": ["alpha"]}, "projects[0]"),
            ("maad_get", [], ""),
            ("maad_get", "docId", ""),
        ],
    )  # fmt: skip
    def test_refused_at(self, tool: str, raw: Any, path: str) -> None:
        assert list(issues(tool, raw)) == [path]

    @pytest.mark.parametrize("limit", [True, False])
    def test_a_boolean_is_no_number(self, limit: bool) -> None:
        assert "integer" in issues("maad_query", {"docType": "a", "limit": limit})["limit"]
        raw = {"mode": "count", "docType": "a", "expectedCount": limit}
        assert "number" in issues("maad_verify", raw)["expectedCount"]

    @pytest.mark.parametrize(
        ("tool", "raw", "path"),
        [
            ("maad_get", {"docId": "a", "block": None}, "block"),
            ("maad_get", {"docId": None}, "docId"),
            ("maad_query", {"docType": "a", "limit": None}, "limit"),
            ("maad_update", {"docId": "a", "body": None}, "body"),
            ("maad_bulk_update", {"updates": [{"docId": "a", "body": None}]}, "updates[0].body"),
            ("maad_join", {"docType": "a", "refs": [None]}, "refs[0]"),
        ],
    )  # fmt: skip
    def test_null_is_not_absence(self, tool: str, raw: Any, path: str) -> None:
        assert "null" in issues(tool, raw)[path]

    def test_everything_wrong_is_named_at_once(self) -> None:
        raw = {"doctype": "a", "limit": 0, "sortOrder": "up", "filters": "x"}
        assert set(issues("maad_query", raw)) == {"doctype", "docType", "limit", "sortOrder"}

    def test_values_never_stand_in_the_answer(self) -> None:
        with pytest.raises(MaadError) as caught:
            check("maad_create", {"docType": 1, "fields": {}, "body": ["secret body"]})
        assert "secret" not in f"{caught.value.message}{caught.value.details}"

    def test_a_flood_of_problems_is_described_in_part(self) -> None:
        with pytest.raises(MaadError, match="and 480 more problems") as caught:
            check("maad_use_project", {"name": "a", **{f"x{n}": 0 for n in range(500)}})
        assert caught.value.details is not None
        assert len(caught.value.details["issues"]) == MAX_ISSUES

    @pytest.mark.parametrize("name", ["x" * 100_000, "\ud83d", "a\nb"])
    def test_any_argument_name_gives_an_answer_that_can_be_sent(self, name: str) -> None:
        with pytest.raises(MaadError) as caught:
            check("maad_get", {"docId": "a", name: 1})
        assert len(msgspec.json.encode(caught.value.wire())) < 1_000

    @pytest.mark.parametrize(
        ("raw", "refused"),
        [
            ({"docType": "a", "sortOrder": "\ud83d"}, ["sortOrder"]),
            ({"docType": "a", "\ud83d": None}, ["?"]),
            ({"docType": "\ud83d", "fields": ["\ud83d"], "filters": {"\ud83d": "\ud83d"}}, []),
        ],
    )
    def test_half_a_surrogate_pair_is_no_special_case(
        self, raw: dict[str, Any], refused: list[str]
    ) -> None:
        if refused:
            assert list(issues("maad_query", raw)) == refused
        else:
            assert check("maad_query", raw)


class TestSuggestions:
    @pytest.mark.parametrize(
        ("argument", "meant"),
        [
            ("doc_id", "docId"),
            ("docid", "docId"),
            ("id", "docId"),
            ("dept", "depth"),
            ("zzzzzz", None),
        ],
    )
    def test_unknown_argument(self, argument: str, meant: str | None) -> None:
        assert suggestion("maad_get", argument) == meant

    @pytest.mark.parametrize(
        ("tool", "meant"),
        [("maad_gett", "maad_get"), ("maad-query", "maad_query"), ("get", "maad_get"), ("", None)],
    )
    def test_unknown_tool(self, tool: str, meant: str | None) -> None:
        with pytest.raises(MaadError, match="unknown tool") as caught:
            decode_arguments(tool, {})
        issue: dict[str, str] = {"path": "", "message": f"unknown tool {tool!r}"}
        if meant:
            issue["message"] += f", did you mean {meant!r}?"
            issue["suggestion"] = meant
        assert caught.value.details == {"tool": tool, "issues": [issue]}

    def test_a_known_tool_is_decoded_by_name(self) -> None:
        assert decode_arguments("maad_get", {"docId": "a"}) == GetArgs(doc_id="a")

    def test_a_tool_that_this_server_does_not_offer_is_told_apart(self) -> None:
        error = unknown_tool_error("maad_delete")
        assert error.code == "INVALID_ARGS"
        assert "not offered" in error.message
        assert "did you mean" not in error.message

    def test_a_tool_that_is_not_available_is_unknown(self) -> None:
        hidden = [spec.name for spec in TOOLS.values() if not spec.available]
        for name in hidden:
            with pytest.raises(MaadError, match="unknown tool"):
                decode_arguments(name, {})


class TestValuesJudgedElsewhere:
    """Bad values with a code or a meaning of their own pass the schema."""

    @pytest.mark.parametrize("fields", [None, [], 7, "{}", {"a": 1}])
    def test_fields_of_a_record(self, fields: Any) -> None:
        args = check("maad_create", {"docType": "a", "fields": fields})
        assert isinstance(args, CreateArgs)
        assert args.fields == fields
        assert check("maad_update", {"docId": "a", "fields": fields}).fields == fields

    def test_fields_that_are_absent_are_told_from_null(self) -> None:
        args = check("maad_update", {"docId": "a"})
        assert isinstance(args, UpdateArgs)
        assert args.fields is UNSET

    @pytest.mark.parametrize("filters", [None, [], "x", {}, {"a": {"op": "nope"}}])
    def test_filters(self, filters: Any) -> None:
        assert check("maad_query", {"docType": "a", "filters": filters}).filters == filters

    @pytest.mark.parametrize("confirm", [True, 1, "true", {}, None])
    def test_confirm(self, confirm: Any) -> None:
        args = check("maad_delete_where", {"docType": "a", "confirm": confirm})
        assert isinstance(args, DeleteWhereArgs)
        assert args.confirm == confirm
        assert (args.confirm is True) == (confirm is True)

    @pytest.mark.parametrize("max_records", [0, 7.9, 2500, "5", None])
    def test_max_records(self, max_records: Any) -> None:
        raw = {"docIds": ["a"], "maxRecords": max_records}
        assert check("maad_bulk_delete", raw).max_records == max_records

    def test_an_unknown_primitive(self) -> None:
        assert check("maad_search", {"primitive": "feeling"}).primitive == "feeling"

    def test_an_expected_null_is_a_value(self) -> None:
        raw = {"mode": "field", "docId": "a", "field": "b", "expected": None}
        args = check("maad_verify", raw)
        assert isinstance(args, VerifyArgs)
        assert args.expected is None


class TestArgumentsThatBelongTogether:
    def test_verify_needs_what_its_mode_needs(self) -> None:
        assert set(issues("maad_verify", {"mode": "field"})) == {"docId", "field", "expected"}
        assert set(issues("maad_verify", {"mode": "count"})) == {"docType", "expectedCount"}
        assert check("maad_verify", {"mode": "integrity"})

    def test_deleting_a_backup_needs_its_tag(self) -> None:
        assert set(issues("maad_backup", {"mode": "delete"})) == {"tag"}
        assert check("maad_backup", {}) == BackupArgs()

    def test_a_token_names_each_project_once(self) -> None:
        raw = {"role": "reader", "projects": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}
        assert set(issues("maad_issue_token", raw)) == {"projects[2].name"}


class TestStrictTools:
    def test_guarded_create_needs_every_member(self) -> None:
        assert check("maad_create_guarded", GUARDED)
        for member in GUARDED:
            short = {name: value for name, value in GUARDED.items() if name != member}
            assert list(issues("maad_create_guarded", short)) == [member]

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("contract", "guarded-create-v2"),
            ("docType", ""),
            ("docType", "x" * 257),
            ("docId", "x" * 129),
            ("fields", "{}"),
            ("fields", None),
            ("fields", []),
            ("body", None),
            ("expectedSchemaDigest", "A" * 64),
            ("expectedSchemaDigest", "a" * 63),
            ("expectedSchemaDigest", "a" * 65),
            ("expectedSchemaDigest", "a" * 64 + "\n"),
            ("expectedContentDigest", "sha256:" + "a" * 57),
            ("allowedHistoryModes", []),
            ("allowedHistoryModes", ["audit", "audit"]),
            ("allowedHistoryModes", "audit"),
            ("idempotencyKey", "k"),
            ("path", "elsewhere"),
        ],
    )
    def test_guarded_create_refuses(self, member: str, value: Any) -> None:
        assert list(issues("maad_create_guarded", {**GUARDED, member: value})) == [member]

    @pytest.mark.parametrize("mode", ["git", "Audit"])
    def test_guarded_create_knows_five_history_modes(self, mode: str) -> None:
        raw = {**GUARDED, "allowedHistoryModes": [mode]}
        assert list(issues("maad_create_guarded", raw)) == ["allowedHistoryModes[0]"]
        every = ["audit", "feed", "read", "batch", "snapshot"]
        assert check("maad_create_guarded", {**GUARDED, "allowedHistoryModes": every})

    @pytest.mark.parametrize(
        ("delivery", "path"),
        [
            ({}, "delivery.format"),
            ({"format": "compact-json-v2"}, "delivery.format"),
            ({"format": "compact-json-v1", "maxBytes": 8_191}, "delivery.maxBytes"),
            ({"format": "compact-json-v1", "maxBytes": 1_048_577}, "delivery.maxBytes"),
            ({"format": "compact-json-v1", "maxBytes": 9_000.5}, "delivery.maxBytes"),
            ({"format": "compact-json-v1", "cursor": "x" * 129}, "delivery.cursor"),
            ({"format": "compact-json-v1", "cursor": None}, "delivery.cursor"),
            ({"format": "compact-json-v1", "page": 1}, "delivery.page"),
            ({"format": "compact-json-v1", "maxBytes": 8_192}, None),
            ({"format": "compact-json-v1", "maxBytes": 1_048_576, "cursor": "x" * 128}, None),
        ],
    )
    def test_delivery_is_closed_and_bounded(
        self, delivery: dict[str, Any], path: str | None
    ) -> None:
        raw = {"contract": "create-contract-v1", "docType": "memo", "delivery": delivery}
        if path is None:
            assert check("maad_create_contract", raw)
        else:
            assert list(issues("maad_create_contract", raw)) == [path]
