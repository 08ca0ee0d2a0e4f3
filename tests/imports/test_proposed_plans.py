"""Plans made from what a source holds: types, ids, fields."""

from __future__ import annotations

from typing import Any

import pytest

from maadd_worker.imports.infer import date_definition, infer
from maadd_worker.imports.names import choose_prefix, record_id, type_name
from maadd_worker.imports.plan_file import plan_text, read_plan
from maadd_worker.imports.source import Item
from maadd_worker.imports.values import values_of

RULES = {
    f"rule-{n}.md": f"---\nrule: {n}\ntitle: Rule {n}\nstatus: {status}\nmade: 2020-01-0{n}\n"
    f"author: A{n}\n{more}---\nText\n"
    for n, status, more in (
        (1, "Final", ""),
        (2, "Final", "requires: 1\n"),
        (3, "Draft", "requires: 1, 2\n"),
        (4, "Draft", "requires: 9\nwhy: late\n"),
        (5, "Final", "requires: 3\n"),
        (6, "Final", "requires: 2, 3\n"),
    )
}


def definition(texts: list[Any], name: str = "f", *, textual: bool = False) -> Any:
    items = [Item(str(n), "", {name: text}, {}, {}) for n, text in enumerate(texts)]
    return infer(name, list(values_of(name, items)), textual=textual)


def test_numbered_documents_become_one_type_with_refs(
    folder: Any, propose_and_prepare: Any
) -> None:
    plan, prepared = propose_and_prepare(folder(RULES))
    [(name, one)] = plan.types.items()
    # The file names tell the prefix, and the field of that name identifies.
    assert (name, one.path, one.id_prefix, one.id_from) == ("note", "notes", "rule", "rule")
    assert one.fields["requires"]["item_type"] == "ref"
    assert one.fields["status"] == {"type": "enum", "values": ["Final", "Draft"], "index": True}
    assert one.fields["made"] == {"type": "date", "index": True, "store_precision": "day"}
    assert one.fields["rule"] == {"type": "number", "index": True}
    assert set(one.required) == {"doc_id", "rule", "title", "status", "made", "author"}
    assert [record.doc_id for record in prepared.records][:2] == ["rule-1", "rule-2"]
    assert prepared.records[2].fields["requires"] == ["rule-1", "rule-2"]
    assert prepared.misfits == ()
    [note] = prepared.notes
    assert (note.source, note.line, note.reason) == (
        "rule-4.md", 7, "requires: there is no rule-9",
    )  # fmt: skip


def test_a_blog_keeps_its_folders_apart_and_finds_dates(
    folder: Any, propose_and_prepare: Any
) -> None:
    post = "---\nlayout: post\ntitle: {0}\n---\nText"
    plan, prepared = propose_and_prepare(
        folder(
            {
                "_posts/2019-05-01-one.md": post.format("One"),
                "_posts/2020-02-29-leap.md": post.format("Leap"),
                "about.md": "---\nlayout: page\npermalink: /about/\n---\nHi",
                "README.md": "# The blog\n",
            }
        )
    )
    assert {name: one.folders for name, one in plan.types.items()} == {
        "post": ("_posts",),
        "note": (".",),
    }
    assert plan.types["post"].derive == {"date": "date in file name"}
    by_id = {record.doc_id: record.fields for record in prepared.records}
    assert by_id["post-2020-02-29-leap"]["date"] == "2020-02-29"
    assert by_id["note-readme"] == {"title": "The blog"}
    assert by_id["note-about"]["title"] == "about"


def test_a_vault_resolves_names_aliases_and_wiki_links(
    folder: Any, propose_and_prepare: Any
) -> None:
    plan, prepared = propose_and_prepare(
        folder(
            {
                "People/Ana Roe.md": "---\naliases: [Ana]\ntags: [person]\n---\n",
                "People/Zoë.md": "---\naliases: [Z]\ntags: [person]\n---\n",
                "Projects/Bridge.md": '---\nlead: "[[Ana Roe]]"\nteam: ["[[Z|Zoe]]"]\n---\n',
                "Projects/Tunnel.md": "---\nlead: '[[Zoë]]'\nteam: []\n---\n",
                "Inbox/日記.md": "dear diary",
            }
        )
    )
    assert list(plan.types) == ["inbox", "person", "project"]
    fields = {record.item.key: record.fields for record in prepared.records}
    ids = {record.item.key: record.doc_id for record in prepared.records}
    assert fields["Projects/Bridge.md"]["lead"] == ids["People/Ana Roe.md"] == "prs-ana-roe"
    assert fields["Projects/Bridge.md"]["team"] == [ids["People/Zoë.md"]] == ["prs-zoe"]
    assert ids["Inbox/日記.md"].startswith("inbox-")
    assert len(ids["Inbox/日記.md"]) == len("inbox-12345678")
    assert plan.types["project"].fields["lead"] == {
        "type": "ref", "target": "person", "index": True,
    }  # fmt: skip


