"""`maad_reindex`: the index brought up to date with the files (spec 03 §6.1).

Content is never written. A run over everything also drops rows whose files are gone; a run
that is narrowed to a record, a type or a path only looks at those files.
"""

from __future__ import annotations

import stat

import msgspec

from maadd.protocol.arguments import ReindexArgs
from maadd.protocol.errors import MaadError
from maadd_worker.disk.paths import segments
from maadd_worker.disk.scan import TOMBSTONE_PREFIX, MarkdownFile
from maadd_worker.history.lost_versions import past_of
from maadd_worker.history.outcome import GitFailure
from maadd_worker.index.batch import store_batch
from maadd_worker.index.full_pass import PassSteps, index_steps, portions
from maadd_worker.index.pass_report import ChangedId, PassProgress, ReindexReport
from maadd_worker.index.past import PastLookup
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.watch.places import is_walked
from maadd_worker.write.context import WriteContext
from maadd_worker.write.external import prepare_paths

REINDEX_WARNING = "REINDEX_WARNING"


_NEVER = "~"
"""After every stamp: no row is new enough."""


_SCOPES = {"doc_id": "docId", "doc_type": "docType", "path": "path"}
"""What narrows a run, by its member of the arguments and on the wire."""


def check_scope(context: WriteContext, args: ReindexArgs) -> None:
    """Refuse a run that could not begin.

    Raises INVALID_FIELDS for more than one scope and for a path where no records lie,
    FILE_NOT_FOUND, UNKNOWN_TYPE, PATH_OUTSIDE_PROJECT.
    """
    _scope(context, args)


def reindex_steps(
    context: WriteContext, args: ReindexArgs, *, made_since: str | None = None, unread: bool = False
) -> PassSteps:
    """The pass that the arguments ask for, step by step; see `index_steps`.

    Raises as `check_scope`, and BACKEND_ERROR; failures of single files are in the report.
    """
    scope = _scope(context, args)
    if scope is not None:
        anew = args.force or not scope.is_folder
        return (yield from _index_files(context, scope, (made_since or _NEVER) if anew else ""))
    complaints: list[str] = []

    def past() -> PastLookup:
        try:
            return past_of(context.root.path)
        except GitFailure as failure:
            complaints.append(
                f"versions and times of the lost index could not be read from Git: {failure}"
            )
            return lambda _doc_id, _path: None

    report = yield from index_steps(
        context.writer,
        context.model,
        context.root,
        context.settings,
        force=args.force or args.embeddings,
        made_since=made_since,
        prune=args.prune and args.confirm is True,
        unread=unread,
        past=past,
    )
    return msgspec.structs.replace(report, warnings=(*report.warnings, *complaints))


def reindex_outcome(report: ReindexReport, args: ReindexArgs) -> Outcome:
    """The answer: the report, and its warnings once more in `_meta`."""
    data = report.view()
    if args.prune and args.confirm is not True:
        data["wouldPrune"] = {"count": report.prunable, "ids": list(report.prunable_ids)}
    return Outcome(data, tuple(Advice("", text, REINDEX_WARNING) for text in report.warnings))


class _Scope(msgspec.Struct, frozen=True):
    """A part of the project: one file, or the files below some folders."""

    paths: tuple[str, ...]
    is_folder: bool


def _scope(context: WriteContext, args: ReindexArgs) -> _Scope | None:
    """The part that the arguments name; None for the whole project."""
    named = [name for name in _SCOPES if getattr(args, name) is not None]
    if len(named) > 1:
        raise MaadError(
            "INVALID_FIELDS",
            "give one of docId, docType and path",
            {"field": _SCOPES[named[1]]},
        )
    if args.doc_id is not None:
        return _Scope((context.live_row(args.doc_id).file_path,), is_folder=False)
    if args.doc_type is not None:
        return _Scope((context.model.entry(args.doc_type).path,), is_folder=True)
    return None if args.path is None else _scope_of_path(context, args.path)


def _scope_of_path(context: WriteContext, path: str) -> _Scope:
    """A path at, above or below registered folders: whatever a run over everything comes to."""
    names = segments(path)
    if names != path.rstrip("/").split("/"):
        raise MaadError("PATH_OUTSIDE_PROJECT", f'"{path}" is no path below the project root')
    is_folder = path.endswith("/") or not path.endswith(".md") or _is_folder(context, path)
    path = path.rstrip("/")
    registered = [entry.path for entry in context.model.registry.types.values()]
    if is_folder:
        within = tuple(one for one in registered if f"{one}/".startswith(f"{path}/"))
        if within:
            return _Scope(within, is_folder=True)
    walked = is_walked(context.root, f"{path}/x.md" if is_folder else path, context.model)
    hidden = any(name.startswith(".") for name in (names if is_folder else names[:-1]))
    deleted = not is_folder and names[-1].startswith(TOMBSTONE_PREFIX)
    if not walked or hidden or deleted:
        raise MaadError(
            "INVALID_FIELDS",
            f'"{path}" is no place of records; these lie in {", ".join(sorted(set(registered)))}',
            {"field": "path"},
        )
    return _Scope((path,), is_folder)


def _is_folder(context: WriteContext, path: str) -> bool:
    try:
        return context.root.exists(path) and stat.S_ISDIR(context.root.stat(path).st_mode)
    except OSError:
        return False


def _index_files(context: WriteContext, scope: _Scope, made_since: str) -> PassSteps:
    """Look at the files of a scope; rows made before `made_since` are made anew."""
    files = {path: MarkdownFile(path, 0, 0, 0) for path in scope.paths}
    warnings, complete = list[str](), True
    if scope.is_folder:
        walks = [context.root.walk_markdown(folder) for folder in scope.paths]
        files = {file.path: file for walk in walks for file in walk.files}
        warnings = list(dict.fromkeys(text for walk in walks for text in walk.warnings))
        complete = all(walk.complete for walk in walks)
    seen = indexed = skipped = partial = pruned = vanished = 0
    errors: list[MaadError] = []
    changed_ids: list[ChangedId] = []
    for portion in portions(files.values()):
        if seen:
            yield PassProgress(scope.paths[0], len(files), seen, indexed, len(errors), len(files))
        seen += len(portion)
        paths = [file.path for file in portion]
        prepared = prepare_paths(context, paths, made_since=made_since)
        gone = [file.path for file in prepared if file.state == "gone"]
        if scope.is_folder:
            vanished += len(gone)  # between the listing and the look at it
        else:
            errors += map(_gone, gone)
        there = [file for file in prepared if file.state != "gone"]
        for outcome in store_batch(context.writer, context.root, there) if there else ():
            errors.extend(outcome.errors)
            pruned += outcome.gone is not None
            done = outcome.done
            if done is None:
                continue
            if done.changed_id is not None:
                changed_ids.append(done.changed_id)
            indexed += done.rows_made
            skipped += not done.rows_made
            partial += done.rows_made and done.row.partial
    return ReindexReport(
        scanned=len(files) - vanished,
        indexed=indexed,
        skipped=skipped,
        errors=tuple(errors),
        rebuilt_types=(),
        partial=partial,
        pruned=pruned,
        warnings=tuple(warnings),
        prunable=0,
        prunable_ids=(),
        complete=complete,
        changed_ids=tuple(changed_ids),
    )


def _gone(path: str) -> MaadError:
    return MaadError(
        "FILE_READ_ERROR",
        f"{path} cannot be read: No such file or directory",
        {"file": path, "errno": "ENOENT"},
    )
