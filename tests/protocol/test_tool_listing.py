"""What agents read of the tools: schemas, descriptions, and how much of their context it takes."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest

from maadd.protocol.json_schema import input_schema, tool_entry
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments

BUDGET_BYTES = 40_000


def example_of(name: str) -> Any:
    text = TOOLS[name].description.rpartition("Example: ")[2]
    return json.loads(text.replace("<sha256>", "0" * 64))


def object_schemas(schema: Any) -> list[dict[str, Any]]:
    """Every object schema with named members, at any depth."""
    if isinstance(schema, list):
        return [found for item in schema for found in object_schemas(item)]
    if not isinstance(schema, dict):
        return []
    inner = [found for value in schema.values() for found in object_schemas(value)]
    return [schema, *inner] if "properties" in schema else inner


def test_the_list_of_all_tools_stays_within_its_budget() -> None:
    listing = {"tools": [tool_entry(spec) for spec in TOOLS.values()]}
    assert len(msgspec.json.encode(listing)) < BUDGET_BYTES


@pytest.mark.parametrize("name", TOOLS)
def test_schemas_are_valid_json_schema_2020_12(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(input_schema(TOOLS[name]))


SNAKE_CASE = {"response_mode"}
"""Arguments that the contract spells so (spec 02 §9)."""


@pytest.mark.parametrize("name", TOOLS)
def test_schemas_are_closed_inline_and_camel_case(name: str) -> None:
    schema = input_schema(TOOLS[name])
    text = json.dumps(schema)

    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert "$ref" not in text
    assert "$defs" not in text
    assert '"null"' not in text
    for closed in object_schemas(schema):
        assert closed["additionalProperties"] is False
        members = set(closed["properties"]) - SNAKE_CASE
        assert all(re.fullmatch("[a-z][A-Za-z]*", member) for member in members)


@pytest.mark.parametrize("name", TOOLS)
def test_entries_carry_title_description_and_hints(name: str) -> None:
    spec, entry = TOOLS[name], tool_entry(TOOLS[name])

    assert list(entry) == ["name", "title", "description", "inputSchema", "annotations"]
    assert entry["title"]
    assert len(entry["description"]) <= 450
    assert entry["annotations"] == {
        "readOnlyHint": spec.read_only_hint,
        "destructiveHint": spec.destructive_hint,
        "idempotentHint": spec.idempotent_hint,
    }


@pytest.mark.parametrize("name", TOOLS)
def test_the_example_of_a_description_is_a_good_call(name: str) -> None:
    check_arguments(TOOLS[name], example_of(name))
    jsonschema.Draft202012Validator(input_schema(TOOLS[name])).validate(example_of(name))


@pytest.mark.parametrize("name", TOOLS)
def test_descriptions_name_real_tools_only(name: str) -> None:
    assert set(re.findall(r"maad_\w+", TOOLS[name].description)) <= set(TOOLS)


def test_required_members_bounds_and_defaults_are_advertised() -> None:
    schema = input_schema(TOOLS["maad_query"])

    assert schema["required"] == ["docType"]
    assert schema["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "default": 50,
        "description": "at most 500",
    }
    assert schema["properties"]["fields"]["items"] == {"type": "string"}
    assert set(schema["properties"]["depth"]["enum"]) == {"hot", "cold", "full"}


def test_values_judged_elsewhere_are_advertised_with_their_proper_type() -> None:
    properties = input_schema(TOOLS["maad_delete_where"])["properties"]

    assert properties["filters"]["type"] == "object"
    assert properties["confirm"]["type"] == "boolean"
    assert properties["maxRecords"]["type"] == "integer"
    assert len(input_schema(TOOLS["maad_search"])["properties"]["primitive"]["enum"]) == 11


def test_a_tool_without_arguments_of_its_own_has_an_empty_closed_schema() -> None:
    assert input_schema(TOOLS["maad_projects"]) == {
        "type": "object",
        "additionalProperties": False,
    }
