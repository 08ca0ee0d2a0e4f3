"""Pages and result sizes, value by value (spec 05 §8, §9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maadd.client.assembly import MAX_PACKED, MAX_PAGES, AssemblyError, assemble
from maadd.protocol.arguments import Delivery
from maadd.protocol.canonical_json import DELIVERY, canonical_json, sha256_hex
from maadd.protocol.messages import ResultBudget
from maadd.protocol.shape_json import pack
from maadd.protocol.size import encode_result, result_size
from maadd.protocol.strict_json import parse_json
from maadd_worker.contracts.delivery import (
    MAX_PACKED_BYTES,
    Observed,
    deliver,
    measured,
    parse_cursor,
)
from maadd_worker.contracts.observation import Preparations, observe
from maadd_worker.contracts.snapshots import (
    LIFETIME_MS,
    MAX_BYTES,
    MAX_PER_SESSION,
    MAX_SNAPSHOTS,
    Snapshots,
)
from maadd_worker.disk.root import ProjectRoot

Vectors = Callable[[str], dict[str, Any]]


def test_the_size_of_a_result(vectors: Vectors) -> None:
    for row in vectors("mcp-result-size")["vectors"]:
        text = row["text"].encode()
        # Every line of an envelope that we make ourselves is spelled canonically.
        assert result_size(text) == row["resultBytes"], row["name"]
        assert encode_result(text).decode() == row["result"], row["name"]


def test_pages_become_the_value_or_nothing(vectors: Vectors) -> None:
    values = vectors("complete-json-v1-pages")
    for row in values["assemble"]:
        value = assemble(row["pages"], row["now"])
        canonical = canonical_json(value, DELIVERY)
        assert (canonical, sha256_hex(canonical)) == (row["canonical"], row["digest"])
    for row in values["rejects"]:
        with pytest.raises(AssemblyError):
            assemble(row["pages"], row["now"])
            pytest.fail(row["name"])


def test_the_form_of_a_cursor(vectors: Vectors) -> None:
    for row in vectors("contract-requests")["cursors"]:
        assert (parse_cursor(row["cursor"]) is not None) == row["syntaxOk"], row


@pytest.fixture
def corpus(vectors: Vectors, tmp_path: Path) -> dict[str, Any]:
    """The published corpus of 24 types, and its contract as the engine observes it."""
    values = vectors("contract-corpus")
    for name, text in values["sources"].items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    root = ProjectRoot.open(str(tmp_path))
    seen = observe(root, values["docType"], Preparations(values["engineVersion"]), lambda: None)
    root.close()
    data = {
        "contract": "create-contract-v1",
        "docType": values["docType"],
        "schemaDigest": seen.schema_digest,
        "schemaProjection": "create-schema-v1",
        "contentProjection": "document-content-v1",
        "schemaContract": parse_json(seen.contract_text),
        "effectiveHistoryMode": values["effectiveHistoryMode"],
    }
    return values | {"data": data, "contractText": seen.contract_text}


def test_the_published_corpus(corpus: dict[str, Any]) -> None:
    assert len(corpus["contractText"].encode()) == corpus["canonicalSchemaBytes"]
    data = corpus["data"]
    assert data["schemaDigest"] == corpus["schemaDigest"]
    text = canonical_json(data, DELIVERY)
    assert sha256_hex(text) == corpus["dataDigest"]
    whole = measured(text.encode(), ResultBudget(MAX_PACKED_BYTES), None)
    assert whole == corpus["legacyResultBytes"]
    packed = pack(data)
    assert sha256_hex(packed) == corpus["packedDigest"]
    assert len(packed.encode()) == corpus["packedBytes"]


def test_the_pages_of_the_published_corpus(corpus: dict[str, Any]) -> None:
    assumed = corpus["assumed"]
    now = assumed["expiresAt"] - LIFETIME_MS

    def pages(cap: int) -> list[bytes]:
        snapshots = Snapshots(lambda: now, lambda: assumed["snapshotId"])
        budget = ResultBudget(cap)
        observed = Observed("maad_create_contract", "s", 1, "{}", corpus["data"])
        found: list[bytes] = []
        cursor: str | None = None
        while True:
            asked = Delivery(format="compact-json-v1", cursor=cursor)
            found.append(deliver(snapshots, observed, asked, budget).encode())
            cursor = json.loads(found[-1])["nextCursor"]
            if cursor is None:
                return found

    (single,) = pages(131_072)
    assert measured(single, ResultBudget(131_072), None) == corpus["singlePageResultBytes"]
    for cap, expected in corpus["pages"].items():
        got = pages(int(cap))
        sizes = [measured(page, ResultBudget(int(cap)), None) for page in got]
        decoded = [json.loads(page) for page in got]
        assert [
            {"offset": page["offset"], "endOffset": page["endOffset"], "resultBytes": size}
            for page, size in zip(decoded, sizes, strict=True)
        ] == expected, cap
        assert assemble(decoded, now) == corpus["data"]


def test_the_bounds_are_the_published_ones(vectors: Vectors) -> None:
    bounds = vectors("bounds")["delivery"]
    assert bounds == {
        **bounds,
        "snapshotMaxBytes": MAX_PACKED_BYTES,
        "snapshots": MAX_SNAPSHOTS,
        "retainedBytes": MAX_BYTES,
        "perEngineSession": MAX_PER_SESSION,
        "ttlMs": LIFETIME_MS,
        "assemblerMaxPages": MAX_PAGES,
        "assemblerMaxBytes": MAX_PACKED,
        "assemblerMaxCharacters": MAX_PACKED,
    }
