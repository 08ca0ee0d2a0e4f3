"""Values that a plan wants otherwise than they are."""

from __future__ import annotations

from typing import Any

import pytest

from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.imports.plan import ImportPlan, TypePlan
from maadd_worker.imports.plan_file import read_plan
from maadd_worker.imports.prepare import Prepared, planned_model, prepare
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import parse_registry


def planned(source: Any, fields: dict[str, Any], **more: Any) -> Prepared:
    one = TypePlan(path="notes", id_prefix="nt", schema="note.v1", fields=fields, **more)
    plan = ImportPlan(types={"note": one})
    model = planned_model(Model(parse_registry({"types": {}}), {}, {}), plan)
    return prepare(source, plan, model, {})


@pytest.mark.parametrize(
    ("written", "definition", "value"),
    [
        ("1.10", {"type": "string"}, "1.10"),
        ("[1.10, 007]", {"type": "list"}, ["1.10", "007"]),
        ("true", {"type": "enum", "values": ["true", "no"]}, "true"),
        ('"12"', {"type": "number"}, 12),
        ('"True"', {"type": "boolean"}, True),
        ("March 5, 2026", {"type": "date"}, "2026-03-05"),
        ("2026", {"type": "date", "format": "YYYY"}, "2026"),
        ("a, b , c", {"type": "list"}, ["a", "b", "c"]),
        ("x", {"type": "list", "item_type": "ref", "target": "note"}, ["nt-x"]),
        ('""', {"type": "number"}, None),
        ("null", {"type": "ref", "target": "note"}, None),
        ("{a: 1}", {"type": "string"}, '{"a":1}'),
    ],
)
def test_values_take_the_type_of_the_plan(
    folder: Any, written: str, definition: dict[str, Any], value: Any
) -> None:
    source = folder({"x.md": f"---\nf: {written}\n---\n"})
    prepared = planned(source, {"f": definition})
    assert prepared.misfits == ()
    assert prepared.records[0].fields == {"f": value}


@pytest.mark.parametrize(
    ("written", "definition", "reason"),
    [
        ("many", {"type": "number"}, "f: 'many' is no number"),
        ("maybe", {"type": "boolean"}, "f: 'maybe' is neither true nor false"),
        ("soon", {"type": "date"}, "f: 'soon' is no date"),
        ("open", {"type": "enum", "values": ["shut"]}, "f: 'open' is not one of its values"),
        ("who", {"type": "ref", "target": "note"}, "f: 'who' names no note"),
        ("2026-13-45", {"type": "date"}, 'f: "2026-13-45" is no calendar date'),
        ("long", {"type": "string", "max_length": 2}, "f: has 4 characters, at most 2"),
    ],
)
def test_values_that_do_not_fit_are_named_with_their_line(
    folder: Any, written: str, definition: dict[str, Any], reason: str
) -> None:
    prepared = planned(folder({"x.md": f"---\na: 1\nf: {written}\n---\n"}), {"f": definition})
    [misfit] = prepared.misfits
    assert (misfit.source, misfit.line) == ("x.md", 3)
    assert misfit.reason.startswith(reason)
    assert misfit.advice
    assert prepared.records == ()


def test_items_that_no_type_takes_and_those_left_out(folder: Any) -> None:
    source = folder({"in/a.md": "x", "b.md": "x", "bad.md": b"\xff", "drop/c.md": "x"})
    one = TypePlan(path="notes", id_prefix="nt", schema="note.v1", folders=("in",))
    plan = ImportPlan(types={"note": one}, leave_out=("drop", "ba?.md"))
    model = planned_model(Model(parse_registry({"types": {}}), {}, {}), plan)
    prepared = prepare(source, plan, model, {})
    assert [record.doc_id for record in prepared.records] == ["nt-a"]
    assert [(one.source, one.reason) for one in prepared.misfits] == [
        ("b.md", "no type of the plan takes it")
    ]
    assert prepared.assigned.left_out == ("drop/c.md",)


def test_ids_of_the_plan_and_of_before_are_kept(folder: Any) -> None:
    source = folder({"a.md": "x", "b.md": "x", "c.md": "x"})
    one = TypePlan(path="notes", id_prefix="nt", schema="note.v1")
    plan = ImportPlan(types={"note": one}, ids={"b.md": "nt-c", "a.md": "nt a"})
    model = planned_model(Model(parse_registry({"types": {}}), {}, {}), plan)
    prepared = prepare(source, plan, model, {})
    assert [record.doc_id for record in prepared.records] == ["nt-c", "nt-c-2"]
    assert "'nt a' is no id" in prepared.misfits[0].reason
    again = prepare(source, plan, model, {"c.md": "nt-old"})
    assert [record.doc_id for record in again.records] == ["nt-c", "nt-old"]


def test_a_plan_with_faults_says_which() -> None:
    with pytest.raises(MaadErrors) as caught:
        planned_model(
            Model(parse_registry({"types": {}}), {}, {}),
            ImportPlan(
                types={
                    "a": TypePlan(path="a", id_prefix="aa", schema="a.v1",
                                  fields={"r": {"type": "ref", "target": "z"}}),
                    "b": TypePlan(path="b", id_prefix="bb", schema="b.v1",
                                  fields={"n": {"type": "nubmer"}}),
                }
            ),
        )  # fmt: skip
    text = str(caught.value)
    assert 'target "z" is no registered type' in text
    assert 'type "nubmer" is no field type' in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("plan: 1\ntypes: {a: {path: x}}", "missing required field `id_prefix` at types"),
        ("plan: 2\ntypes: {}", "Invalid enum value 2"),
        ("plan: 1\ntypes: {}\nlnks: keep", "unknown field `lnks`"),
        ("[1]", "Expected `object`"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(text: str, what: str) -> None:
    with pytest.raises(MaadError, match="is no plan") as caught:
        read_plan(text, "plan.yaml")
    assert what in str(caught.value)
