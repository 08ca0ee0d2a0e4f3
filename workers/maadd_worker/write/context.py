"""What every write runs with, and the plan that a write becomes before it touches the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.history.outcome import CommitIdentity, CommitRequest
from maadd_worker.index.store import DocumentRow, IndexWriter
from maadd_worker.markdown.document import ParsedDocument, parse_document
from maadd_worker.outcome import Advice
from maadd_worker.schema.model import Model
from maadd_worker.schema.validation import ValidationReport

_UNREADABLE = ("PARSE_ERROR", "YAML_PROFILE_VIOLATION", "FRONTMATTER_GUARD")
"""Codes of a record whose file would not be read back as it is meant."""


class WriteContext(msgspec.Struct, frozen=True):
    """The fixed surroundings of a group of writes, on the writer thread."""

    writer: IndexWriter
    model: Model
    root: ProjectRoot
    settings: WorkerSettings
    year: int
    reindex_external: Callable[[str], None]
    """Index a file that was edited outside before it is written to (path)."""
    highest: dict[str, str] = msgspec.field(default_factory=dict)
    """The highest sequence id in the index by prefix, looked up once for the group."""

    def live_row(self, doc_id: str) -> DocumentRow:
        """The live record's row, or FILE_NOT_FOUND."""
        row = self.writer.find(doc_id)
        if row is None:
            raise MaadError(
                "FILE_NOT_FOUND",
                f'no record with the id "{doc_id}"; maad_query lists the ids of a type',
            )
        return row

    def read_file(self, row: DocumentRow) -> FileContent:
        """The bytes behind a row; FILE_READ_ERROR names the record."""
        try:
            return self.root.read(row.file_path, self.settings.max_doc_bytes or None)
        except MaadError as error:
            if error.code == "FILE_READ_ERROR":
                advice = ""
                if (error.details or {}).get("errno") == "ENOENT":
                    advice = (
                        "; if it was moved just now, try again in a second, else put the file "
                        "back, or run maad_reindex with prune"
                    )
                details = {"docId": row.doc_id}
                raise MaadError(error.code, error.message + advice, details) from error
            raise


class FileChange(msgspec.Struct, frozen=True):
    """One change of one file.

    `create`: `data` to a path that must be free. `replace`: `data` over `path`, whose bytes
    must still be `old_data`. `rename`: `path` to `new_path`, which must be free. `unlink`:
    `path` goes; `old_data` is kept to undo it. `forget`: `path` is gone already.
    """

    kind: Literal["create", "replace", "rename", "unlink", "forget"]
    path: str
    data: bytes | None = None
    new_path: str | None = None
    old_data: bytes | None = None
    old_hash: str | None = None
    new_hash: str | None = None
    parsed: ParsedDocument | None = None
    """What `data` parses to; saves the index a second look."""


class Plan(msgspec.Struct, frozen=True):
    """A write that passed every check and has touched nothing yet.

    `change` is None for a write that changes no byte. `commit` lacks its journal ids.
    `answer` makes the members of `data` that depend on the new row.
    """

    action: Literal["create", "update", "delete"]
    doc_id: str
    doc_type: str
    change: FileChange | None
    commit: CommitRequest
    answer: Callable[[DocumentRow | None], dict[str, Any]]
    report: ValidationReport | None = None
    warnings: tuple[Advice, ...] = ()
    changed_fields: tuple[str, ...] = ()
    previous_version: int | None = None
    keeps_file: bool = False
    """Whether a new file stays when it cannot be indexed (spec 05 §6.6)."""


def report_view(report: ValidationReport) -> dict[str, Any]:
    """The `validation` member of write answers (spec 03 §3.4)."""
    return {
        "valid": report.valid,
        "errors": [
            {"field": finding.field, "message": finding.message, "location": None}
            for finding in report.errors
        ],
        "warnings": [
            {
                "field": finding.field,
                "message": finding.message,
                "code": finding.code,
                "location": None,
            }
            for finding in report.warnings
        ],
    }


def report_advice(report: ValidationReport) -> tuple[Advice, ...]:
    """The report's warnings as `_meta.warnings` entries."""
    return tuple(
        Advice(finding.field, finding.message, finding.code or "") for finding in report.warnings
    )


def report_errors(report: ValidationReport) -> list[MaadError]:
    """One VALIDATION_FAILED per finding (spec 03 §3.4)."""
    errors = []
    for finding in report.errors:
        details: dict[str, Any] = {"field": finding.field}
        optional = {"code": finding.code, "actual": finding.actual, "limit": finding.limit}
        details.update({name: value for name, value in optional.items() if value is not None})
        errors.append(
            MaadError("VALIDATION_FAILED", f"{finding.field}: {finding.message}", details)
        )
    return errors


def commit_identity(role: str, identity: Any) -> CommitIdentity | None:
    """The identity lines of a commit for a call with a token."""
    if identity is None:
        return None
    return CommitIdentity(role, identity.token_id, identity.agent_id, identity.user_id)


def preflight(
    context: WriteContext, doc_id: str, path: str, make: Callable[[], bytes]
) -> tuple[bytes, ParsedDocument]:
    """Make the exact bytes of a record and parse them before anything lands on the disk.

    Raises DOC_TOO_LARGE for a record that could not be indexed, and what serializer and parser
    refuse with `{docId, filePath, fileWritten: false}`.
    """
    try:
        data = make()
        refuse_too_large(data, context.settings.max_doc_bytes)
        return data, parse_document(
            data, path, max_annotations=context.settings.max_doc_annotations
        )
    except MaadError as error:
        if error.code not in _UNREADABLE:
            raise
        details = {**(error.details or {}), "docId": doc_id, "filePath": path, "fileWritten": False}
        raise MaadError(error.code, error.message, details) from error


def refuse_too_large(data: bytes, cap: int) -> None:
    """DOC_TOO_LARGE for the bytes of a record beyond the cap; 0 is none."""
    if cap and len(data) > cap:
        raise MaadError(
            "DOC_TOO_LARGE",
            f"the record would have {len(data)} bytes, the limit is {cap} (MAAD_MAX_DOC_BYTES)",
            {"sizeBytes": len(data), "capBytes": cap},
        )
