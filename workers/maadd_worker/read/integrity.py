"""The integrity sweep: files against index rows, refs against records (spec 02 §4.8).

Files and rows are compared in one pass over both, each in the order of its paths; files are
hashed, not parsed.
"""

from __future__ import annotations

import datetime as dt
import posixpath
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.scan import MarkdownFile
from maadd_worker.index.scope import Scope, build_scope
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.markdown.text import iso_milliseconds
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.context import IntegritySweep, ReadContext
from maadd_worker.read.limits import scope_advice, type_advice
from maadd_worker.read.type_paths import owning_type
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import TypeEntry

CATEGORIES = ("missing_in_index", "missing_on_disk", "hash_drift", "schema_drift", "broken_refs")
UNREGISTERED_PATH = "unregistered_path"
"""An additional finding, part of `missing_on_disk`: the file lies outside every type's folder."""

_DETAILS_CAP = 1000

_ROWS = """
SELECT d.doc_id, d.doc_type, d.schema_ref, d.file_path, d.file_hash, ({scope})
FROM documents d WHERE d.deleted = 0{narrow} ORDER BY d.file_path
"""
_BROKEN = """
SELECT d.doc_id, d.doc_type, d.file_path, r.field, r.target_doc_id, t.deleted
FROM documents d
CROSS JOIN relationships r ON r.source_doc_id = d.doc_id AND r.relation_type = 'ref'
LEFT JOIN documents t ON t.doc_id = r.target_doc_id
WHERE {scope}{narrow} AND coalesce(t.deleted, 1) = 1
ORDER BY d.doc_id, r.field, r.target_doc_id
"""


class SweepRequest(msgspec.Struct, frozen=True):
    """What to look at; no categories means all."""

    doc_type: str | None
    doc_id: str | None
    filters: Any
    categories: Sequence[str] | None
    verbose: bool


class _Row(msgspec.Struct, frozen=True):
    doc_id: str
    doc_type: str
    schema_ref: str
    path: str
    file_hash: str
    in_scope: bool


class _Findings:
    """Counts, unhealthy files, and as many details as will be shown."""

    def __init__(self, visited: Sequence[MarkdownFile]) -> None:
        self._visited = {file.path for file in visited}
        self._unhealthy: set[str] = set()
        self._details: dict[str, list[dict[str, Any]]] = {}
        self.counts = dict.fromkeys(CATEGORIES, 0)

    def add(self, finding: str, doc_id: str, doc_type: str, path: str, **details: Any) -> None:
        self.counts[finding] = self.counts.get(finding, 0) + 1
        if path in self._visited:
            self._unhealthy.add(path)
        shown = self._details.setdefault(finding, [])
        if len(shown) < _DETAILS_CAP:
            shown.append({"docId": doc_id, "docType": doc_type, "finding": finding, **details})

    @property
    def healthy(self) -> int:
        return len(self._visited) - len(self._unhealthy)

    def details(self) -> list[dict[str, Any]]:
        """The first details, by category, then by path or id."""
        order = (*CATEGORIES, UNREGISTERED_PATH)
        listed = [detail for finding in order for detail in self._details.get(finding, ())]
        return listed[:_DETAILS_CAP]


def sweep(context: ReadContext, request: SweepRequest) -> Outcome:
    """Compare disk and index in the requested scope; FILTER_* errors."""
    started = time.monotonic()
    scope = build_scope(request.doc_type, request.filters, context.model)
    wanted = set(CATEGORIES if request.categories is None else request.categories)
    visited, warnings = _visit(context, request)
    findings = _Findings(visited)
    _compare(context, request, scope, wanted, visited, findings)
    if "broken_refs" in wanted:
        _find_broken_refs(context, request, scope, findings)
    completed_at = iso_milliseconds(dt.datetime.now(dt.UTC))
    context.keep_sweep(
        IntegritySweep(completed_at, {name: findings.counts[name] for name in CATEGORIES})
    )
    data: dict[str, Any] = {
        "scanned": len(visited),
        "healthy": findings.healthy,
        "findings": findings.counts,
        "scopeFilters": {
            "docType": request.doc_type,
            "docId": request.doc_id,
            "filter": request.filters,
            "categories": None if request.categories is None else list(request.categories),
        },
        "completedAt": completed_at,
        "durationMs": round((time.monotonic() - started) * 1000),
    }
    if request.verbose:
        data["details"] = findings.details()
        if len(data["details"]) < sum(findings.counts.values()):
            data["detailsTruncated"] = True
    advice = (
        *type_advice(context.model, request.doc_type),
        *_record_advice(context, request.doc_id),
        *scope_advice(scope),
        *warnings,
    )
    return Outcome(data, advice)


