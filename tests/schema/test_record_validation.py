from __future__ import annotations

from typing import Any

import pytest

from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import TypeEntry, parse_registry
from maadd_worker.schema.schema import Schema
from maadd_worker.schema.schema_file import parse_schema
from maadd_worker.schema.validation import (
    Mode,
    ValidationReport,
    id_prefix_warning,
    validate,
)
from maadd_worker.schema.write_rules import (
    ConstraintViolation,
    PrecisionDrift,
    constraint_violations,
    precision_drift,
)

ALL_MODES: tuple[Mode, ...] = ("write", "read", "index", "audit")
STORED_MODES: tuple[Mode, ...] = ("read", "index", "audit")

REGISTRY = parse_registry(
    {
        "types": {
            "site": {"path": "sites", "id_prefix": "sit", "schema": "site.v1"},
            "sample": {"path": "samples", "id_prefix": "smp", "schema": "sample.v2"},
        }
    }
)
MODEL = Model(REGISTRY, {}, {})

SAMPLE_FIELDS: dict[str, dict[str, Any]] = {
    "title": {"type": "string"},
    "site": {"type": "ref", "target": "site"},
    "status": {"type": "enum", "values": ["drying", "stored", "007"], "default": "drying"},
    "taken": {"type": "date"},
    "season": {"type": "date", "format": "YYYY-season"},
    "grams": {"type": "number"},
    "viable": {"type": "boolean"},
    "value": {"type": "amount"},
    "labels": {"type": "list"},
    "counts": {"type": "list", "item_type": "number"},
    "tests": {"type": "list", "item_type": "enum", "values": ["cut", "x_ray"]},
    "parents": {"type": "list", "item_type": "ref", "target": "sample"},
    "checked": {"type": "list", "item_type": "date", "format": "YYYY-MM-DD"},
    "noted": {"type": "list", "item_type": "date"},
    "grid": {"type": "list", "item_type": "list"},
}


def schema(fields: dict[str, Any], required: list[str] | None = None) -> Schema:
    document = {"type": "sample", "fields": fields, "required": required or []}
    return parse_schema("sample.v2", document, REGISTRY.types)


SAMPLE = schema(SAMPLE_FIELDS)


def judge(
    frontmatter: dict[str, Any],
    mode: Mode = "write",
    *,
    by: Schema = SAMPLE,
    changed: set[str] | None = None,
) -> ValidationReport:
    return validate(by, MODEL, frontmatter, mode, changed)


def message(field: str, value: object) -> str:
    (finding,) = judge({field: value}).errors
    assert finding.field == field
    assert finding.code is None
    return finding.message


def test_a_sound_record_has_no_findings() -> None:
    record = {
        "doc_id": "smp-one",
        "title": "One",
        "site": "sit-ridge",
        "status": "007",
        "taken": "2031-07-14T09:30",
        "season": "2031-spring",
        "grams": 12.5,
        "viable": False,
        "value": "340.00 EUR",
        "labels": ["a", ""],
        "counts": [1, 2.5],
        "tests": ["cut"],
        "parents": ["smp-two", "smp-two"],
        "checked": ["2031-08-01"],
        "noted": ["some day"],
        "grid": [["a"], []],
        "extra": {"anything": [1]},
    }
    for mode in ALL_MODES:
        report = judge(record, mode)
        assert report == ValidationReport()
        assert report.valid


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("title", 77, "Expected string, got number"),
        ("title", True, "Expected string, got boolean"),
        ("title", ["a"], "Expected string, got object"),
        ("title", {"a": 1}, "Expected string, got object"),
        ("grams", "heavy", 'Expected finite number, got "heavy"'),
        ("grams", True, "Expected finite number, got true"),
        ("grams", float("nan"), "Expected finite number, got NaN"),
        ("grams", float("-inf"), "Expected finite number, got -Infinity"),
        ("viable", "yes", "Expected boolean, got string"),
        ("viable", 1, "Expected boolean, got number"),
        ("taken", "May", 'format YYYY-MM-DD, got "May"'),
        ("taken", "2029-03", "YYYY-MM-DD"),
        ("taken", 2029, "YYYY-MM-DD, got 2029"),
        ("season", 5, "YYYY-season, got 5, a number; put it in quotes"),
        ("status", "eaten", '"eaten" not in enum [drying, stored, 007]'),
        ("status", 7, "7 not in enum"),
        ("status", "Drying", "not in enum"),
        ("site", "valley", 'must start with "sit-"'),
        ("site", "smp-one", 'type "site"'),
        ("site", ["sit-a"], 'must start with "sit-"'),
        ("value", "5EUR", "<number> <CURRENCY>"),
        ("value", "-5 EUR", "<number> <CURRENCY>"),
        ("value", "1,200 EUR", "<number> <CURRENCY>"),
        ("value", "5 eur", "<number> <CURRENCY>"),
        ("value", "5 EUR\n", "<number> <CURRENCY>"),
        ("value", "٥ EUR", "<number> <CURRENCY>"),
        ("value", 5, "<number> <CURRENCY>"),
        ("labels", "alpine", "expected array of string, got string"),
        ("counts", {"a": 1}, "expected array of number, got object"),
        ("grid", [["a"], "b"], None),
    ],
)
def test_a_value_of_the_wrong_shape_is_described(
    field: str, value: object, part: str | None
) -> None:
    if part is None:
        assert [finding.field for finding in judge({field: value}).errors] == ["grid[1]"]
    else:
        assert part in message(field, value)


