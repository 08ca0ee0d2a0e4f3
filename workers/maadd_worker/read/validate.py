"""`maad_validate`: stored records against the current schemas (spec 03 §4.3, 01 §8).

An audit: it never writes and never blocks a write.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from maadd.protocol.arguments import ValidateArgs
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.index.store import DocumentRow
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.schema.validation import validate
from maadd_worker.schema.write_rules import (
    ConstraintViolation,
    PrecisionDrift,
    constraint_violations,
    precision_drift,
)

_PAGE = 1000

_PAGE_SQL = """
SELECT doc_id FROM documents WHERE deleted = 0 AND doc_id > ? ORDER BY doc_id LIMIT ?
"""


def validate_stored(context: ReadContext, args: ValidateArgs) -> Outcome:
    """Audit one record or the whole project; a cursor continues a limited run.

    Raises FILE_NOT_FOUND, SCHEMA_NOT_FOUND (one record), INVALID_FIELDS for a bad cursor.
    """
    report = _Report(args.include_precision, args.include_constraints)
    if args.doc_id is not None:
        row = context.live_row(args.doc_id)
        context.model.schema(row.doc_type)
        report.add(context, row)
        return Outcome(report.data(), rows=1)
    last = _decode_cursor(args.cursor) if args.cursor else ""
    rows = _live_rows(context, last)
    for row in rows:
        context.check_time()
        report.add(context, row)
        if args.limit is not None and report.total >= args.limit:
            break
    data = report.data()
    if args.limit is not None:
        more = next(rows, None) is not None
        data["nextCursor"] = _encode_cursor(report.last_id) if more else None
    return Outcome(data, rows=report.total)


class _Report:
    """Counts and findings of one run."""

    def __init__(self, precision: bool, constraints: bool) -> None:
        self.total = 0
        self.last_id = ""
        self._invalid = 0
        self._errors: list[dict[str, Any]] = []
        self._drift: list[Any] | None = [] if precision else None
        self._violations: list[Any] | None = [] if constraints else None

    def add(self, context: ReadContext, row: DocumentRow) -> None:
        self.total += 1
        self.last_id = row.doc_id
        findings = self._findings(context, row)
        if findings:
            self._invalid += 1
            self._errors.append({"docId": row.doc_id, "errors": findings})

    def _findings(self, context: ReadContext, row: DocumentRow) -> list[dict[str, Any]]:
        try:
            schema = context.model.schema(row.doc_type)
        except MaadError as error:
            return [{"field": "doc_type", "message": error.message, "code": error.code}]
        try:
            frontmatter = context.cache.load(row.file_path, keep=False).frontmatter
        except (MaadError, MaadErrors) as failure:
            return [
                {"field": "", "message": error.message, "code": error.code}
                for error in errors_of(failure)
            ]
        if self._drift is not None:
            self._drift.extend(
                _with_id(row.doc_id, drift) for drift in precision_drift(schema, frontmatter)
            )
        if self._violations is not None:
            self._violations.extend(
                _with_id(row.doc_id, broken)
                for broken in constraint_violations(schema, frontmatter)
            )
        report = validate(schema, context.model, frontmatter, "audit")
        return [
            _finding_view(finding.field, finding.message, finding.code) for finding in report.errors
        ]

    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "total": self.total,
            "valid": self.total - self._invalid,
            "invalid": self._invalid,
            "errors": self._errors,
        }
        if self._drift is not None:
            data["precisionDrift"] = self._drift
        if self._violations is not None:
            data["constraintViolations"] = self._violations
        return data


def _with_id(doc_id: str, finding: PrecisionDrift | ConstraintViolation) -> dict[str, Any]:
    return {"docId": doc_id, **msgspec.structs.asdict(finding)}


def _finding_view(field: str, message: str, code: str | None) -> dict[str, Any]:
    view: dict[str, Any] = {"field": field, "message": message}
    if code is not None:
        view["code"] = code
    return view


def _live_rows(context: ReadContext, last: str) -> Iterator[DocumentRow]:
    while True:
        ids = [doc_id for (doc_id,) in context.reader.connection.execute(_PAGE_SQL, (last, _PAGE))]
        for doc_id in ids:
            row = context.reader.find(doc_id)
            if row is not None:
                yield row
        if len(ids) < _PAGE:
            return
        last = ids[-1]


def _encode_cursor(doc_id: str) -> str:
    return base64.urlsafe_b64encode(doc_id.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise MaadError(
            "INVALID_FIELDS",
            "cursor is not one that maad_validate returned; start again without it",
            {"field": "cursor"},
        ) from error