def _record_advice(context: ReadContext, doc_id: str | None) -> list[Advice]:
    """FILE_NOT_FOUND for a record that the index does not have."""
    if doc_id is None or context.reader.find(doc_id) is not None:
        return []
    return [Advice("docId", f'the index has no record "{doc_id}"', "FILE_NOT_FOUND")]


def _visit(context: ReadContext, request: SweepRequest) -> tuple[list[MarkdownFile], list[Advice]]:
    """The files in scope, by path, and what could not be read."""
    if request.doc_id is not None:
        return _visit_record(context, request.doc_id, request.doc_type), []
    files: dict[str, MarkdownFile] = {}
    warnings: list[Advice] = []
    for entry in _types_in_scope(context.model, request.doc_type):
        context.check_time()
        if _is_on_disk(context, entry.path) is False:
            continue
        walk = context.root.walk_markdown(entry.path)
        files |= {file.path: file for file in walk.files}
        if not walk.complete:
            warnings += [Advice("", text, "FILE_READ_ERROR") for text in walk.warnings]
    return [files[path] for path in sorted(files)], warnings


def _visit_record(context: ReadContext, doc_id: str, doc_type: str | None) -> list[MarkdownFile]:
    """The one file of a record: where its row says, or where it would have been created."""
    row = context.reader.find(doc_id)
    if row is not None:
        paths = [row.file_path] if doc_type in (None, row.doc_type) else []
    else:
        paths = [
            path
            for entry in _types_in_scope(context.model, doc_type)
            if doc_id.startswith(f"{entry.id_prefix}-")
            for path in context.model.record_paths(entry, doc_id)
            if context.reader.find_by_path(path) is None
        ]
    found = []
    for path in paths:
        if _is_on_disk(context, path):
            status = context.root.stat(path)
            found.append(MarkdownFile(path, status.st_size, status.st_mtime_ns, status.st_ino))
    return found


def _is_on_disk(context: ReadContext, path: str) -> bool | None:
    """Whether a name is taken; None when that cannot be told (a closed folder)."""
    try:
        return context.root.exists(path)
    except (OSError, MaadError):
        return None


def _is_no_record(context: ReadContext, path: str) -> bool:
    """Whether something else has the name: a folder, a pipe, a link out of the project."""
    try:
        if not stat.S_ISREG(context.root.stat(path).st_mode):
            return True
        context.root.read(path, 1)
    except FileNotFoundError:
        return True  # a link that leads nowhere
    except OSError:
        return False
    except MaadError as error:
        return error.code == "PATH_OUTSIDE_PROJECT"
    return False


def _types_in_scope(model: Model, doc_type: str | None) -> list[TypeEntry]:
    types = model.registry.types
    if doc_type is None:
        return list(types.values())
    return [types[doc_type]] if doc_type in types else []


def _compare(
    context: ReadContext,
    request: SweepRequest,
    scope: Scope,
    wanted: set[str],
    visited: Sequence[MarkdownFile],
    findings: _Findings,
) -> None:
    """Walk files and rows side by side, both in path order."""
    judge = _Judge(context, wanted, findings, lone_files=not request.filters)
    rows = _rows(context, request, scope)
    row = next(rows, None)
    for file in visited:
        context.check_time()
        while row is not None and row.path < file.path:
            judge.row_without_file(row)
            row = next(rows, None)
        if row is not None and row.path == file.path:
            judge.pair(row)
            row = next(rows, None)
        else:
            judge.file_without_row(file)
    while row is not None:
        judge.row_without_file(row)
        row = next(rows, None)


