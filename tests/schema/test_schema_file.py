from __future__ import annotations

from typing import Any

import pytest

from maadd.protocol.errors import MaadErrors
from maadd_worker.schema.schema import FieldDef, Schema, TemplateHeading
from maadd_worker.schema.schema_file import FIELD_KEYS, parse_schema

TYPES = ("task", "member")


def parse(fields: dict[str, Any], **members: Any) -> Schema:
    return parse_schema("task.v2", {"type": "task", "fields": fields, **members}, TYPES)


def faults(fields: object, **members: Any) -> list[str]:
    with pytest.raises(MaadErrors) as caught:
        parse_schema("task.v2", {"type": "task", "fields": fields, **members}, TYPES)
    assert {error.code for error in caught.value.errors} == {"SCHEMA_INVALID"}
    assert all("_schema/task.v2.yaml" in error.message for error in caught.value.errors)
    return [error.message for error in caught.value.errors]


def test_every_default_is_applied() -> None:
    schema = parse(
        {
            "title": {"type": "string"},
            "due": {"type": "date", "store_precision": "day"},
            "helpers": {"type": "list", "item_type": "ref", "target": "member"},
        }
    )
    assert schema.fields == {
        "title": FieldDef("title", "string"),
        "due": FieldDef(
            "due", "date", format="YYYY-MM-DD", store_precision="day", on_coarser="warn"
        ),
        "helpers": FieldDef("helpers", "list", item_type="ref", target="member"),
    }
    assert (schema.version, schema.required, schema.template) == (2, (), ())


def test_only_a_literal_true_indexes_a_field() -> None:
    schema = parse({name: {"type": "string", "index": value} for name, value in INDEX_VALUES})
    assert [name for name, field in schema.fields.items() if field.index] == ["literal"]


INDEX_VALUES = [("literal", True), ("number", 1), ("word", "true"), ("no", False), ("null", None)]


def test_enum_values_become_texts() -> None:
    schema = parse(
        {
            "tier": {"type": "enum", "values": ["gold", 2, True, 1.5]},
            "states": {"type": "list", "item_type": "enum", "values": ["new", "007"]},
            "other": {"type": "string", "values": ["ignored"]},
        }
    )
    assert schema.fields["tier"].values == ("gold", "2", "true", "1.5")
    assert schema.fields["states"].values == ("new", "007")
    assert schema.fields["other"].values is None


def test_a_target_is_ignored_where_no_ref_is() -> None:
    schema = parse(
        {
            "title": {"type": "string", "target": "nowhere"},
            "tags": {"type": "list", "target": "nowhere"},
            "owner": {"type": "ref", "target": "task"},
        }
    )
    targets = {name: field.target for name, field in schema.fields.items()}
    assert targets == {"title": None, "tags": None, "owner": "task"}


def test_the_template_keeps_its_headings() -> None:
    headings = [{"level": 1, "text": "{{title}}", "id": "top"}, {"text": "Log"}, {"level": "2"}]
    assert parse({}, template={"headings": headings}).template == (
        TemplateHeading(1, "{{title}}", "top"),
        TemplateHeading(1, "Log", None),
        TemplateHeading(1, "", None),
    )


def test_required_takes_texts_and_the_identity_keys() -> None:
    schema = parse(
        {"title": {"type": "string"}}, required=["doc_id", "doc_type", "schema", 7, "title"]
    )
    assert schema.required == ("doc_id", "doc_type", "schema", "title")
    assert parse({}, required="title").required == ()


@pytest.mark.parametrize(
    ("version", "expected"), [(7, 7), (3.0, 3), ("7", 2), (True, 2), (None, 2)]
)
def test_a_version_that_is_no_number_comes_from_the_file_name(
    version: object, expected: int
) -> None:
    assert parse({}, version=version).version == expected


def test_an_unknown_key_names_itself_the_known_keys_and_the_nearest() -> None:
    (message,) = faults({"title": {"type": "string", "maxlength": 3}})
    assert 'unknown key "maxlength" (did you mean "max_length"' in message
    assert all(key in message for key in FIELD_KEYS)


