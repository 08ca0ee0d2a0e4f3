"""Registry and schemas, the index against the disk, and writes that were not finished."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from maadd.cli.doctor.check import Check, of_errors, ok, problem, some, warning
from maadd.cli.project_folder import has_registry, parts_of_project
from maadd.cli.tables import counted
from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.disk.journal import JOURNAL_PATH, check_journal, reference_entries, unusable
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.connection import open_for_look
from maadd_worker.index.known_files import known_files
from maadd_worker.index.layout import INDEX_PATH, is_current
from maadd_worker.index.memo import AnswerMemo
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.selections import Selections
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.schema.model import Model, load_model
from maadd_worker.schema.registry import REGISTRY_PATH
from maadd_worker.watch.survey import Survey, survey

_CHECK_S = 20.0
_PAGE = 500
_REINDEX = "maad reindex"
_MOVE_AWAY = "stop the server, delete _backend/maad.db*, then maad reindex; no record is lost"

_COUNTS = "SELECT count(*), coalesce(sum(valid = 0), 0) FROM documents WHERE deleted = 0"
_PENDING = "SELECT status, count(*) FROM entry GROUP BY status ORDER BY status"


def look(folder: ProjectRoot) -> tuple[Model | None, list[Check]]:
    """The model, None when it cannot be loaded, with the checks of its files."""
    try:
        model = load_model(folder)
    except MaadErrors as failure:
        return None, list(of_errors("registry and schemas", failure))
    types = list(model.registry.types)
    found = [
        ok(
            "registry and schemas",
            f"{counted(len(types), 'type')}: {some(types)}" if types else "empty",
        )
    ]
    for advisory in (*model.registry.advisories, *model.advisories):
        text, _, advice = advisory.message.partition("; ")
        found.append(warning("registry and schemas", text, advice or "look at the file named"))
    return model, found


def index_checks(folder: ProjectRoot, model: Model | None, *, owned: bool) -> Iterator[Check]:
    """The index file, and what differs between it and the files; `owned` says that a server is
    at work, which takes changes over by itself."""
    path = os.path.join(folder.path, INDEX_PATH)
    if not os.path.exists(path):
        yield warning("index", "there is none yet", _REINDEX)
        return
    try:
        connection = open_for_look(path)
    except apsw.Error as error:
        yield problem("index", f"cannot be opened: {error}", _MOVE_AWAY)
        return
    with contextlib.closing(connection):
        try:
            yield from _index(folder, model, connection, owned=owned)
        except apsw.InterruptError:
            yield warning("index", f"its check took over {_CHECK_S:g} s", "look when it is quiet")
        except apsw.Error as error:
            yield problem("index", f"is damaged: {error}", _MOVE_AWAY)


def _index(
    folder: ProjectRoot, model: Model | None, connection: apsw.Connection, *, owned: bool
) -> Iterator[Check]:
    if not is_current(connection):
        text = "was written by another version"
        yield warning("index", text, "nothing to do: the next start makes it anew")
        return
    reader = IndexReader(connection, AnswerMemo(), Selections())
    with reader.deadline(_CHECK_S):
        verdict = connection.pragma("quick_check", 1)
        if verdict != "ok":
            yield problem("index", f"is damaged: {verdict}", _MOVE_AWAY)
            return
        [(documents, invalid)] = connection.execute(_COUNTS)
        yield ok("index", f"sound, {counted(documents, 'record')}")
        if invalid:
            text = f"{invalid} break their schema"
            yield warning("records", text, "maad validate lists them")
        if model is not None:
            plans = TypePlans(model)
            found = survey(reader, folder, plans, lambda _path: None)
            changed = _changed(folder, plans, connection, found.changed)
            yield from _differences(msgspec.structs.replace(found, changed=changed), owned=owned)


def _changed(
    folder: ProjectRoot, plans: TypePlans, connection: apsw.Connection, paths: Sequence[str]
) -> tuple[str, ...]:
    """Those of the files whose content is not what the index holds: a file may only look other
    than when it was indexed."""
    changed = []
    for start in range(0, len(paths), _PAGE):
        page = paths[start : start + _PAGE]
        known = known_files(connection, page)
        for path in page:
            row = known.get(path)
            try:
                same = row is not None and row.current_hash(plans) == content_hash(
                    folder.read(path).data
                )
            except MaadError:
                same = False
            if not same:
                changed.append(path)
    return tuple(changed)


def _differences(found: Survey, *, owned: bool) -> Iterator[Check]:
    advice = "the server takes them over; maad_health names what it cannot" if owned else _REINDEX
    if found.changed:
        text = f"{counted(len(found.changed), 'file')} not indexed as now: {some(found.changed)}"
        yield warning("files", text, advice)
    if found.gone:
        text = f"{counted(len(found.gone), 'file')} indexed and gone: {some(found.gone)}"
        yield warning("files", text, advice)
    if found.tombstones:
        number = counted(len(found.tombstones), "deleted record")
        text = f"{number} not known: {some(found.tombstones)}"
        yield warning("files", text, advice)
    for text in found.warnings:
        yield warning("files", text, "see whether the folder is there and readable")
    if not (found.changed or found.gone or found.tombstones or found.warnings):
        yield ok("files", "the index is up to date with them")


def journal_checks(root: str, *, owned: bool) -> Iterator[Check]:
    """Writes under way, or left by a process that died (spec 01 §15.1), in the journal and in
    one of the reference that is not taken over yet; what keeps a project from opening here."""
    counts: Counter[str] = Counter()
    unreadable = False
    for look in (_of_reference, _of_journal):
        try:
            counts.update(look(root))
        except MaadError as failure:
            unreadable = True
            advice = "as said; no record is lost, only what writes under way would have become"
            yield problem("journal", f"{failure.code}: {failure.message}", advice)
    if unreadable:
        return
    if not counts:
        yield ok("journal", "empty")
        return
    text = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    if owned:
        yield ok("journal", f"under way: {text}")
    else:
        advice = "nothing to do: the next start finishes them (maad flush does it now)"
        yield warning("journal", f"unfinished: {text}", advice)


def _of_reference(root: str) -> Counter[str]:
    """Unfinished writes by status; BACKEND_ERROR as at the start of the project."""
    return Counter(entry.status for entry in reference_entries(root) or ())


def _of_journal(root: str) -> Counter[str]:
    """As `_of_reference`."""
    path = os.path.join(root, JOURNAL_PATH)
    if not os.path.exists(path):
        return Counter()
    try:
        with contextlib.closing(open_for_look(path)) as connection:
            if check_journal(connection):
                return Counter()
            rows: list[Any] = list(connection.execute(_PENDING))
    except apsw.Error as error:
        raise unusable(error) from None
    return Counter(dict(rows))


def folder_of(root: str, *, named: bool) -> ProjectRoot | Check:
    """The opened folder of a project, or why it is none; a folder that nobody `named` need not
    be one. What is wrong with a registry that is there is told with the model."""
    try:
        folder = ProjectRoot.open(root)
    except MaadError as failure:
        why = failure.message.partition(": ")[2].partition("; ")[0]
        closed = (failure.details or {}).get("errno") in ("EACCES", "EPERM")
        advice = "give it to the user that runs this (chown, chmod)" if closed else "check the path"
        return problem("project", f"{root} cannot be opened: {why}", advice)
    if has_registry(root):
        return folder
    folder.close()
    parts = parts_of_project(root)
    if parts:
        text = f"{root} has no {REGISTRY_PATH}, although {some(parts)} lie there"
        advice = f"put the file back: git restore {REGISTRY_PATH}, or from a copy"
        return problem("project", text, advice)
    if named:
        return problem("project", f"{root} has no {REGISTRY_PATH}", f"maad init {root}")
    advice = "go to a project, or name one with --project or --instance"
    return warning("project", f"{root} is none, so nothing else was looked at", advice)
