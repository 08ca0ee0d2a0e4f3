"""What a receipt proves about a create whose outcome is unknown (spec 05 §6.6, §7.2)."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.protocol.canonical_json import sha256_hex
from maadd.protocol.document_content import stored_digest
from maadd.protocol.errors import MaadError

CONTRACT = "document-persistence-v1"
_COMMITTED = "committed_content_available"
_OBJECT_FORMATS = ("sha1", "sha256")


class Fate(enum.Enum):
    """What became of a document, as far as a receipt can tell."""

    COMMITTED = "committed"
    """The HEAD commit holds exactly the expected content under this identity."""
    OTHER_CONTENT = "other_content"
    """The HEAD commit holds other content under this identity; it was not this create."""
    UNKNOWN = "unknown"
    """Still unknown. Ask again later; never send the create again on this ground."""


class Reconciliation(msgspec.Struct, frozen=True):
    """The fate of a document; `reason` is the receipt's own where it proves nothing."""

    fate: Fate
    reason: str | None = None
    commit_oid: str | None = None


class ReceiptError(ValueError):
    """The receipt contradicts itself or speaks of something else: it proves nothing at all."""


def reconcile(
    receipt: Mapping[str, Any], *, doc_type: str, doc_id: str, content_digest: str
) -> Reconciliation:
    """Judge the `data` of a receipt against what was to be created.

    Nothing in it is taken on trust: the digests are computed again from the committed text.
    Raises ReceiptError.
    """
    if receipt.get("contract") != CONTRACT:
        raise ReceiptError(f"this is no receipt of {CONTRACT}")
    if (receipt.get("docType"), receipt.get("docId")) != (doc_type, doc_id):
        raise ReceiptError("the receipt is about another document")
    committed = receipt.get("committed")
    if receipt.get("status") != _COMMITTED or not isinstance(committed, Mapping):
        reason = receipt.get("reason")
        return Reconciliation(Fate.UNKNOWN, reason if isinstance(reason, str) else None)
    found = _proven_digest(committed, doc_type, doc_id)
    oid = str(committed.get("commitOid"))
    if found == content_digest:
        return Reconciliation(Fate.COMMITTED, commit_oid=oid)
    return Reconciliation(Fate.OTHER_CONTENT, commit_oid=oid)


def _proven_digest(committed: Mapping[str, Any], doc_type: str, doc_id: str) -> str:
    """The content digest of what is committed, computed from its members."""
    raw, frontmatter, body = (committed.get(k) for k in ("rawMarkdown", "frontmatter", "body"))
    if not (isinstance(raw, str) and isinstance(frontmatter, Mapping) and isinstance(body, str)):
        raise ReceiptError("the committed content is incomplete")
    data = raw.encode()
    if committed.get("byteLength") != len(data) or committed.get("rawSha256") != sha256_hex(data):
        raise ReceiptError("the committed text does not have the digest it is said to have")
    object_format = committed.get("objectFormat")
    if object_format not in _OBJECT_FORMATS:
        raise ReceiptError("the object format is unknown")
    blob = hashlib.new(object_format, b"blob %d\0" % len(data), usedforsecurity=False)
    blob.update(data)
    if committed.get("blobOid") != blob.hexdigest():
        raise ReceiptError("the committed text is not the named Git object")
    if (frontmatter.get("doc_id"), frontmatter.get("doc_type")) != (doc_id, doc_type):
        raise ReceiptError("the committed document has another identity")
    try:
        digest = stored_digest(doc_id, doc_type, frontmatter, body)
    except MaadError as failure:
        raise ReceiptError(failure.message) from failure
    if committed.get("contentDigest") != digest:
        raise ReceiptError("the committed content does not have the digest it is said to have")
    return digest