@pytest.mark.parametrize(
    ("definition", "part"),
    [
        ("string", "mapping"),
        ({"index": True}, "`type` is missing"),
        ({"type": "text"}, 'type "text" is no field type'),
        ({"type": "strin"}, 'did you mean "string"'),
        ({"type": ["string"]}, "is no field type"),
        ({"type": "list", "item_type": "texts"}, "item_type"),
        ({"type": "enum"}, "needs `values`"),
        ({"type": "enum", "values": []}, "needs `values`"),
        ({"type": "list", "item_type": "enum", "values": "a"}, "needs `values`"),
        ({"type": "ref"}, "needs `target`"),
        ({"type": "ref", "target": "ghost"}, 'target "ghost" is no registered type'),
        ({"type": "ref", "target": "membr"}, 'did you mean "member"'),
        ({"type": "list", "item_type": "ref"}, "needs `target`"),
        ({"type": "string", "store_precision": "day"}, "store_precision belongs to"),
        ({"type": "number", "on_coarser": "warn"}, "on_coarser belongs to"),
        ({"type": "list", "item_type": "date", "display_precision": "day"}, "display_precision"),
        ({"type": "string", "on_finer": "warn"}, "on_finer belongs to"),
        ({"type": "date", "store_precision": "decade"}, '"decade" must be one of year'),
        ({"type": "date", "on_coarser": "ignore"}, '"ignore" must be one of warn, error'),
        ({"type": "date", "on_finer": "warn"}, "on_finer needs store_precision"),
        (
            {"type": "date", "store_precision": "day", "display_precision": "second"},
            "finer than store_precision",
        ),
        ({"type": "date", "max_length": 3}, "max_length belongs to"),
        ({"type": "list", "item_type": "string", "multiline": False}, "multiline belongs to"),
        ({"type": "list", "soft_max_length": 3}, "soft_max_length belongs to"),
        ({"type": "string", "max_length": 0}, "at least 1"),
        ({"type": "string", "max_length": True}, "at least 1"),
        ({"type": "string", "max_length": 2.5}, "at least 1"),
        ({"type": "string", "max_length": "9"}, "at least 1"),
        ({"type": "string", "max_length": 3, "soft_max_length": 4}, "above max_length"),
        ({"type": "string", "multiline": "no"}, "multiline must be"),
    ],
)
def test_a_faulty_definition_is_refused_by_name(definition: object, part: str) -> None:
    (message,) = faults({"broken": definition, "fine": {"type": "string"}})
    assert 'field "broken"' in message
    assert part in message


def test_null_is_the_same_as_unset() -> None:
    schema = parse(
        {"note": {"type": "string", "multiline": None, "max_length": None, "on_coarser": None}}
    )
    assert schema.fields["note"] == FieldDef("note", "string")


def test_equal_limits_and_precisions_are_fine() -> None:
    schema = parse(
        {
            "name": {"type": "string", "max_length": 5.0, "soft_max_length": 5},
            "at": {
                "type": "date",
                "store_precision": "minute",
                "display_precision": "minute",
                "on_coarser": "error",
                "on_finer": "warn",
            },
        }
    )
    assert schema.fields["name"].max_length == 5
    assert schema.fields["at"].on_coarser == "error"
    assert schema.fields["at"].on_finer == "warn"


def test_all_problems_of_a_file_come_together() -> None:
    messages = faults(
        {"a": {"type": "enum"}, "b": {"type": "ref", "targets": "task"}},
        type=None,
        required=["title", "a"],
    )
    assert len(messages) == 5
    assert any('required names "title"' in message for message in messages)
    assert not any('required names "a"' in message for message in messages)


@pytest.mark.parametrize("document", [None, [], "text", {"fields": {}}, {"type": 5}])
def test_a_schema_is_a_mapping_with_a_type(document: object) -> None:
    with pytest.raises(MaadErrors):
        parse_schema("task.v2", document, TYPES)


def test_fields_must_be_a_mapping() -> None:
    assert "`fields` must be a mapping" in faults(["title"])[0]
