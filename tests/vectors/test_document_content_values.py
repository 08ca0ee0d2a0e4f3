"""Stored bytes and their content identity, value by value (spec 05 §4)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from maadd.protocol.canonical_json import canonical_json, sha256_hex
from maadd.protocol.document_content import content_digest, content_text, normalized_body
from maadd.protocol.errors import MaadError
from maadd.protocol.es_text import WHITESPACE
from maadd.protocol.strict_json import parse_json
from maadd_worker.contracts.stored_document import read_stored

Vectors = Callable[[str], dict[str, Any]]
GenerateDocument = Callable[[str], bytes]


def _bytes(row: dict[str, Any], generate: GenerateDocument) -> bytes:
    data = base64.b64decode(row["rawBase64"]) if "rawBase64" in row else generate(row["generator"])
    assert len(data) == row["byteLength"], row["name"]
    return data


def test_exactly_the_published_characters_are_trimmed(vectors: Vectors) -> None:
    values = vectors("document-content-v1")
    assert {ord(character) for character in WHITESPACE} == set(values["trimmedCodePoints"])
    for code in values["notTrimmedCodePoints"]:
        assert normalized_body(f" {chr(code)}x{chr(code)} ") == f"{chr(code)}x{chr(code)}"


def test_the_digest_of_values(vectors: Vectors) -> None:
    for row in vectors("document-content-v1")["projection"]:
        frontmatter = parse_json(row["frontmatterJson"])
        assert normalized_body(row["bodyInput"]) == row["body"], row["name"]
        text = content_text(row["docId"], row["docType"], frontmatter, row["bodyInput"])
        assert (text, len(text.encode())) == (row["canonical"], row["canonicalBytes"])
        digest = content_digest(row["docId"], row["docType"], frontmatter, row["bodyInput"])
        assert digest == row["contentDigest"] == sha256_hex(text), row["name"]


def test_the_content_of_stored_bytes(vectors: Vectors, generate_document: GenerateDocument) -> None:
    for row in vectors("document-content-v1")["raw"]:
        data = _bytes(row, generate_document)
        stored = read_stored(data, row["docId"], row["docType"], row["schema"])
        assert stored.content_digest == row["contentDigest"], row["name"]
        assert stored.raw_sha256 == row["rawSha256"]
        assert stored.raw_markdown.encode() == data
        blob = b"blob %d\0%b" % (len(data), data)
        assert hashlib.sha1(blob, usedforsecurity=False).hexdigest() == row["gitBlobSha1"]
        assert hashlib.sha256(blob).hexdigest() == row["gitBlobSha256"]
        if "body" in row:
            assert canonical_json(stored.frontmatter) == row["frontmatterCanonical"], row["name"]
            assert stored.body == row["body"]


def test_bytes_that_break_a_rule_have_no_content(
    vectors: Vectors, generate_document: GenerateDocument
) -> None:
    for row in vectors("document-content-reject")["rejects"]:
        data = _bytes(row, generate_document)
        with pytest.raises(MaadError) as refused:
            read_stored(data, row["docId"], row["docType"], row["schema"])
            pytest.fail(row["name"])
        assert refused.value.code == row["code"], row["name"]