@pytest.mark.parametrize("value", ["12 USD", "12.50\tUSD", "0 XXX", "1  EUR", "1\u00a0EUR"])
def test_amounts_take_any_white_space_before_the_currency(value: str) -> None:
    assert judge({"value": value}).valid


@pytest.mark.parametrize(
    ("field", "value", "places"),
    [
        ("labels", ["a", 1, None], ["labels[1]", "labels[2]"]),
        ("counts", [1, "two", True], ["counts[1]", "counts[2]"]),
        ("tests", ["cut", "sniff"], ["tests[1]"]),
        ("parents", ["smp-a", "sit-b", ""], ["parents[1]", "parents[2]"]),
        ("checked", ["2031-1-1", "2031-01-01"], ["checked[0]"]),
        ("grid", [["a", 1], [None]], ["grid[0][1]", "grid[1][0]"]),
    ],
)
def test_list_items_are_judged_one_by_one(field: str, value: object, places: list[str]) -> None:
    assert [finding.field for finding in judge({field: value}).errors] == places


def test_null_items_count_as_objects() -> None:
    (finding,) = judge({"labels": [None]}).errors
    assert finding.message == "Expected string, got object"


def test_long_values_are_cut_in_messages() -> None:
    assert len(message("grams", "x" * 10_000)) < 200


@pytest.mark.parametrize("mode", ALL_MODES)
def test_structural_rules_run_in_every_mode(mode: Mode) -> None:
    report = judge({"title": 1, "grams": "x"}, mode, changed=set())
    assert [finding.field for finding in report.errors] == ["title", "grams"]


def test_missing_required_fields_come_first_with_a_hint() -> None:
    by = schema(SAMPLE_FIELDS, required=["doc_id", "doc_type", "schema", *SAMPLE_FIELDS])
    report = judge({"title": 5, "grams": None}, by=by)
    hints = {finding.field: finding.message for finding in report.errors}
    assert report.errors[-1].field == "title"
    assert all(text.startswith("Required field missing") for text in list(hints.values())[:-1])
    assert "doc_type" not in hints
    assert "schema" not in hints
    assert "status" not in hints, "a default stands in for the value"
    assert set(hints) >= {"doc_id", "site", "grams"}
    assert 'ref to site, an id that starts with "sit-"' in hints["site"]
    assert "date, format YYYY-MM-DD" in hints["taken"]
    assert "number" in hints["grams"]
    assert "1250.00 USD" in hints["value"]
    assert "list of enum, one of cut, x_ray" in hints["tests"]
    assert "list of ref to sample" in hints["parents"]
    assert "true or false" in hints["viable"]


@pytest.mark.parametrize(("default", "valid"), [("x", True), (False, True), (None, False)])
def test_a_default_that_is_not_null_excuses_a_missing_field(default: object, valid: bool) -> None:
    by = schema({"flag": {"type": "string", "default": default}}, required=["flag"])
    assert judge({}, by=by).valid is valid


def test_an_empty_text_satisfies_required() -> None:
    assert judge({"title": ""}, by=schema(SAMPLE_FIELDS, required=["title"])).valid


@pytest.mark.parametrize(
    "value", ["2026-13-45", "2026-04-01 garbage", "2026-02-29", "2026-04-16+02:00"]
)
def test_impossible_dates_are_refused_for_new_values_only(value: str) -> None:
    (finding,) = judge({"taken": value}).errors
    assert (finding.field, finding.code) == ("taken", "FIELD_DATE_INVALID")
    assert value in finding.message
    (finding,) = judge({"checked": ["2026-04-01", value]}).errors
    assert (finding.field, finding.code) == ("checked[1]", "FIELD_DATE_INVALID")
    assert judge({"season": value, "noted": [value]}).valid
    assert judge({"taken": value, "checked": [value]}, changed={"title"}).valid
    for mode in STORED_MODES:
        assert judge({"taken": value, "checked": [value]}, mode).valid


PRECISE = schema(
    {
        "made": {"type": "date", "format": "loose", "store_precision": "day"},
        "sealed": {
            "type": "date",
            "store_precision": "minute",
            "on_coarser": "error",
            "on_finer": "error",
        },
        "seen": {"type": "date", "store_precision": "day", "on_finer": "warn"},
    }
)


