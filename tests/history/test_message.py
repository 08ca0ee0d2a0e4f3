import pytest

from maadd_worker.history import CommitIdentity, CommitRequest, LogicalWrite
from maadd_worker.history.message import (
    ParsedSubject,
    format_message,
    format_subject,
    parse_body,
    parse_subject,
)

VECTORS = [
    (
        ("create", "ven-northwind", "vendor", "", "Northwind"),
        "maad:create ven-northwind [vendor] — Northwind",
    ),
    (
        ("update", "tkt-2031-004", "ticket", "fields:state", "state changed"),
        "maad:update tkt-2031-004 [ticket] fields:state — state changed",
    ),
    (("delete", "par-7", "part", "soft", "gone"), "maad:delete par-7 [part] soft — gone"),
    (
        ("update", "wo-0007", "work_order", "fields:status", "status: open -> done"),
        "maad:update wo-0007 [work_order] fields:status — status: open -> done",
    ),
    (("create", "c.1", "case-note", "", "a — b"), "maad:create c.1 [case-note] — a — b"),
    (("create", "x", "y", "bulk:3", "3 records"), "maad:create x [y] bulk:3 — 3 records"),
]


@pytest.mark.parametrize(("parts", "subject"), VECTORS)
def test_subjects_are_written_and_read_back(parts, subject):
    assert format_subject(*parts) == subject
    assert parse_subject(subject) == ParsedSubject(*parts)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "docs: fix typo",
        "chore: tidy",
        "maad:create",
        "maad:init — Initialize MAAD project",
        "maad:instructions — refresh managed instructions to 1.0",
        "maad:create x — no type",
        "maad:create x [y] no dash",
        "maad:create a/b [y] — z",
        " maad:create x [y] — z",
        "maad:create x [y] — z\nsecond line",
    ],
)
def test_other_commits_are_not_ours(subject):
    assert parse_subject(subject) is None


def test_subjects_without_a_record():
    assert format_subject("init", "", "", "", "Initialize MAAD project") == (
        "maad:init — Initialize MAAD project"
    )


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("two\nlines\r\nand\tmore", "two lines and more"),
        ("bell\x07 nul\x00 next\x85line", "bell  nul  next line"),
        ("lone \ud800 surrogate", "lone   surrogate"),
        ("a" * 120, "a" * 120),
        ("a" * 121, "a" * 119 + "…"),
        ("", ""),
    ],
)
def test_a_summary_is_one_short_line(summary, shown):
    subject = format_subject("create", "x", "y", "", summary)
    assert subject == f"maad:create x [y] — {shown}"
    parsed = parse_subject(subject)
    assert parsed is not None
    assert parsed.summary == shown


def test_a_detail_cannot_be_taken_for_the_summary():
    parsed = parse_subject(format_subject("update", "x", "y", "fields:a — b", "c"))
    assert parsed == ParsedSubject("update", "x", "y", "fields:a - b", "c")


def test_the_body_names_who_asked_in_a_fixed_order():
    identity = CommitIdentity(user_id="u", agent_id="a", token_id="t", role="writer")
    request = CommitRequest("create", "x", "y", "", "z", (), identity)
    assert format_message(request) == (
        "maad:create x [y] — z\n\nrole: writer\ntoken: t\nagent: a\nuser: u\n"
    )
    assert parse_body(format_message(request)).identity == identity


def test_unknown_members_and_switched_off_identity_are_left_out():
    request = CommitRequest("create", "x", "y", "", "z", (), CommitIdentity(agent_id="a\nb"))
    assert format_message(request) == "maad:create x [y] — z\n\nagent: a b\n"
    assert format_message(request, with_identity=False) == "maad:create x [y] — z\n"
    assert parse_body("").identity is None


def test_a_bulk_commit_names_every_write():
    writes = (
        LogicalWrite("create", "a", "case-note", "", CommitIdentity("writer", "t", "ag", "us")),
        LogicalWrite("update", "b", "y", "fields:k,l"),
    )
    request = CommitRequest("create", "a", "y", "bulk:2", "2 records", (), writes=writes)
    message = format_message(request)
    assert message.splitlines()[2:] == [
        "Maad-Write: create a [case-note] role=writer token=t agent=ag user=us",
        "Maad-Write: update b [y] fields:k,l",
    ]
    assert parse_body(message).writes == writes