def test_decision_records_without_frontmatter_get_title_and_status(
    folder: Any, propose_and_prepare: Any
) -> None:
    text = "# {0}. Choice {0}\n\n## Status\n\n{1}\n\n## Decision\n\nYes\n"
    states = ["Accepted", "Accepted", "Proposed", "Proposed"]
    plan, prepared = propose_and_prepare(
        folder({f"{n:04}-choice.md": text.format(n, one) for n, one in enumerate(states)})
    )
    [one] = plan.types.values()
    assert one.derive == {"title": "heading", "status": "section Status"}
    assert one.fields["status"]["values"] == ["Accepted", "Proposed"]
    assert prepared.records[3].fields == {"title": "3. Choice 3", "status": "Proposed"}


def test_kinds_of_files_in_one_folder_are_told_apart_by_a_field(
    folder: Any, propose_and_prepare: Any
) -> None:
    files = {f"m{n}.md": f"---\nattendees: [x]\nheld: 2020-01-0{n}\n---\n" for n in (1, 2)}
    files |= {f"c{n}.md": f"---\ncountry: NO\nphone: {n}\n---\n" for n in (1, 2, 3)}
    plan, _ = propose_and_prepare(folder(files))
    assert [one.having for one in plan.types.values()] == [("attendees",), ()]


def test_names_that_collide_get_numbers_in_order(folder: Any, propose_and_prepare: Any) -> None:
    plan, prepared = propose_and_prepare(
        folder({"a/Same.md": "1", "a/same.md": "2", "a/SAME.md": "3", "a/index.md": "4"})
    )
    assert {record.item.key: record.doc_id for record in prepared.records} == {
        "a/SAME.md": "note-same",
        "a/Same.md": "note-same-2",
        "a/index.md": "note-a",
        "a/same.md": "note-same-3",
    }
    assert prepared.assigned.collisions["a/same.md"] == ("note-same", "note-same-3")
    assert plan.ids == {}


def test_words_of_the_engine_in_a_source_are_kept_under_another_name(
    folder: Any, propose_and_prepare: Any
) -> None:
    _, prepared = propose_and_prepare(
        folder({"a.md": "---\ndoc_id: 17\nschema: public\nx: 1\n---\n", "b.md": "---\nx: 1\n---\n"})
    )
    assert prepared.records[0].fields == {
        "source_doc_id": 17, "source_schema": "public", "x": 1, "title": "a",
    }  # fmt: skip


def test_a_table_gets_typed_fields(table: Any, propose_and_prepare: Any) -> None:
    plan, prepared = propose_and_prepare(
        table(
            "items.csv",
            "sku,name,price,stock,added,old,deep\n"
            "A-1,Bolt,1.5,true,2024-01-02,007,x\nA-2,Nut,2,false,2024-02-03,8,\n",
        )
    )
    one = plan.types["item"]
    assert (one.path, one.id_from) == ("items", "sku")
    kinds = {name: field["type"] for name, field in one.fields.items()}
    assert kinds == {
        "sku": "string", "name": "string", "price": "number", "stock": "boolean",
        "added": "date", "old": "string", "deep": "string",
    }  # fmt: skip
    assert prepared.records[0].doc_id == "item-A-1"
    assert prepared.records[0].fields["price"] == 1.5
    assert prepared.records[0].fields["old"] == "007"
    assert "deep" not in prepared.records[1].fields