@pytest.mark.parametrize(
    ("field", "value", "codes"),
    [
        ("made", "2026-04", ["PRECISION_COARSER_THAN_DECLARED"]),
        ("made", "2026", ["PRECISION_COARSER_THAN_DECLARED"]),
        ("made", "2026-04-01", []),
        ("made", "2026-04-01T10:00", []),
        ("made", "about 2026", []),
        ("seen", "2026-04-01T10:00", ["PRECISION_FINER_THAN_DECLARED"]),
        ("seen", "2026-04-01", []),
        ("sealed", "2026-04-01T10:00Z", []),
    ],
)
def test_precision_is_advised(field: str, value: str, codes: list[str]) -> None:
    report = judge({field: value}, by=PRECISE)
    assert report.valid
    assert [finding.code for finding in report.warnings] == codes
    for mode in STORED_MODES:
        assert judge({field: value}, mode, by=PRECISE) == ValidationReport()
    assert judge({field: value}, by=PRECISE, changed={"other"}) == ValidationReport()


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("2026-04-01", "day-precision"),
        ("2026-04-01T10:00:30", "second-precision"),
    ],
)
def test_precision_is_refused_where_the_schema_says_error(value: str, part: str) -> None:
    (finding,) = judge({"sealed": value}, by=PRECISE).errors
    assert part in finding.message
    assert "store_precision=minute" in finding.message


def test_an_old_coarse_date_never_blocks_its_neighbours() -> None:
    record = {"sealed": "2026-04-01", "seen": "2026-04-02"}
    assert judge(record, by=PRECISE, changed={"seen"}).valid
    assert not judge(record, by=PRECISE, changed={"sealed"}).valid


TEXT = schema(
    {
        "text": {"type": "string", "max_length": 8, "soft_max_length": 5, "multiline": False},
        "free": {"type": "string", "multiline": True},
    }
)


@pytest.mark.parametrize(
    ("value", "errors", "warnings"),
    [
        ("short", [], []),
        ("sixsix", [], [("FIELD_SOFT_MAX_LENGTH_EXCEEDED", 6, 5)]),
        (
            "123456789",
            [("FIELD_MAX_LENGTH_EXCEEDED", 9, 8)],
            [("FIELD_SOFT_MAX_LENGTH_EXCEEDED", 9, 5)],
        ),
        ("a\nb", [("FIELD_MULTILINE_NOT_ALLOWED", None, None)], []),
        ("a\rb", [("FIELD_MULTILINE_NOT_ALLOWED", None, None)], []),
        ("😀" * 5, [], []),
        ("e\u0301" * 3, [], [("FIELD_SOFT_MAX_LENGTH_EXCEEDED", 6, 5)]),
    ],
)
def test_text_constraints_count_code_points(
    value: str,
    errors: list[tuple[str, int | None, int | None]],
    warnings: list[tuple[str, int | None, int | None]],
) -> None:
    report = judge({"text": value, "free": "a\nb"}, by=TEXT)
    assert [(f.code, f.actual, f.limit) for f in report.errors] == errors
    assert [(f.code, f.actual, f.limit) for f in report.warnings] == warnings
    assert judge({"text": value}, by=TEXT, changed={"free"}) == ValidationReport()
    for mode in STORED_MODES:
        assert judge({"text": value}, mode, by=TEXT) == ValidationReport()


@pytest.mark.parametrize("doc_id", ["bad id", "CON", "-x", ""])
def test_a_stored_id_outside_the_grammar_makes_the_record_invalid(doc_id: str) -> None:
    for mode in STORED_MODES:
        (finding,) = judge({"doc_id": doc_id}, mode).errors
        assert finding.field == "doc_id"
    assert judge({"doc_id": doc_id}, "write").valid


def test_an_id_without_the_prefix_of_its_type_is_advised() -> None:
    entry: TypeEntry = REGISTRY.types["site"]
    assert id_prefix_warning(entry, "sit-ridge") is None
    finding = id_prefix_warning(entry, "ridge")
    assert finding is not None
    assert (finding.field, finding.code) == ("doc_id", "ID_PREFIX_MISMATCH")


def test_the_audit_lists_drift_also_where_the_structure_is_wrong() -> None:
    record = {"made": "2026-04", "sealed": "2026-04-01", "seen": "2026-04-01T10:00"}
    assert precision_drift(PRECISE, record) == [
        PrecisionDrift("made", "day", "month", "coarser"),
        PrecisionDrift("sealed", "minute", "day", "coarser"),
        PrecisionDrift("seen", "day", "minute", "finer"),
    ]
    assert precision_drift(PRECISE, {"sealed": "2026-04", "made": 5, "seen": None}) == [
        PrecisionDrift("sealed", "minute", "month", "coarser")
    ]


def test_the_audit_lists_constraint_violations() -> None:
    assert constraint_violations(TEXT, {"text": "far too\nlong"}) == [
        ConstraintViolation("text", "FIELD_MULTILINE_NOT_ALLOWED", None, None, "error"),
        ConstraintViolation("text", "FIELD_MAX_LENGTH_EXCEEDED", 12, 8, "error"),
        ConstraintViolation("text", "FIELD_SOFT_MAX_LENGTH_EXCEEDED", 12, 5, "warning"),
    ]
    assert constraint_violations(TEXT, {"text": 5}) == []
