"""A receipt proves a create whatever line ends its body has (spec 05 §4.1)."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from maadd.client import Fate, new_document_digest, reconcile
from maadd.protocol.canonical_json import sha256_hex
from maadd.protocol.document_content import normalized_body


def receipt_of(frontmatter: dict[str, Any], body: str, digest: str) -> dict[str, Any]:
    """The receipt of a document that was committed as it was asked for."""
    raw = body.encode()
    blob = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
    return {
        "contract": "document-persistence-v1",
        "docType": frontmatter["doc_type"],
        "docId": frontmatter["doc_id"],
        "status": "committed_content_available",
        "committed": {
            "rawMarkdown": body,
            "byteLength": len(raw),
            "rawSha256": sha256_hex(raw),
            "objectFormat": "sha1",
            "blobOid": blob,
            "commitOid": "c" * 40,
            "frontmatter": frontmatter,
            "body": normalized_body(body),
            "contentDigest": digest,
        },
    }


@given(st.text("ab\r\n \u00e9", max_size=12), st.text("x\r\n", max_size=5))
def test_every_mix_of_line_ends_is_proven(body: str, title: str) -> None:
    digest = new_document_digest("x-1", "memo", "memo.v1", {"title": title}, body)
    frontmatter = {"doc_id": "x-1", "doc_type": "memo", "schema": "memo.v1", "title": title}
    judged = reconcile(
        receipt_of(frontmatter, body, digest),
        doc_type="memo",
        doc_id="x-1",
        content_digest=digest,
    )
    assert judged.fate is Fate.COMMITTED
