from __future__ import annotations

from typing import Any

import pytest

from maadd_worker.extract.extraction import (
    ExtractedObject,
    Extraction,
    FieldRow,
    Relationship,
    extract,
)
from maadd_worker.markdown.document import parse_document
from maadd_worker.schema.registry import parse_registry
from maadd_worker.schema.schema import Schema
from maadd_worker.schema.schema_file import parse_schema

REGISTRY = parse_registry(
    {
        "types": {
            "site": {"path": "sites", "id_prefix": "sit", "schema": "site.v1"},
            "sample": {"path": "samples", "id_prefix": "smp", "schema": "sample.v1"},
        },
        "extraction": {"subtypes": {"habitat": "location", "hotline": "contact"}},
    }
)


def sample_schema(fields: dict[str, Any]) -> Schema:
    return parse_schema("sample.v1", {"type": "sample", "fields": fields}, REGISTRY.types)


SAMPLE = sample_schema(
    {
        "title": {"type": "string", "index": True, "role": "label"},
        "mail": {"type": "string", "index": True},
        "day": {"type": "string", "index": True},
        "site": {"type": "ref", "target": "site", "index": True},
        "twin": {"type": "ref", "target": "sample"},
        "status": {"type": "enum", "values": ["dry", "wet"], "index": True},
        "taken": {"type": "date", "index": True},
        "grams": {"type": "number", "index": True},
        "viable": {"type": "boolean", "index": True},
        "value": {"type": "amount", "index": True},
        "labels": {"type": "list", "index": True},
        "counts": {"type": "list", "item_type": "number", "index": True},
        "prices": {"type": "list", "item_type": "amount", "index": True},
        "checked": {"type": "list", "item_type": "date", "index": True},
        "parents": {"type": "list", "item_type": "ref", "target": "sample"},
        "secret": {"type": "string"},
    }
)


def extracted(frontmatter: str, body: str = "", schema: Schema = SAMPLE) -> Extraction:
    text = f"---\n{frontmatter}---\n{body}"
    return extract(parse_document(text.encode(), "samples/smp-a.md"), schema, REGISTRY)


def field_objects(frontmatter: str) -> list[tuple[str, str, str, str | None]]:
    objects = extracted(frontmatter).objects
    assert all(
        found.source_line == 1 and found.block_id is None and found.label == found.value
        for found in objects
    )
    return [(o.primitive, o.subtype, o.value, o.normalized) for o in objects]


def rows(frontmatter: str) -> list[tuple[str, str, float | None, str]]:
    return [(r.name, r.text, r.numeric, r.type) for r in extracted(frontmatter).field_rows]


@pytest.mark.parametrize(
    ("line", "primitive", "value", "normalized"),
    [
        ("title: '  Blue  gentian '", "entity", "  Blue  gentian ", "Blue gentian"),
        ("title: ''", "entity", "", ""),
        (
            "mail: Ines@Seedbank.example",
            "contact",
            "Ines@Seedbank.example",
            "ines@seedbank.example",
        ),
        ("mail: '+44 (20) 555-0101'", "contact", "+44 (20) 555-0101", "+44205550101"),
        ("mail: https://x.y/Z", "contact", "https://x.y/Z", "https://x.y/Z"),
        ("day: 2026-04-01", "entity", "2026-04-01", "2026-04-01"),
        ("status: dry", "entity", "dry", "dry"),
        ("site: sit-ridge", "entity", "sit-ridge", "sit-ridge"),
        ("taken: 2031-07-14", "date", "2031-07-14", "2031-07-14"),
        ("taken: 2029-03", "date", "2029-03", None),
        ("grams: 12.50", "quantity", "12.5", "12.5"),
        ("grams: 3.0", "quantity", "3", "3"),
        ("grams: heavy", "quantity", "heavy", None),
        ("viable: true", "entity", "true", "true"),
        ("value: 340.00 EUR", "amount", "340.00 EUR", '{"amount":340,"currency":"EUR"}'),
        ("value: lots", "amount", "lots", None),
    ],
)
def test_an_indexed_field_gives_one_object(
    line: str, primitive: str, value: str, normalized: str | None
) -> None:
    name = line.split(":")[0]
    assert field_objects(f"{line}\n") == [(primitive, name, value, normalized)]


