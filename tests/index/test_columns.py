"""Ordered columns and the selections made of them (spec 02 §4.2)."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maadd_worker.index import columns as columns_module
from maadd_worker.index import pages, selections
from maadd_worker.index.columns import Column
from maadd_worker.index.pages import query_page
from maadd_worker.index.scope import Part, build_scope
from maadd_worker.index.sorting import DEFAULT_SORT

KEYS = ["", "a", "b", "ba", "c", "é", "点"]
RECORDS = st.integers(0, 40)


def members(bits: int) -> set[int]:
    return {record for record in range(bits.bit_length()) if bits >> record & 1}


def holds(op: str, key: str, bound: str) -> bool:
    return {
        "eq": key == bound,
        "gt": key > bound,
        "gte": key >= bound,
        "lt": key < bound,
        "lte": key <= bound,
    }[op]


@settings(max_examples=150)
@given(
    st.dictionaries(RECORDS, st.sampled_from(KEYS), max_size=40),
    st.lists(st.tuples(RECORDS, st.one_of(st.none(), st.sampled_from(KEYS))), max_size=20),
)
def test_a_column_knows_what_passes_whatever_changed(start, changes):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns_module, "_SHORTEST", 3)
        column = Column(sorted((key, record) for record, key in start.items()))
        value_of = dict(start)
        for record, key in [(0, value_of.get(0)), *changes]:
            column.put(record, key)
            value_of.pop(record, None)
            if key is not None:
                value_of[record] = key
            assert len(column) == len(value_of)
            assert members(column.everything()) == set(value_of)
            for bound in KEYS:
                for op in ("eq", "gt", "gte", "lt", "lte"):
                    passing = {one for one, held in value_of.items() if holds(op, held, bound)}
                    assert members(column.passing(Part(op, bound, False))) == passing
            chosen = {one for one, held in value_of.items() if held in ("a", "点")}
            assert members(column.passing(Part("in", ("a", "点", "none"), False))) == chosen


def test_a_column_finds_substrings_among_given_records():
    texts = ["Ölpumpe", "Pumpe", "größer", "", "İstanbul", "pum", "日本 PUMP\0x"]
    column = Column(sorted((text, record * 70) for record, text in enumerate(texts)))
    column.put(70, None)
    everybody = sum(1 << record * 70 for record in range(9))
    for text in ("pump", "PUMP", "ö", "Ö", "", "ß", "i", "\0X", "本 p"):
        # Only ASCII letters fold.
        fold = str.maketrans(ascii_uppercase, ascii_lowercase)
        wanted = {
            record * 70
            for record, held in enumerate(texts)
            if text.translate(fold) in held.translate(fold) and record != 1
        }
        assert members(column.holding(text, everybody)) == wanted
        assert members(column.holding(text, everybody & ~1)) == wanted - {0}


def test_a_substring_is_looked_for_in_what_other_filters_leave(tasks, reader, monkeypatch):
    both = {"state": {"op": "contains", "value": "DON"}, "points": {"op": "gte", "value": 35}}
    assert select(tasks, reader, both) == ["tsk-35", "tsk-38"]
    tasks.index_file(tasks.task("tsk-35", state="parked", points="35"))
    tasks.index_file(tasks.task("tsk-50", state="undone", points="50"))
    assert select(tasks, reader, both) == ["tsk-38", "tsk-50"]
    monkeypatch.setattr(selections, "_FEW_TEXTS", 0)
    assert select(tasks, reader, both) == ["tsk-38", "tsk-50"]
    # Kept by now as a set of its own.
    monkeypatch.setattr(selections, "_FEW_TEXTS", 10)
    tasks.index_file(tasks.task("tsk-38", state="parked", points="38"))
    assert select(tasks, reader, both) == ["tsk-50"]


@pytest.fixture(autouse=True)
def _columns_for_everything(monkeypatch):
    monkeypatch.setattr(pages, "_SAMPLE", 0)
    monkeypatch.setattr(pages, "_FEW", -1)
    monkeypatch.setattr(selections, "_ASKED", 0)


def select(project, reader, filters) -> list[str] | None:
    """The ids that columns give for filters on tasks; None when they cannot tell."""
    scope = build_scope("task", filters, project.model)
    fingerprint = project.plans.fingerprint("task")
    with reader.snapshot():
        state = pages.read_type_state(reader.connection, "task", fingerprint)
        found = reader.selections.select(reader.connection, scope, state, fingerprint)
    return None if found is None else sorted(found.ids())


@pytest.fixture
def tasks(project):
    for number in range(40):
        project.task(
            f"tsk-{number:02}",
            state=("todo", "doing", "done")[number % 3],
            points=str(number),
            labels="[x, y]" if number == 7 else "[x]",
        )
    project.run()
    return project


BOTH = {"state": "done", "points": {"op": "gte", "value": 30}}


def test_filters_combine(tasks, reader):
    assert select(tasks, reader, BOTH) == ["tsk-32", "tsk-35", "tsk-38"]
    excluded = {"state": {"op": "neq", "value": "done"}, "points": {"op": "lt", "value": 4}}
    assert select(tasks, reader, excluded) == ["tsk-00", "tsk-01", "tsk-03"]


def test_columns_are_made_for_repeated_questions_only(tasks, reader, monkeypatch):
    monkeypatch.setattr(selections, "_ASKED", 2)
    assert [select(tasks, reader, BOTH) is None for _ in range(4)] == [True, True, False, False]


def test_changes_are_followed(tasks, reader):
    assert select(tasks, reader, BOTH) == ["tsk-32", "tsk-35", "tsk-38"]
    tasks.index_file(tasks.task("tsk-32", state="todo", points="32"))
    tasks.index_file(tasks.task("tsk-50", state="done", points="50"))
    tasks.index_file(tasks.member("mbr-a"))
    with tasks.writer.transaction():
        tasks.writer.remove_document("tsk-35")
        tasks.writer.tombstone("tsk-38", "work/tasks/_deleted_tsk-38.md")
    assert select(tasks, reader, BOTH) == ["tsk-50"]


def test_a_stopped_call_leaves_nothing_half_followed(tasks, reader, monkeypatch):
    assert select(tasks, reader, BOTH) == ["tsk-32", "tsk-35", "tsk-38"]
    tasks.index_file(tasks.task("tsk-32", state="todo", points="32"))
    with monkeypatch.context() as patched:
        patched.setattr(selections, "_VALUES", "SELECT no_such_column")
        with pytest.raises(apsw.SQLError):
            select(tasks, reader, BOTH)
    assert select(tasks, reader, BOTH) == ["tsk-35", "tsk-38"]


def test_after_many_changes_columns_are_dropped_and_made_again(tasks, reader, monkeypatch):
    monkeypatch.setattr(selections, "_MOST_CHANGES", 2)
    select(tasks, reader, BOTH)
    for number in range(30, 36):
        tasks.index_file(tasks.task(f"tsk-{number}", state="todo", points="31"))
    assert select(tasks, reader, BOTH) is None
    assert select(tasks, reader, BOTH) == ["tsk-38"]


def test_an_older_snapshot_is_not_answered_from_newer_columns(tasks, reader, open_reader):
    older = open_reader()
    with older.snapshot():
        assert older.find("tsk-32") is not None
        tasks.index_file(tasks.task("tsk-32", state="todo", points="32"))
        assert select(tasks, reader, BOTH) == ["tsk-35", "tsk-38"]
        scope = build_scope("task", BOTH, tasks.model)
        page = query_page(older, scope, DEFAULT_SORT, tasks.plans, limit=10)
        assert page.total == 3


def test_what_columns_cannot_tell_is_listed_and_kept(tasks, reader):
    both = {"labels": "y", "state": {"op": "contains", "value": "O"}}
    assert select(tasks, reader, both) == ["tsk-07"]
    neither = {"labels": {"op": "neq", "value": "x"}, "state": "done"}
    assert select(tasks, reader, neither) == []
    tasks.index_file(tasks.task("tsk-08", state="done", labels="[y, z]"))
    tasks.index_file(tasks.task("tsk-07", state="todo", labels="[x]"))
    assert select(tasks, reader, both) == ["tsk-08"]
    assert select(tasks, reader, neither) == ["tsk-08"]


def test_kept_sets_forget_records_that_are_gone(tasks, reader):
    both = {"labels": "y", "state": "doing"}
    assert select(tasks, reader, both) == ["tsk-07"]
    with tasks.writer.transaction():
        tasks.writer.remove_document("tsk-07")
    assert select(tasks, reader, both) == []


def test_only_so_many_sets_are_kept(tasks, reader, monkeypatch):
    monkeypatch.setattr(selections, "_MOST_KEPT", 1)
    for label, found in (("y", ["tsk-07"]), ("z", []), ("y", ["tsk-07"])):
        assert select(tasks, reader, {"labels": label, "state": "doing"}) == found


def test_a_field_that_gets_several_values_is_told_by_a_set(tasks, reader):
    both = {"labels": "x", "points": {"op": "lt", "value": 2}}
    tasks.index_file(tasks.task("tsk-07", state="todo", points="7", labels="[x]"))
    assert select(tasks, reader, both) == ["tsk-00", "tsk-01"]
    tasks.index_file(tasks.task("tsk-01", state="todo", points="1", labels="[z, y]"))
    assert select(tasks, reader, both) == ["tsk-00"]


@pytest.mark.parametrize(("bound", "most"), [("_MOST_VALUES", 50), ("_MOST_TEXT", 8)])
def test_columns_are_bounded(tasks, reader, monkeypatch, bound, most):
    monkeypatch.setattr(selections, bound, most)
    assert select(tasks, reader, {"state": "done"}) is not None
    assert select(tasks, reader, BOTH) == ["tsk-32", "tsk-35", "tsk-38"]
    assert len(reader.selections._types["task"]._kept) == 1


def test_a_changed_model_makes_columns_anew(tasks, reader):
    assert select(tasks, reader, BOTH) is not None
    schema = (tasks.path / "_schema/task.v1.yaml").read_text()
    tasks.write(
        "_schema/task.v1.yaml", schema.replace("points: {type: number", "points: {type: string")
    )
    tasks.reload()
    assert select(tasks, reader, BOTH) is None
    tasks.run()
    assert select(tasks, reader, {"state": "done", "points": {"op": "gt", "value": "36"}}) == [
        "tsk-05", "tsk-08", "tsk-38",
    ]  # fmt: skip
