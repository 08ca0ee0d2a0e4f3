"""maad_summary, maad_describe, maad_schema and maad_validate (spec 02 §3, 03 §4.3)."""

from __future__ import annotations

import msgspec
import pytest

from maadd.protocol.errors import MaadError


@pytest.fixture
def yard(project):
    for number in range(5):
        project.record("asset", f"ast-{number}", "[[person:Ada|A]]", name="N", site="north")
    project.record("asset", "ast-5", name="N", site="nowhere", parent="ast-gone", vendor="ven-1")
    project.record("vendor", "ven-1", name="V")
    project.record("vendor", "ven-2", name="W")
    project.reindex()
    project.soft_delete("ven-1")
    return project


def test_the_summary_counts_live_records_and_edges(yard):
    data = yard.call("summary").data

    assert data["types"][0] == {
        "type": "asset", "count": 6, "sampleIds": ["ast-5", "ast-4", "ast-3"],
    }  # fmt: skip
    assert [entry["type"] for entry in data["types"]] == ["asset", "work_order", "vendor", "note"]
    assert data["totalDocuments"] == 7
    assert data["totalObjects"] == 6 + 6 + 5 + 2 + 1
    assert data["lastIndexedAt"] == yard.reader.find("ven-2").indexed_at
    assert data["totalRelationships"] == 1
    assert data["warnings"] == {"brokenRefs": 2, "validationErrors": 1, "partialDocs": 0}
    assert (data["emptyProject"], data["bootstrapHint"], data["readOnly"]) == (False, None, False)
    assert not data.keys() & {"subtypeInventory", "provenance"}


def test_an_empty_project_points_to_the_guide(project):
    project.write("_registry/object_types.yaml", "types: {}\n")
    project.reload_model()

    data = project.call("summary").data

    assert data["emptyProject"] is True
    assert data["bootstrapHint"] == "_skills/architect-core.md"
    assert data["lastIndexedAt"] is None


@pytest.mark.parametrize(("mode", "marker"), [("on", "[R]"), ("detail", "[T:<tool>]")])
def test_provenance_modes_add_their_instructions(yard, mode, marker):
    yard.settings = msgspec.structs.replace(yard.settings, provenance=mode)

    provenance = yard.call("summary").data["provenance"]

    assert provenance["mode"] == mode
    assert marker in " ".join(provenance["instructions"])


def test_describe_shows_registry_and_inventory(yard):
    data = yard.call("describe").data

    assert data["registryTypes"][0] == {
        "type": "asset", "path": "assets", "idPrefix": "ast", "schema": "asset.v2", "docCount": 6,
    }  # fmt: skip
    assert data["extractionPrimitives"] == [
        "entity", "date", "duration", "amount", "measure", "quantity", "percentage", "location",
        "identifier", "contact", "media",
    ]  # fmt: skip
    assert data["totalDocuments"] == 7
    assert data["lastIndexedAt"] == yard.reader.find("ven-2").indexed_at
    assert data["subtypeInventory"][0] == {
        "primitive": "entity", "subtype": "name", "count": 7, "topValues": ["N", "W"],
    }  # fmt: skip
    person = next(one for one in data["subtypeInventory"] if one["subtype"] == "person")
    assert person == {
        "primitive": "entity", "subtype": "person", "count": 5, "topValues": ["Ada"],
    }  # fmt: skip
    assert data["capabilities"] == {
        "relationshipPaths": {
            "tool": "maad_relationship_paths",
            "contractVersion": 1,
            "defaults": {"maxDepth": 2, "maxNodes": 50, "maxEdges": 100, "maxPaths": 25},
            "caps": {"maxDepth": 4, "maxNodes": 100, "maxEdges": 200, "maxPaths": 50},
            "defaultExtractionKinds": ["ref"],
        },
        "semantic": {"enabled": False, "vectors": False, "modes": []},
    }


def test_the_inventory_holds_twenty_kinds_of_five_values_in_one_order(project):
    kinds = " ".join(f"[[kind{number:02}:same|x]]" for number in range(25))
    values = " ".join(f"[[busy:v{number}|x]]" for number in (5, 4, 3, 2, 1, 0, 5))
    project.record("vendor", "ven-1", f"{kinds}\n{values}\n")
    project.reindex()

    inventory = project.call("describe").data["subtypeInventory"]

    assert inventory[0] == {
        "primitive": "entity", "subtype": "busy", "count": 7,
        "topValues": ["v5", "v0", "v1", "v2", "v3"],
    }  # fmt: skip
    assert [one["subtype"] for one in inventory[1:]] == [f"kind{n:02}" for n in range(19)]