def test_objects_too_deep_for_a_field_become_their_json(
    table: Any, propose_and_prepare: Any
) -> None:
    _, prepared = propose_and_prepare(
        table("e.jsonl", '{"id": "e1", "m": {"a": {"b": {"c": 1}}}, "body": "# Hi\\n"}\n')
    )
    [record] = prepared.records
    assert record.fields == {"id": "e1", "m": '{"a":{"b":{"c":1}}}'}
    assert record.body == "# Hi\n"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], {"type": "boolean", "index": True}),
        ([1, 2.5], {"type": "number", "index": True}),
        (["1", "2"], {"type": "string", "index": True}),
        ([1, "1.2.3"], {"type": "string", "index": True}),
        ([["a"], "b"], {"type": "list", "item_type": "string", "index": True}),
        ([[1], [2, 3]], {"type": "list", "item_type": "number", "index": True}),
        ([{"a": 1}], None),
        ([None, "", []], None),
        (["x" * 300], {"type": "string"}),
        (["March 5, 2026"], {"type": "date", "index": True, "store_precision": "day"}),
        (["2026-13-45"], {"type": "string", "index": True}),
    ],
)
def test_types_of_fields(values: list[Any], expected: Any) -> None:
    assert definition(values) == expected


def test_dates_have_the_coarsest_precision_among_them() -> None:
    day, minute = "2026-01-02", "2026-01-02T10:30"
    assert date_definition([minute, day])["store_precision"] == "day"
    assert date_definition([minute])["store_precision"] == "minute"
    month = date_definition(["2026-01", day])
    assert month == {
        "type": "date", "index": True, "format": "YYYY-MM", "store_precision": "month",
    }  # fmt: skip
    jekyll = date_definition(["2026-01-02 10:30:00 +0100"])
    assert jekyll == {"type": "date", "index": True}


@pytest.mark.parametrize("textual", [False, True])
def test_dates_with_bare_years_among_them_are_dates(textual: bool) -> None:
    year = {"type": "date", "index": True, "format": "YYYY", "store_precision": "year"}
    assert definition(["1990", "1980-05", "1980-05-02"], textual=textual) == year
    assert definition(["1990", "1980-05-02T10:30:00Z"], textual=textual) == year
    assert definition([1990, "1980-05"], textual=False) == year
    assert definition([1990, 1991]) == {"type": "number", "index": True}
    assert definition(["1990", "1991"])["type"] == "string"
    assert definition(["1990", "1980-13"])["type"] == "string"
    assert definition(["1990", "2021-02-30"])["type"] == "string"
    assert definition(["1980-05", "1980-02-30"])["type"] == "string"
    assert definition([19900, "1980-05"])["type"] == "string"


def test_only_small_sets_that_come_again_are_enums() -> None:
    assert definition(["a", "b"] * 5)["type"] == "enum"
    assert definition(["a", "b"])["type"] == "string"
    assert definition(["a", "a", "b", "b"], "status")["type"] == "enum"
    assert definition(["Ana", "Bo"] * 5, "author")["type"] == "string"
    assert definition(["a"] * 10)["type"] == "string"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("_posts", "post"), ("People", "person"), ("companies", "company"), ("Boxes", "box"),
        ("Status", "status"), ("2024", "note_2024"), ("日本", "note"), ("Meeting Notes",
        "meeting_note"),
    ],
)  # fmt: skip
def test_names_of_types(text: str, name: str) -> None:
    assert type_name(text) == name


@pytest.mark.parametrize(
    ("text", "doc_id"),
    [
        ("Ana Roe", "prs-ana-roe"), ("prs-x", "prs-x"), ("Zoë & Co.", "prs-zoe-co"),
        ("a..b", "prs-a.b"), ("-", None), ("日本", None), ("prs-", "prs-prs"),
        ("x" * 200, "prs-" + "x" * 100),
    ],
)  # fmt: skip
def test_ids_of_records(text: str, doc_id: str | None) -> None:
    assert record_id("prs", text) == doc_id


def test_prefixes_are_those_of_the_file_names_or_of_the_type() -> None:
    assert choose_prefix("note", ["adr-1", "adr-2"], set()) == "adr"
    assert choose_prefix("company", ["a", "b"], set()) == "cmp"
    assert choose_prefix("company", ["a", "b"], {"cmp", "cmp2"}) == "cmp3"
    assert choose_prefix("x", [], set()) == "xx"


def test_a_plan_survives_its_file(folder: Any, propose_and_prepare: Any) -> None:
    plan, _ = propose_and_prepare(folder(RULES), "refs")
    assert read_plan(plan_text(plan, {"note": 6}, {}, ["a note"]), "plan.yaml") == plan
