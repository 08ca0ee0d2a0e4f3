"""maad_changes_since: a feed that loses nothing (spec 02 §4.10)."""

from __future__ import annotations

import base64
import datetime as dt
import json

import pytest

from maadd.protocol.arguments import ChangesSinceArgs
from maadd.protocol.errors import MaadError
from maadd_worker.index.rebuilt import EPOCH_KEY
from maadd_worker.read.changes import changes_since


def cursor(**members):
    text = json.dumps(members, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def members(text):
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def feed(answer):
    return " ".join(f"{one['operation']}:{one['docId']}" for one in answer.data["changes"])


@pytest.fixture
def four(project):
    """Records that are created one after the other: d, c, b, a."""
    for name in "dcba":
        project.record("asset", f"ast-{name}", name="N")
        project.reindex()
    return project


def test_changes_come_oldest_first(four):
    answer = four.call("changes_since")

    assert feed(answer) == "create:ast-d create:ast-c create:ast-b create:ast-a"
    assert answer.data["nextCursor"] is None
    assert answer.data["hasMore"] is False
    assert members(answer.data["resumeCursor"])["d"] == "ast-a"


def test_a_walk_by_pages_is_the_one_big_page(four):
    whole = four.call("changes_since").data["changes"]
    walked, at = [], None

    while True:
        page = four.call("changes_since", limit=2, **({"cursor": at} if at else {})).data
        walked += page["changes"]
        at = page["nextCursor"]
        if at is None:
            break

    assert walked == whole
    assert page["hasMore"] is False
    assert len(page["changes"]) == 2


def test_the_tail_can_be_polled(four):
    tail = four.call("changes_since", cursor="").data["resumeCursor"]

    empty = four.call("changes_since", cursor=tail).data
    assert empty == {"changes": [], "nextCursor": None, "hasMore": False, "resumeCursor": tail}

    four.record("asset", "ast-c", name="M")
    four.reindex()
    assert feed(four.call("changes_since", cursor=tail)) == "update:ast-c"


def test_a_record_appears_once_at_its_latest_change(four):
    four.record("asset", "ast-d", name="M")
    four.reindex()

    assert feed(four.call("changes_since")) == (
        "create:ast-c create:ast-b create:ast-a update:ast-d"
    )


def test_nothing_is_lost_under_equal_stamps_or_a_clock_that_steps_back(project):
    project.clock.step = dt.timedelta(0)
    project.record("asset", "ast-b", name="N")
    project.reindex()
    tail = project.call("changes_since").data["resumeCursor"]

    project.clock.now -= dt.timedelta(hours=1)
    project.record("asset", "ast-a", name="N")
    project.reindex()

    answer = project.call("changes_since", cursor=tail)
    assert feed(answer) == "create:ast-a"
    assert answer.data["changes"][0]["updatedAt"] == "2031-02-03T04:05:06.789Z"


def test_types_narrow_the_feed(four):
    four.record("vendor", "ven-1", name="N")
    four.reindex()

    assert feed(four.call("changes_since", docTypes=["vendor"])) == "create:ven-1"
    assert four.call("changes_since", docTypes=[]).raw == four.call("changes_since").raw
    nothing = four.call("changes_since", docTypes=["glider"]).data
    assert nothing["changes"] == []
    assert members(nothing["resumeCursor"])["d"] == "ven-1"


@pytest.mark.parametrize("more", [0, 30], ids=["few types", "many types"])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_walk_over_chosen_types_is_the_feed_without_the_others(project, more, deletes):
    for number in range(4):
        for doc_type, prefix in (("vendor", "ven"), ("asset", "ast"), ("note", "nte")):
            project.record(doc_type, f"{prefix}-{number}", **NAMED.get(doc_type, {}))
        project.reindex()
    project.soft_delete("ven-1")
    project.hard_delete("ast-2")
    chosen = ["vendor", "asset", "vendor", *(f"other{number}" for number in range(more))]
    whole = project.call("changes_since", includeDeletes=deletes).data["changes"]
    cursor, walked = "", []
    while cursor is not None:
        page = project.call(
            "changes_since", cursor=cursor, limit=2, docTypes=chosen, includeDeletes=deletes
        ).data
        walked += page["changes"]
        cursor = page["nextCursor"]
    assert walked == [change for change in whole if change["docType"] in chosen]
    assert len(walked) == (8 if deletes else 6)


NAMED = {"vendor": {"name": "N"}, "asset": {"name": "N"}}


def test_an_empty_project_has_no_place_to_resume_at(project):
    assert project.call("changes_since").data == {
        "changes": [], "nextCursor": None, "hasMore": False, "resumeCursor": None,
    }  # fmt: skip


def test_deletes_are_shown_on_request_only(four):
    four.soft_delete("ast-c")
    four.hard_delete("ast-b")

    assert feed(four.call("changes_since")) == "create:ast-d create:ast-a"
    assert feed(four.call("changes_since", includeDeletes=True)) == (
        "create:ast-d create:ast-a delete:ast-c delete:ast-b"
    )
    assert feed(four.call("changes_since", includeDeletes=True, docTypes=["vendor"])) == ""


def test_a_record_that_goes_and_comes_back_appears_once_too(four):
    tail = four.call("changes_since").data["resumeCursor"]
    for name in ("ast-b", "ast-b", "ast-c", "ast-c"):
        four.hard_delete(name)
        four.record("asset", name, name="N")
        four.reindex()
    four.hard_delete("ast-c")

    assert feed(four.call("changes_since", includeDeletes=True, cursor=tail)) == (
        "create:ast-b delete:ast-c"
    )


def test_the_end_of_a_record_is_told_to_those_who_watch_its_former_type(project):
    project.write("assets/x-1.md", "---\ndoc_id: x-1\ndoc_type: asset\nname: N\n---\n")
    project.reindex()
    project.hard_delete("x-1")
    project.write("vendors/x-1.md", "---\ndoc_id: x-1\ndoc_type: vendor\nname: N\n---\n")
    project.reindex()

    def told(*types):
        return feed(project.call("changes_since", includeDeletes=True, docTypes=list(types)))

    assert told("asset") == "delete:x-1"
    assert told("vendor") == "create:x-1"
    assert told() == "delete:x-1 create:x-1"


def test_a_record_that_became_another_type_by_hand_is_gone_from_the_former(project):
    path = project.write("assets/x-1.md", "---\ndoc_id: x-1\ndoc_type: asset\nname: N\n---\n")
    project.reindex()
    tail = project.call("changes_since").data["resumeCursor"]
    path.write_text("---\ndoc_id: x-1\ndoc_type: vendor\nname: N\n---\n")
    project.reindex()

    def told(*types):
        answer = project.call(
            "changes_since", cursor=tail, includeDeletes=True, docTypes=list(types)
        )
        return feed(answer)

    assert told("asset") == "delete:x-1"
    assert told("vendor") == "update:x-1"
    assert told() == "delete:x-1 update:x-1"


def test_many_types_that_do_not_exist_are_counted(four):
    names = [f"no{number}" for number in range(5000)]
    answer = four.call("changes_since", docTypes=["asset", *names])
    assert len(answer.outcome.warnings) == 21
    assert "4980 more names" in answer.outcome.warnings[-1].message


def test_types_that_do_not_exist_are_named(four):
    answer = four.call("changes_since", docTypes=["aset", "asset", "aset"])
    assert [(found.field, found.code) for found in answer.outcome.warnings] == [
        ("docTypes", "UNKNOWN_TYPE")
    ]
    assert '"aset"' in answer.outcome.warnings[0].message
    assert len(answer.data["changes"]) == 4


def test_a_cursor_of_the_reference_stands_before_the_next_greater_pair(four):
    rows = {one["docId"]: one["updatedAt"] for one in four.call("changes_since").data["changes"]}
    behind_c = cursor(u=rows["ast-c"], d="ast-c")
    last = cursor(u=rows["ast-a"], d="ast-a")

    assert feed(four.call("changes_since", cursor=behind_c)) == "create:ast-b create:ast-a"
    at_end = four.call("changes_since", cursor=last).data
    assert at_end["changes"] == []
    assert at_end["resumeCursor"] == last


def test_the_spelling_of_a_cursor_of_the_reference():
    assert cursor(u="2031-02-03T04:05:06.789Z", d="wo-0007") == (
        "eyJ1IjoiMjAzMS0wMi0wM1QwNDowNTowNi43ODlaIiwiZCI6IndvLTAwMDcifQ"
    )


def test_a_cursor_of_another_epoch_starts_over(four):
    tail = four.call("changes_since").data["resumeCursor"]
    with four.index.writer().transaction():
        four.index.writer().meta_set(EPOCH_KEY, "another")

    answer = four.call("changes_since", cursor=tail)

    assert len(answer.data["changes"]) == 4
    assert answer.codes == ["CURSOR_EPOCH_CHANGED"]


@pytest.mark.parametrize(
    "bad",
    ["%%%", "e30", "eyJ1IjoxLCJkIjoieCJ9", cursor(u="x"), cursor(u="x", d="y", s="z"),
     cursor(u="x", d="y", s=-1), cursor(u="x", d="y", s=2**70), "bm90IGpzb24", "W10", "ä"],
)  # fmt: skip
def test_what_is_no_cursor_is_refused(four, bad):
    with pytest.raises(MaadError) as refusal:
        four.call("changes_since", cursor=bad)
    assert refusal.value.code == "INVALID_FIELDS"
    assert refusal.value.details == {"field": "cursor"}


def test_the_limit_is_bounded_on_both_ends(four):
    assert len(four.call("changes_since", limit=5000).data["changes"]) == 4
    with pytest.raises(MaadError, match="INVALID_FIELDS"), four.reader.snapshot():
        changes_since(four.context(), ChangesSinceArgs(limit=0))