def test_the_summary_counts_records_that_are_not_whole(project):
    project.settings = msgspec.structs.replace(project.settings, max_doc_annotations=1)
    project.record("asset", "ast-1", "[[person:A|a]] [[person:B|b]]", name="N")
    project.reindex()
    assert project.call("summary").data["warnings"]["partialDocs"] == 1


def test_a_schema_is_shown_as_agents_need_it(project):
    data = project.call("schema", docType="work_order").data
    fields = {field["name"]: field for field in data["fields"]}

    assert (data["idPrefix"], data["schemaRef"]) == ("wo", "work_order.v1")
    assert fields["title"] == {
        "name": "title", "type": "string", "required": True, "indexed": True,
    }  # fmt: skip
    assert fields["status"]["values"] == ["open", "done", "blocked"]
    assert fields["status"]["default"] == "open"
    assert fields["asset"]["type"] == "ref -> asset"
    assert fields["asset"]["target"] == "asset"
    assert fields["assets"]["type"] == "list of ref -> asset"
    assert fields["sizes"]["type"] == "list of number"
    assert "EUR" in fields["cost"]["format"] or "USD" in fields["cost"]["format"]
    assert list(fields) == [
        "title", "status", "asset", "assets", "cost", "hours", "sizes", "labels", "due",
    ]  # fmt: skip
    assert "displayPrecision" not in fields["due"]
    assert (fields["due"]["storePrecision"], fields["due"]["onCoarser"]) == ("day", "warn")
    assert data["templateHeadings"] == [{"level": 2, "text": "Findings"}]
    assert "doc_id" not in fields
    assert "templateHeadings" not in project.call("schema", docType="asset").data


def test_formats_and_precisions_of_a_schema_are_shown_as_declared(project):
    schema = (project.path / "_schema/work_order.v1.yaml").read_text()
    schema = schema.replace("cost: {type: amount", "cost: {type: amount, format: whole euros")
    project.write(
        "_schema/work_order.v1.yaml", schema.replace("warn}", "error, display_precision: month}")
    )
    project.reload_model()
    fields = {
        field["name"]: field
        for field in project.call("schema", docType="work_order").data["fields"]
    }

    assert fields["cost"]["format"] == "whole euros"
    assert (fields["due"]["format"], fields["due"]["displayPrecision"]) == ("loose", "month")
    assert fields["due"]["onCoarser"] == "error"


def test_a_type_without_schema_is_told_from_an_unknown_one(project):
    schemas = dict(project.plans.model.schemas)
    del schemas["note.v1"]
    project.plans = msgspec.structs.replace(
        project.plans, model=msgspec.structs.replace(project.plans.model, schemas=schemas)
    )

    with pytest.raises(MaadError, match="SCHEMA_NOT_FOUND"):
        project.call("schema", docType="note")
    with pytest.raises(MaadError, match="UNKNOWN_TYPE"):
        project.call("schema", docType="memo")


def test_validate_lists_what_breaks_todays_schemas(yard):
    yard.write("assets/ast-0.md", "---\nname: [\n---\n")

    data = yard.call("validate").data

    assert (data["total"], data["valid"], data["invalid"]) == (7, 5, 2)
    by_id = {entry["docId"]: entry["errors"] for entry in data["errors"]}
    assert by_id["ast-0"][0]["code"] == "PARSE_ERROR"
    assert by_id["ast-5"][0]["field"] == "site"
    assert not data.keys() & {"precisionDrift", "constraintViolations", "nextCursor"}


def test_a_limited_validation_goes_on_behind_its_cursor(yard):
    seen, cursor = 0, None
    while True:
        arguments = {"cursor": cursor} if cursor else {}
        page = yard.call("validate", limit=3, **arguments).data
        seen += page["total"]
        cursor = page["nextCursor"]
        if cursor is None:
            break

    assert seen == 7
    with pytest.raises(MaadError, match="INVALID_FIELDS"):
        yard.call("validate", cursor="%%%")


def test_one_record_is_validated_with_its_drift(project):
    project.record("work_order", "wo-1", title="T", due="2031-02")
    project.reindex()

    data = project.call(
        "validate", docId="wo-1", includePrecision=True, includeConstraints=True
    ).data

    assert (data["total"], data["invalid"]) == (1, 0)
    assert data["precisionDrift"] == [
        {
            "docId": "wo-1",
            "field": "due",
            "declared": "day",
            "actual": "month",
            "direction": "coarser",
        }
    ]
    assert data["constraintViolations"] == []
    with pytest.raises(MaadError, match="FILE_NOT_FOUND"):
        project.call("validate", docId="wo-2")
