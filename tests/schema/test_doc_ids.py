from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.schema.ids import (
    check_doc_id,
    doc_id_fault,
    has_type_prefix,
    next_sequence,
    sequence_prefix,
    slug_id,
)
from maadd_worker.schema.registry import TypeEntry

VENDOR = TypeEntry(name="vendor", path="vendors", id_prefix="ven", schema_ref="vendor.v1")


@pytest.mark.parametrize(
    "doc_id",
    [
        "a",
        "cli-acme",
        "client.v1",
        "snake_case_id",
        "Acme123",
        "console-log",
        "con-air",
        "x" * 128,
    ],
)
def test_well_formed_ids_are_accepted(doc_id: str) -> None:
    check_doc_id(doc_id)


@pytest.mark.parametrize(
    ("doc_id", "reason"),
    [
        ("", "EMPTY"),
        (None, "EMPTY"),
        (7, "EMPTY"),
        ("x" * 129, "TOO_LONG"),
        ("." * 129, "TOO_LONG"),
        ("a\x00b", "CONTROL_CHARS"),
        ("a\nb", "CONTROL_CHARS"),
        ("ab\n", "CONTROL_CHARS"),
        ("a\x7f", "CONTROL_CHARS"),
        ("../x", "LEADING_DOT"),
        (".hidden", "LEADING_DOT"),
        ("a..b", "CONTAINS_DOTDOT"),
        ("foo..bar", "CONTAINS_DOTDOT"),
        ("a/b", "INVALID_CHARS"),
        ("foo\\bar", "INVALID_CHARS"),
        ("/etc/passwd", "INVALID_CHARS"),
        ("café", "INVALID_CHARS"),
        ("é", "INVALID_CHARS"),
        ("a b", "INVALID_CHARS"),
        ("x.", "INVALID_CHARS"),
        ("-x", "INVALID_CHARS"),
        ("foo-", "INVALID_CHARS"),
        ("٣", "INVALID_CHARS"),
        ("CON", "WINDOWS_RESERVED"),
        ("LPT1", "WINDOWS_RESERVED"),
        ("com0", "WINDOWS_RESERVED"),
        ("nul.txt", "WINDOWS_RESERVED"),
    ],
)
def test_a_refused_id_reports_the_first_broken_rule(doc_id: object, reason: str) -> None:
    with pytest.raises(MaadError) as caught:
        check_doc_id(doc_id)
    assert caught.value.code == "INVALID_DOC_ID"
    assert caught.value.details == {"reason": reason}


def test_a_device_name_before_a_dot_is_refused_for_new_records_only() -> None:
    assert doc_id_fault("nul.txt") is None
    assert doc_id_fault("nul.txt", stem=True) == "WINDOWS_RESERVED"


@pytest.mark.parametrize(
    ("text", "doc_id"),
    [
        ("Björk & Søn, Ltd.", "ven-bjrk-sn-ltd"),
        ("  Harbour -- Light  ", "ven-harbour-light"),
        ("Q3 Budget (Draft #2)", "ven-q3-budget-draft-2"),
        ("東京", None),
        ("---", None),
        ("a" * 39 + " b", "ven-" + "a" * 39),
        ("a" * 60, "ven-" + "a" * 40),
        (
            "The quick brown fox jumps over the lazy dog again",
            "ven-the-quick-brown-fox-jumps-over-the-lazy",
        ),
    ],
)
def test_an_id_is_made_of_the_name(text: str, doc_id: str | None) -> None:
    assert slug_id(VENDOR, {"name": text}) == doc_id


def test_the_title_serves_where_there_is_no_name() -> None:
    assert slug_id(VENDOR, {"title": "Spring"}) == "ven-spring"
    assert slug_id(VENDOR, {"name": 5, "title": "Spring"}) == "ven-spring"
    assert slug_id(VENDOR, {"name": "Autumn", "title": "Spring"}) == "ven-autumn"
    assert slug_id(VENDOR, {"name": "東京", "title": "Tokyo"}) is None
    assert slug_id(VENDOR, {}) is None


@pytest.mark.parametrize(
    ("existing", "doc_id"),
    [
        ([], "ven-2031-001"),
        (["ven-2031-001", "ven-2031-007", "ven-2031-003"], "ven-2031-008"),
        (["ven-2031-014-old"], "ven-2031-015"),
        (["ven-2031-999"], "ven-2031-1000"),
        (["ven-2031-1000", "ven-2031-999"], "ven-2031-1001"),
        (["ven-2031-draft", "ven-2030-050", "oth-2031-090", "ven-2031-"], "ven-2031-001"),
    ],
)
def test_a_sequence_goes_on_after_its_highest_number(existing: list[str], doc_id: str) -> None:
    assert next_sequence(sequence_prefix(VENDOR, 2031), existing) == doc_id


def test_only_ids_with_the_prefix_of_the_type_can_be_referred_to() -> None:
    assert has_type_prefix(VENDOR, "ven-northwind")
    assert not has_type_prefix(VENDOR, "vendor-northwind")
    assert not has_type_prefix(VENDOR, "ven")
