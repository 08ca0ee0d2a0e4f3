"""`document-content-v1`: the identity of a document's content, however it is formatted
(spec 05 §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maadd.protocol.canonical_json import canonical_json, sha256_hex
from maadd.protocol.es_text import trim

PROJECTION = "document-content-v1"


def normalized_body(body: str) -> str:
    """The body as it counts: LF line ends, no white space around it."""
    return trim(body.replace("\r\n", "\n"))


def content_text(doc_id: str, doc_type: str, frontmatter: Mapping[str, Any], body: str) -> str:
    """The text that is hashed. `frontmatter` holds `doc_id`, `doc_type` and `schema` too.

    Raises what `canonical_json` raises.
    """
    return _text(doc_id, doc_type, frontmatter, normalized_body(body))


def content_digest(doc_id: str, doc_type: str, frontmatter: Mapping[str, Any], body: str) -> str:
    """The digest of a document: SHA-256 in hex over `content_text`."""
    return sha256_hex(content_text(doc_id, doc_type, frontmatter, body))


def stored_digest(doc_id: str, doc_type: str, frontmatter: Mapping[str, Any], body: str) -> str:
    """`content_digest` where `body` is a normalized one, as receipts hold it: to normalize it
    again may change it (CR CR LF)."""
    return sha256_hex(_text(doc_id, doc_type, frontmatter, body))


def _text(doc_id: str, doc_type: str, frontmatter: Mapping[str, Any], body: str) -> str:
    return (
        f'{{"docId":{canonical_json(doc_id)},"docType":{canonical_json(doc_type)},'
        f'"frontmatter":{canonical_json(dict(frontmatter))},'
        f'"body":{canonical_json(body)}}}'
    )


def new_document_digest(
    doc_id: str, doc_type: str, schema_ref: str, fields: Mapping[str, Any], body: str
) -> str:
    """The digest of a document that a guarded create is about to make; `schema_ref` is the
    type's schema, such as `memo.v1`."""
    identity = {"doc_id": doc_id, "doc_type": doc_type, "schema": schema_ref}
    return content_digest(doc_id, doc_type, {**fields, **identity}, body)