def test_a_list_gives_one_object_and_row_per_item_by_its_item_type() -> None:
    frontmatter = (
        "labels: [alpine, 2026-04-01, a@b.io, null, 7]\n"
        "counts: [40, two]\n"
        'prices: ["1,250.00 USD", "$5"]\n'
        "checked: [2031-08-01]\n"
    )
    assert field_objects(frontmatter) == [
        ("entity", "labels", "alpine", "alpine"),
        ("entity", "labels", "2026-04-01", "2026-04-01"),
        ("contact", "labels", "a@b.io", "a@b.io"),
        ("entity", "labels", "7", "7"),
        ("quantity", "counts", "40", "40"),
        ("quantity", "counts", "two", None),
        ("amount", "prices", "1,250.00 USD", '{"amount":1250,"currency":"USD"}'),
        ("amount", "prices", "$5", '{"amount":5,"currency":"USD"}'),
        ("date", "checked", "2031-08-01", "2031-08-01"),
    ]
    assert rows(frontmatter) == [
        ("labels", "alpine", None, "list"),
        ("labels", "2026-04-01", None, "list"),
        ("labels", "a@b.io", None, "list"),
        ("labels", "7", None, "list"),
        ("counts", "40", 40.0, "list"),
        ("counts", "two", None, "list"),
        ("prices", "1,250.00 USD", 1250.0, "list"),
        ("prices", "$5", 5.0, "list"),
        ("checked", "2031-08-01", None, "list"),
    ]


def test_values_of_the_wrong_shape_are_indexed_all_the_same() -> None:
    assert rows("title: [a, b]\nlabels: alpine\nstatus: {b: 1, a: x}\n") == [
        ("title", "a", None, "string"),
        ("title", "b", None, "string"),
        ("status", '{"a":"x","b":1}', None, "enum"),
        ("labels", "alpine", None, "list"),
    ]


def test_fields_come_in_schema_order_without_nulls_and_unindexed_ones() -> None:
    result = extracted("value: 5 EUR\nsecret: x\ntitle: A\ngrams: null\nextra: y\n")
    assert [found.subtype for found in result.objects] == ["title", "value"]
    assert result.objects[0].role == "label"
    assert result.field_rows == (
        FieldRow("title", "A", None, "string"),
        FieldRow("value", "5 EUR", 5.0, "amount", "5"),
    )


def test_refs_make_edges_with_the_line_of_their_key() -> None:
    frontmatter = (
        "doc_id: smp-a\nsite: sit-ridge\ntwin: smp-a\n"
        "parents:\n  - smp-b\n  - smp-b\n  - free text\n"
    )
    assert extracted(frontmatter).relationships == (
        Relationship("sit-ridge", "site", "ref", 3, None, "field"),
        Relationship("smp-a", "twin", "ref", 4, None, "field"),
        Relationship("smp-b", "parents", "ref", 5, None, "field"),
        Relationship("smp-b", "parents", "ref", 5, None, "field"),
        Relationship("free text", "parents", "ref", 5, None, "field"),
    )


@pytest.mark.parametrize(
    "line", ["site: ''", "site: 5", "site: [sit-a]", "parents: smp-b", "parents: [1, '', null]"]
)
def test_empty_and_foreign_values_make_no_edge(line: str) -> None:
    assert extracted(f"{line}\n").relationships == ()


BODY = """\
Before [[team:Ridge Crew|the crew]].

# Top {#top}

Met [[person: Ana  Roe | Ana]] near [[habitat:upper scree|scree]].
See [[sample:smp-b|that one]] and [[unknown:thing|x]].

## 日本

[[hotline:J@K.com|call]] [[contact:J@K.com|mail]]
"""


def test_annotations_give_objects_in_document_order() -> None:
    objects = extracted("doc_id: smp-a\n", BODY).objects
    assert objects == (
        ExtractedObject("entity", "team", "Ridge Crew", "Ridge Crew", "the crew", None, 4, None),
        ExtractedObject("entity", "person", "Ana  Roe", "Ana Roe", "Ana", None, 8, "top"),
        ExtractedObject(
            "location", "habitat", "upper scree", "upper scree", "scree", None, 8, "top"
        ),
        ExtractedObject("entity", "sample", "smp-b", "smp-b", "that one", None, 9, "top"),
        ExtractedObject("entity", "unknown", "thing", "thing", "x", None, 9, "top"),
        ExtractedObject("contact", "hotline", "J@K.com", "J@K.com", "call", None, 13, None),
        ExtractedObject("contact", "contact", "J@K.com", "j@k.com", "mail", None, 13, None),
    )


def test_an_annotation_with_a_document_id_is_a_mention() -> None:
    assert extracted("site: sit-a\n", BODY).relationships == (
        Relationship("sit-a", "site", "ref", 2, None, "field"),
        Relationship("smp-b", "sample", "mention", 9, "top", "annotation"),
    )


@pytest.mark.parametrize(
    ("value", "mention"),
    [
        ("smp-b", True),
        ("sit-ridge.v2", True),
        ("smp-artist at large", False),
        ("smp-", False),
        ("smp", False),
        ("other-b", False),
        ("SMP-b", False),
        ("smp-b/c", False),
        ("smp-a..b", False),
    ],
)
def test_a_mention_is_a_whole_document_id_of_a_known_prefix(value: str, mention: bool) -> None:
    edges = extracted("title: x\n", f"\n[[note:{value}|x]]\n").relationships
    assert [edge.target for edge in edges] == ([value] if mention else [])


def test_a_record_without_frontmatter_or_body_gives_nothing() -> None:
    assert extracted("doc_id: smp-a\n") == Extraction((), (), ())
