"""Which texts are dates to Git; the accepted ones are compared with the program itself."""

from __future__ import annotations

import subprocess
import time

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.git_dates import FORMS, git_date_fault
from maadd.protocol.validation import decode_arguments

UNDERSTOOD = [
    "2026-05-02",
    "2026-5-2",
    "2026-05-02T14:30:00Z",
    "2026-05-02T14:30:00.123Z",
    "2026-05-02T14:30",
    "2026-05-02 14:30:00 +0200",
    "2026-05-02T14:30:00+02:00",
    "2024-02-29",
    "20260502T143000",
    "2026/05/02",
    "2026.05.02",
    "02.05.2026",
    "31/12/2025",
    "12/31/2025",
    "May 2 2026",
    "2 May 2026",
    "May 2nd, 2026",
    "12 feb",
    "Thu, 7 Apr 2005 15:14:13 -0700",
    "Thu Apr 7 15:14:13 2005 +0200",
    "2026-05-02 5pm",
    "yesterday",
    "YESTERDAY",
    "yesterday noon",
    "6am yesterday",
    "2 weeks ago",
    "2.weeks.ago",
    "2 weeks 3 days ago",
    "one week ago",
    "2 tuesdays ago",
    "last monday",
    "last week",
    "3pm last friday",
    "3 hours ago",
    "@1700000000",
    "1700000000",
    "@1700000000 +0100",
    "never",
]

NOT_UNDERSTOOD = [
    "",
    "  ",
    "garbage",
    "soon",
    "tomorrow",
    "next week",
    "a week ago",
    "week ago",
    "2 weeks agoo",
    "foo 2 weeks ago",
    "1 fortnight ago",
    "monday",
    "tuesday at 5pm",
    "last",
    "last foo",
    "ago",
    "pm",
    "+0200",
    "12",
    "5000",
    "20260502",
    "99999999999999999999",
    "2026-05",
    "2026-13-45",
    "2026-13-12",
    "2026-02-30",
    "2027-02-29",
    "2026-00-10",
    "1899-01-01",
    "45/13/2026",
    "32 may 2026",
    "2026-05-02T25:00:00Z",
    "2026-05-02T99",
    "2026-05-02x",
    "25:61",
    "2026-05-02; rm",
    "--help",
    "@",
    "[[",
    "\u0662 weeks ago",
    "2026-05-02\x00",
    "\ud800",
    "2026-05-02 " * 100,
]


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_what_git_reads_is_accepted(text: str) -> None:
    assert git_date_fault(text) is None


@pytest.mark.parametrize("text", ["now", "today", "noon", "midnight", "noon today", "10:30"])
def test_moments_of_this_day_are_accepted(text: str) -> None:
    assert git_date_fault(text) is None


def test_git_takes_none_of_the_accepted_texts_for_now() -> None:
    """Which it does with a text of which it knows nothing."""
    before = time.time()
    asked = [f"--since={text}" for text in UNDERSTOOD]
    done = subprocess.run(["git", "rev-parse", *asked], capture_output=True, text=True, check=True)
    moments = [int(line.removeprefix("--max-age=")) for line in done.stdout.split()]
    assert len(moments) == len(UNDERSTOOD)
    near = [text for text, moment in zip(UNDERSTOOD, moments, strict=True) if moment > before - 60]
    assert near == []


@pytest.mark.parametrize("text", NOT_UNDERSTOOD)
def test_what_git_would_leave_out_is_refused(text: str) -> None:
    assert git_date_fault(text)


@pytest.mark.parametrize(
    ("tool", "argument"),
    [("maad_history", "since"), ("maad_audit", "since"), ("maad_audit", "until")],
)
@pytest.mark.parametrize("text", ["garbage", "2026-13-45"])
def test_the_refusal_names_the_argument_and_the_forms(tool: str, argument: str, text: str) -> None:
    other = {"docId": "wo-1"} if tool == "maad_history" else {}
    with pytest.raises(MaadError) as caught:
        decode_arguments(tool, {argument: text, **other})
    assert caught.value.code == "INVALID_ARGS"
    assert caught.value.details is not None
    (issue,) = caught.value.details["issues"]
    assert issue["path"] == argument
    assert FORMS in issue["message"]


def test_both_bounds_are_judged_at_once() -> None:
    with pytest.raises(MaadError) as caught:
        decode_arguments("maad_audit", {"since": "soon", "until": "later"})
    assert caught.value.details is not None
    assert [issue["path"] for issue in caught.value.details["issues"]] == ["since", "until"]