def _rows(context: ReadContext, request: SweepRequest, scope: Scope) -> Iterator[_Row]:
    """Every live row, by path; those out of scope only tell that their file is indexed."""
    narrow, params = "", list(scope.params)
    if request.doc_id is not None:
        narrow = " AND d.doc_id = ?"
        params.append(request.doc_id)
    rows = context.reader.connection.execute(_ROWS.format(scope=scope.sql, narrow=narrow), params)
    return (
        _Row(doc_id, doc_type, schema_ref, path, file_hash, in_scope == 1)
        for doc_id, doc_type, schema_ref, path, file_hash, in_scope in rows
    )


class _Judge:
    """What each file, row or pair of both means."""

    def __init__(
        self, context: ReadContext, wanted: set[str], findings: _Findings, *, lone_files: bool
    ) -> None:
        self._context = context
        self._wanted = wanted
        self._findings = findings
        self._lone_files = lone_files

    def file_without_row(self, file: MarkdownFile) -> None:
        if "missing_in_index" not in self._wanted or not self._lone_files:
            return
        owner = owning_type(self._context.model.registry, file.path)
        stem = posixpath.basename(file.path)[: -len(".md")]
        self._findings.add("missing_in_index", stem, "" if owner is None else owner.name, file.path)

    def row_without_file(self, row: _Row) -> None:
        if not row.in_scope:
            return
        self._schema(row)
        if "missing_on_disk" not in self._wanted:
            return
        there = _is_on_disk(self._context, row.path)
        if there is False or (there and _is_no_record(self._context, row.path)):
            self._findings.add("missing_on_disk", row.doc_id, row.doc_type, row.path)
        elif there and owning_type(self._context.model.registry, row.path) is None:
            self._findings.add(UNREGISTERED_PATH, row.doc_id, row.doc_type, row.path)

    def pair(self, row: _Row) -> None:
        if not row.in_scope:
            return
        self._schema(row)
        if "hash_drift" not in self._wanted:
            return
        expected = f"sha256:{row.file_hash}"
        try:
            actual = f"sha256:{content_hash(self._context.root.read(row.path).data)}"
        except MaadError as error:
            self._drift("hash_drift", row, expected=expected, error=error.code)
        else:
            if actual != expected:
                self._drift("hash_drift", row, expected=expected, actual=actual)

    def _schema(self, row: _Row) -> None:
        entry = self._context.model.registry.types.get(row.doc_type)
        if "schema_drift" in self._wanted and entry and entry.schema_ref != row.schema_ref:
            self._drift("schema_drift", row, expected=entry.schema_ref, actual=row.schema_ref)

    def _drift(self, finding: str, row: _Row, **details: str) -> None:
        self._findings.add(finding, row.doc_id, row.doc_type, row.path, **details)


def _find_broken_refs(
    context: ReadContext, request: SweepRequest, scope: Scope, findings: _Findings
) -> None:
    """Records with refs to ids without a live record; the index alone is asked."""
    narrow, params = "", list(scope.params)
    if request.doc_id is not None:
        narrow = " AND d.doc_id = ?"
        params.append(request.doc_id)
    rows = context.reader.connection.execute(_BROKEN.format(scope=scope.sql, narrow=narrow), params)
    record: tuple[str, str, str] | None = None
    broken: dict[str, dict[str, bool]] = {}
    for doc_id, doc_type, path, field, target, deleted in rows:
        if record is not None and record[0] != doc_id:
            _add_broken(findings, record, broken)
            broken = {}
        record = (doc_id, doc_type, path)
        broken.setdefault(field, {})[target] = deleted == 1
    if record is not None:
        _add_broken(findings, record, broken)


def _add_broken(
    findings: _Findings, record: tuple[str, str, str], broken: dict[str, dict[str, bool]]
) -> None:
    details: dict[str, Any] = {
        "actual": {field: list(targets) for field, targets in broken.items()}
    }
    deleted = {
        field: [target for target, dead in targets.items() if dead]
        for field, targets in broken.items()
        if any(targets.values())
    }
    if deleted:
        details["deletedTargets"] = deleted
    findings.add("broken_refs", *record, **details)
