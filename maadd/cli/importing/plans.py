"""From a source to an import that is ready: read, planned, converted and checked."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence

import click
import msgspec

from maadd.cli.importing.report import type_counts
from maadd.cli.importing.run import Import
from maadd.cli.project_folder import refuse_no_project
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.disk.paths import is_within
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.imports.check_plan import plan_faults, plan_notes
from maadd_worker.imports.existing import as_intended
from maadd_worker.imports.ledger import Ledger
from maadd_worker.imports.markdown_source import read_folder
from maadd_worker.imports.model_files import model_change
from maadd_worker.imports.plan import LinkMode
from maadd_worker.imports.plan_file import plan_text, read_plan
from maadd_worker.imports.prepare import planned_model, prepare
from maadd_worker.imports.propose import Place, propose
from maadd_worker.imports.source import Progress, Source
from maadd_worker.imports.table_source import CSV_SUFFIXES, JSONL_SUFFIXES, read_table
from maadd_worker.schema.model import Model, load_model
from maadd_worker.schema.registry import ENGINE_FOLDERS


@contextlib.contextmanager
def open_place(root: str) -> Iterator[ProjectRoot]:
    """The folder of the project; REGISTRY_NOT_FOUND for a folder that is none."""
    refuse_no_project(root)
    with contextlib.closing(ProjectRoot.open(root)) as folder:
        yield folder


def prepare_import(
    folder: ProjectRoot,
    settings: Settings,
    path: str,
    *,
    given: str | None,
    links: LinkMode | None,
    replan: bool,
    progress: Progress,
) -> tuple[Import, Sequence[str], bool]:
    """The import of a source, remarks on its plan, and whether it was decided on before: by a
    plan that is `given`, or because it has begun.

    Raises MaadError or MaadErrors for a source that cannot be read, a plan that is none, and
    types that cannot be.
    """
    model = load_model(folder)
    source = _read(folder, model, settings, path, progress)
    ledger = Ledger(folder.path, source.path, source.name)
    notes: Sequence[str] = ()
    kept = None if replan or given is not None else ledger.plan()
    if given is not None:
        plan = read_plan(_file_text(given), given)
    elif kept is not None:
        plan = read_plan(kept, f"{ledger.folder}/plan.yaml")
    else:
        proposal = propose(source, _place(folder, model), links or "keep")
        plan, notes = proposal.plan, proposal.notes
    if links is not None and plan.links != links:
        raise click.UsageError(f"the plan says links: {plan.links}; edit it, or use --replan")
    planned = planned_model(model, plan)
    intended = ledger.intended()
    if intended:
        # A run was cut short: what it had written is known as its own, whatever the source says.
        ledger.add(as_intended(folder, planned, intended))
    pinned = {}
    if source.kind == "markdown":
        pinned = {key: one.doc_id for key, one in ledger.done().items()}
    if given is not None:
        # Also when nothing is to be done: it may ask for types that cannot be.
        model_change(folder, plan)
    faults = plan_faults(plan, source, planned)
    remarks = plan_notes(plan, source, planned)
    if given is not None and faults:
        raise MaadErrors(
            [MaadError("INVALID_ARGS", f"{given}: {one.reason}; {one.advice}") for one in faults]
        )
    prepared = prepare(source, plan, planned, pinned)
    # A plan from before may name what is no longer there.
    prepared = msgspec.structs.replace(prepared, notes=(*faults, *remarks, *prepared.notes))
    begun = given is not None or kept is not None
    one = Import(source, plan, prepared, planned, ledger, settings.max_doc_bytes)
    return one, notes, begun


def plan_of(one: Import, notes: Sequence[str]) -> str:
    """The plan as a text to keep or to edit, with the ids that collided."""
    ids = {key: doc_id for key, (_, doc_id) in one.prepared.assigned.collisions.items()}
    return plan_text(one.plan, type_counts(one.prepared), ids, notes)


def write_plan_file(path: str | None, one: Import, notes: Sequence[str]) -> None:
    """Write the plan to a new file, or to standard output; WRITE_ERROR."""
    text = plan_of(one, notes)
    if path is None:
        click.echo(text, nl=False)
        return
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise MaadError(
            "WRITE_ERROR", f"{path} is there already; follow it with --with, or name another file"
        ) from None
    except OSError as failure:
        why = os.strerror(failure.errno or 0)
        raise MaadError("WRITE_ERROR", f"{path} cannot be written: {why}") from None
    click.echo(f"wrote {path}; edit it, then run the import with --with {path}", err=True)


def _read(
    folder: ProjectRoot, model: Model, settings: Settings, path: str, progress: Progress
) -> Source:
    real = os.path.realpath(path)
    suffix = os.path.splitext(real)[1].lower()
    try:
        mode = os.stat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise MaadError("PATH_NOT_FOUND", f"{path} is no file and no folder") from None
    except OSError as failure:
        why = os.strerror(failure.errno or 0)
        raise MaadError(
            "FILE_READ_ERROR", f"{path} cannot be read: {why}; check its permissions"
        ) from None
    if stat.S_ISDIR(mode):
        _refuse_records(folder, model, real, path)
        own = [os.path.join(real, name) for name in ENGINE_FOLDERS]
        return read_folder(
            real,
            max_bytes=settings.max_doc_bytes,
            without=[folder.path, *own],
            progress=progress,
        )
    if not stat.S_ISREG(mode):
        raise MaadError("PATH_NOT_FOUND", f"{path} is no file and no folder")
    if suffix not in (*CSV_SUFFIXES, *JSONL_SUFFIXES):
        raise MaadError(
            "INVALID_ARGS",
            f"{path}: a folder of Markdown, or a file with one of the suffixes "
            f"{', '.join((*CSV_SUFFIXES, *JSONL_SUFFIXES))} can be imported; for a single "
            "Markdown file give the folder that it is in",
        )
    return read_table(real, progress)


def _refuse_records(folder: ProjectRoot, model: Model, real: str, path: str) -> None:
    """The records of the project are no source for it."""
    places = {entry.path for entry in model.registry.types.values()}
    if real == folder.path or any(
        is_within(os.path.join(folder.path, place), real) for place in places
    ):
        raise MaadError(
            "INVALID_ARGS",
            f"{path} is part of the project itself; to take over files there, run `maad reindex`",
        )


def _place(folder: ProjectRoot, model: Model) -> Place:
    refs = set(model.schemas)
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(os.path.join(folder.path, "_schema"))
        refs.update(name.removesuffix(".yaml") for name in names)
    fields = {schema.type: frozenset(schema.fields) for schema in model.schemas.values()}
    top = frozenset(os.listdir(folder.path))
    return Place(model.registry.types, fields, frozenset(refs), top)


def _file_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise MaadError("PARSE_ERROR", f"{path} is not UTF-8; save it as UTF-8") from None
    except OSError as failure:
        why = os.strerror(failure.errno or 0)
        raise MaadError("FILE_READ_ERROR", f"{path} cannot be read: {why}") from None
