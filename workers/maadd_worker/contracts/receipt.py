"""`document-persistence-v1`: whether exactly this content is in the HEAD commit (spec 05 §7).

The order of the observations is contract: the first that hits decides. What has no row of
its own is an error, never one of the absences.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import msgspec

from maadd import __version__
from maadd.protocol.arguments import DocumentReceiptArgs
from maadd.protocol.canonical_json import canonical_json
from maadd.protocol.doc_ids import describe_fault, doc_id_fault
from maadd.protocol.document_content import PROJECTION
from maadd.protocol.errors import MaadError
from maadd_worker.contracts.git_reader import CommittedBlob, storage_error
from maadd_worker.contracts.safe_read import Check, read_bounded
from maadd_worker.contracts.stored_document import StoredDocument, read_stored
from maadd_worker.contracts.surroundings import Surroundings
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.text import iso_milliseconds
from maadd_worker.schema.model import stale_files
from maadd_worker.schema.registry import TypeEntry

CONTRACT = "document-persistence-v1"
_MAX_TYPE_BYTES = 256
_DOC_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class Receipt(msgspec.Struct, frozen=True):
    """The `data` of a receipt, and the keys in which a diverged working file differs."""

    data: dict[str, Any]
    changed_keys: tuple[str, ...] | None = None


class _Seen(msgspec.Struct, frozen=True):
    """One row of the matrix."""

    reason: str | None
    index_state: str
    working_state: str
    working: StoredDocument | None = None
    committed: StoredDocument | None = None
    blob: CommittedBlob | None = None


def check_receipt_request(args: DocumentReceiptArgs) -> None:
    """INVALID_FIELDS or INVALID_DOC_ID for names that break the grammar."""
    if len(args.doc_type.encode()) > _MAX_TYPE_BYTES or not _DOC_TYPE.fullmatch(args.doc_type):
        raise MaadError(
            "INVALID_FIELDS",
            "docType must be letters, digits, `_` and `-`",
            {"field": "docType", "provided": args.doc_type[:_MAX_TYPE_BYTES]},
        )
    fault = doc_id_fault(args.doc_id)
    if fault is not None:
        message = f"docId {args.doc_id[:128]!a} {describe_fault(fault)}"
        raise MaadError("INVALID_DOC_ID", message, {"reason": fault})


def take_receipt(around: Surroundings, args: DocumentReceiptArgs, check: Check) -> Receipt:
    """Observe one document. The project's writes stand still meanwhile.

    Raises INVALID_FIELDS, INVALID_DOC_ID, UNKNOWN_TYPE, RECEIPT_OBSERVATION_CHANGED,
    RECEIPT_CONTENT_INVALID, RECEIPT_STORAGE_ERROR, RESPONSE_TOO_LARGE, PATH_OUTSIDE_PROJECT,
    and what `check` raises.
    """
    check()
    model = around.model()
    _refuse_stale(around)
    check_receipt_request(args)
    entry = model.entry(args.doc_type)
    row = around.find(args.doc_id)
    try:
        seen = _observe(around, args, entry, row, check)
    except OSError as failure:
        raise storage_error("io", failure.strerror or "the file system failed") from None
    check()
    if around.find(args.doc_id) != row or around.model() is not model:
        raise _changed("the index changed meanwhile")
    _refuse_stale(around)
    return _receipt(around, args, seen)


def _observe(
    around: Surroundings,
    args: DocumentReceiptArgs,
    entry: TypeEntry,
    row: DocumentRow | None,
    check: Check,
) -> _Seen:
    if row is None:
        return _Seen("index_missing", "missing", "not_checked")
    path = row.file_path.replace("\\", "/")
    paths = around.model().record_paths(entry, args.doc_id)
    if (row.doc_type, row.schema_ref) != (entry.name, entry.schema_ref) or path not in paths:
        return _Seen("index_identity_mismatch", "identity_mismatch", "not_checked")
    if around.git is None:
        return _Seen("history_unavailable", "present", "not_checked")
    blob = around.git.committed(path, check)
    if blob is None:
        return _Seen("uncommitted", "present", "not_checked")
    identity = args.doc_id, args.doc_type, entry.schema_ref
    committed = read_stored(blob.data, *identity)
    try:
        content = read_bounded(around.root, path, check)
    except FileNotFoundError:
        return _Seen("working_tree_missing", "present", "missing")
    except PermissionError:
        return _Seen("working_tree_unreadable", "present", "unreadable")
    except MaadError as failure:
        if failure.code != "RECEIPT_OBSERVATION_CHANGED":
            raise
        return _Seen("working_tree_changed", "present", "changed")
    check()
    working = read_stored(content.data, *identity)
    if working.content_digest != committed.content_digest:
        return _Seen("working_tree_diverged", "present", "diverged", working, committed)
    return _Seen(None, "present", "matches_committed", working, committed, blob)


def _receipt(around: Surroundings, args: DocumentReceiptArgs, seen: _Seen) -> Receipt:
    confirmed = seen.reason is None
    committed = None
    if seen.blob is not None and seen.committed is not None:
        committed = _committed(seen.blob, seen.committed)
    matches = None
    if committed is not None and args.expected_content_digest is not None:
        matches = committed["contentDigest"] == args.expected_content_digest
    data = {
        "contract": CONTRACT,
        "engineVersion": __version__,
        "project": around.project,
        "docId": args.doc_id,
        "docType": args.doc_type,
        "observedAt": iso_milliseconds(dt.datetime.now(dt.UTC)),
        "effectiveHistoryMode": around.mode,
        "projection": PROJECTION,
        "expectedContentDigest": args.expected_content_digest,
        "status": "committed_content_available" if confirmed else "unverified",
        "reason": seen.reason,
        "index": {"state": seen.index_state},
        "workingTree": {
            "state": seen.working_state,
            "rawSha256": None if seen.working is None else seen.working.raw_sha256,
            "contentDigest": None if seen.working is None else seen.working.content_digest,
        },
        "committed": committed,
        "expectedDigestMatch": matches,
    }
    changed_keys = None
    if seen.reason == "working_tree_diverged" and seen.working and seen.committed:
        changed_keys = _changed_keys(seen.committed, seen.working)
    return Receipt(data, changed_keys)


def _committed(blob: CommittedBlob, stored: StoredDocument) -> dict[str, Any]:
    return {
        "evidenceKind": "git_commit_visible",
        "objectFormat": blob.object_format,
        "commitOid": blob.commit_oid,
        "treeOid": blob.tree_oid,
        "blobOid": blob.blob_oid,
        "rawSha256": stored.raw_sha256,
        "byteLength": stored.byte_length,
        "rawMarkdown": stored.raw_markdown,
        "frontmatter": stored.frontmatter,
        "body": stored.body,
        "contentDigest": stored.content_digest,
    }


def _changed_keys(committed: StoredDocument, working: StoredDocument) -> tuple[str, ...]:
    """The top-level members that differ, `body` among them where the bodies do."""
    before, after = committed.frontmatter, working.frontmatter
    keys = [
        key
        for key in dict.fromkeys((*before, *after))
        if key not in before
        or key not in after
        or canonical_json(before[key]) != canonical_json(after[key])
    ]
    if committed.body != working.body:
        keys.append("body")
    return tuple(dict.fromkeys(keys))


def _refuse_stale(around: Surroundings) -> None:
    stale = stale_files(around.root, around.model())
    if stale:
        raise _changed(f"{stale[0]} was edited; the next write or maad_reload takes it over")


def _changed(problem: str) -> MaadError:
    return MaadError("RECEIPT_OBSERVATION_CHANGED", f"{problem}; ask again")
