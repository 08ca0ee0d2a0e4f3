"""Filters on substrings that know the texts which hold them (spec 02 §2.3)."""

from __future__ import annotations

import pytest

from maadd_worker.index import known_texts, object_search
from maadd_worker.index.known_texts import with_known_texts
from maadd_worker.index.pages import count_matches
from maadd_worker.index.scope import ONE_OF, TEXT_SCAN, build_scope, candidates
from maadd_worker.index.writer import LOADING_KEY

TITLES = {
    "tsk-1": "Ébène polish",
    "tsk-2": "ébène POLISH",
    "tsk-3": "Polished brass",
    "tsk-4": "Brass",
}
POLISH = {"title": {"op": "contains", "value": "polish"}}


@pytest.fixture
def tasks(project, monkeypatch):
    monkeypatch.setattr(known_texts, "_MANY_RECORDS", 0)
    for doc_id, title in TITLES.items():
        project.task(doc_id, title=f'"{title}"', labels="[polish, wax]")
    project.run()
    return project


def narrowed(project, reader, filters):
    scope = build_scope("task", filters, project.model)
    return with_known_texts(reader, scope, len(TITLES))


def texts(condition):
    return [part.bound for part in condition.parts if part.op == "in"]


def test_a_rare_substring_becomes_a_choice_of_its_texts(tasks, reader):
    (condition,) = narrowed(tasks, reader, POLISH).conditions
    assert texts(condition) == [("Polished brass", "Ébène polish", "ébène POLISH")]
    assert condition.access == ONE_OF


def test_so_does_a_short_one_that_few_values_have(tasks, reader):
    (condition,) = narrowed(tasks, reader, {"title": {"op": "contains", "value": "BR"}}).conditions
    assert texts(condition) == [("Brass", "Polished brass")]


def test_only_letters_of_ascii_fold(tasks, reader):
    scope = narrowed(tasks, reader, {"title": {"op": "contains", "value": "ébÈNE"}})
    assert texts(scope.conditions[0]) == [()]
    scope = narrowed(tasks, reader, {"title": {"op": "contains", "value": "ébène p"}})
    assert texts(scope.conditions[0]) == [("ébène POLISH",)]


def test_texts_of_other_fields_are_none_of_the_field(tasks, reader):
    scope = narrowed(tasks, reader, {"labels": {"op": "contains", "value": "polish"}})
    assert texts(scope.conditions[0]) == [("polish",)]


def test_what_else_is_asked_of_the_value_is_kept(tasks, reader):
    both = [POLISH["title"], {"op": "contains", "value": "brass"}, {"op": "gte", "value": "P"},
            {"op": "neq", "value": "Brass"}]  # fmt: skip
    scope = narrowed(tasks, reader, {"title": both})
    (condition,) = scope.conditions
    assert {part.op for part in condition.parts} == {"in", "gte"}
    assert texts(condition) == [("Polished brass",)]
    assert condition.excluded == ("Brass",)
    assert count_matches(reader, scope, "") == 1


def test_the_texts_are_looked_up_by_index(tasks, reader):
    scope = narrowed(tasks, reader, POLISH)
    sql, params = candidates(scope.conditions[0], "task")
    plan = reader.connection.execute(f"EXPLAIN QUERY PLAN SELECT v.doc_id {sql}", params)
    steps = [row[3] for row in plan]
    assert any("field_values_by_text" in step and "field_value=?" in step for step in steps)


@pytest.mark.parametrize("module_and_bound", [(known_texts, "_FEW_TEXTS"),
                                              (object_search, "_MOST_READ")])  # fmt: skip
def test_a_substring_of_many_texts_stays_a_scan(tasks, reader, monkeypatch, module_and_bound):
    monkeypatch.setattr(*module_and_bound, 2)
    (condition,) = narrowed(tasks, reader, POLISH).conditions
    assert condition.access == TEXT_SCAN


@pytest.mark.parametrize("text", ["\u00c4r", "Pol\0"])
def test_so_does_what_the_text_index_cannot_look_up(tasks, reader, text):
    (condition,) = narrowed(tasks, reader, {"title": {"op": "contains", "value": text}}).conditions
    assert condition.access == TEXT_SCAN


def test_the_texts_are_not_asked_for_while_records_are_loaded(tasks, reader):
    with tasks.writer.transaction():
        tasks.writer.meta_set(LOADING_KEY, "1")
    (condition,) = narrowed(tasks, reader, POLISH).conditions
    assert condition.access == TEXT_SCAN


def test_pages_follow_texts_that_come_and_go(tasks, reader):
    scope = build_scope("task", POLISH, tasks.model)
    assert count_matches(reader, scope, "") == 3
    tasks.index_file(tasks.task("tsk-3", title="Copper"))
    tasks.index_file(tasks.task("tsk-5", title='"To polish"'))
    tasks.index_file(tasks.task("tsk-6", title='"Unpolished"'))
    assert count_matches(reader, scope, "") == 4
