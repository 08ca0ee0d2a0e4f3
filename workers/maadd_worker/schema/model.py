"""The model of a project: its registry and schemas as one immutable value (spec 01 §2, §3)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.markdown.yaml_profile import load_yaml_document
from maadd_worker.schema.faults import Fault, located_errors
from maadd_worker.schema.registry import (
    REGISTRY_PATH,
    Advisory,
    Registry,
    TypeEntry,
    decode_model_file,
    is_absent,
    judge_registry,
    read_registry,
)
from maadd_worker.schema.schema import Schema, schema_path
from maadd_worker.schema.schema_file import parse_schema, ref_version
from maadd_worker.schema.suggestion import did_you_mean, listed


class FileStamp(msgspec.Struct, frozen=True):
    """What a registry or schema file looked like when it was read; `sha256` is hex."""

    mtime_ns: int
    size: int
    inode: int
    sha256: str


ABSENT = FileStamp(0, -1, 0, "")
"""The stamp of a file that could not be read."""


class Model(msgspec.Struct, frozen=True):
    """Registry and schemas. `schemas` and `stamps` are keyed by ref and by path."""

    registry: Registry
    schemas: dict[str, Schema]
    stamps: dict[str, FileStamp]
    advisories: tuple[Advisory, ...] = ()

    def entry(self, doc_type: str) -> TypeEntry:
        """The registry entry of a type; UNKNOWN_TYPE names the types there are."""
        entry = self.registry.types.get(doc_type)
        if entry is None:
            known = self.registry.types
            there = f"registered: {listed(known)}" if known else "no type is registered yet"
            raise MaadError(
                "UNKNOWN_TYPE",
                f'Type "{doc_type}" not in registry{did_you_mean(doc_type, known)}; {there}',
            )
        return entry

    def schema(self, doc_type: str) -> Schema:
        """The schema of a type; UNKNOWN_TYPE, or SCHEMA_NOT_FOUND when it has none it can use."""
        entry = self.entry(doc_type)
        schema = self.schemas.get(entry.schema_ref)
        if schema is None:
            raise MaadError(
                "SCHEMA_NOT_FOUND",
                f'No schema for type "{doc_type}": {schema_path(entry.schema_ref)} is not loaded',
            )
        if schema.type != doc_type:
            raise MaadError("SCHEMA_NOT_FOUND", _mismatch(entry, schema))
        return schema

    @classmethod
    def record_path(cls, entry: TypeEntry, doc_id: str) -> str:
        """Where a new record of the type goes: `<path>/<id>.md`, sharded `<path>/<hh>/<id>.md`."""
        return cls.record_paths(entry, doc_id)[0]

    @staticmethod
    def record_paths(entry: TypeEntry, doc_id: str) -> tuple[str, ...]:
        """Every derived path of a record, that of new records first."""
        flat = f"{entry.path}/{doc_id}.md"
        if entry.shard is None:
            return (flat,)
        shard = hashlib.sha256(doc_id.encode()).hexdigest()[: entry.shard]
        return (f"{entry.path}/{shard}/{doc_id}.md", flat)


class ModelRefresh(msgspec.Struct, frozen=True):
    """A model for further work, and the load errors of the types that refuse writes."""

    model: Model
    refused: dict[str, tuple[MaadError, ...]]


class _Reading(msgspec.Struct, frozen=True):
    """What one look at the files gave; `registry` is None when the registry is unusable."""

    registry: Registry | None
    registry_errors: tuple[MaadError, ...]
    schemas: dict[str, Schema]
    schema_errors: dict[str, tuple[MaadError, ...]]
    stamps: dict[str, FileStamp]


def load_model(root: ProjectRoot) -> Model:
    """Registry and schemas of a project; any problem refuses the load.

    Raises MaadErrors with all of them: the codes of `load_registry`, SCHEMA_NOT_FOUND for a
    missing or unreadable file, SCHEMA_INVALID, PARSE_ERROR, and REGISTRY_INVALID for a schema
    file that is a link out of the project.
    """
    reading = _read(root)
    errors = list(reading.registry_errors)
    for found in reading.schema_errors.values():
        errors.extend(found)
    if reading.registry is None or errors:
        raise MaadErrors(errors)
    return model_of(reading.registry, reading.schemas, reading.stamps)


def refresh_model(root: ProjectRoot, current: Model) -> ModelRefresh:
    """Read the files again and keep the last good state of what is broken now (spec 01 §3.2).

    A broken registry keeps `current` and refuses writes of all types. A broken schema keeps the
    type's last good one for reads and refuses writes of that type. Never raises load errors.
    """
    reading = _read(root)
    if reading.registry is None:
        kept = msgspec.structs.replace(current, stamps=reading.stamps)
        return ModelRefresh(kept, dict.fromkeys(current.registry.types, reading.registry_errors))
    schemas = dict(reading.schemas)
    refused: dict[str, tuple[MaadError, ...]] = {}
    for name, entry in reading.registry.types.items():
        errors = reading.schema_errors.get(entry.schema_ref)
        if errors is None:
            continue
        refused[name] = errors
        previous = current.registry.types.get(name)
        last_good = current.schemas.get(previous.schema_ref) if previous else None
        if last_good is not None:
            schemas[entry.schema_ref] = last_good
    return ModelRefresh(model_of(reading.registry, schemas, reading.stamps), refused)


def stale_files(root: ProjectRoot, model: Model) -> list[str]:
    """The registry and schema files whose content is not what the model was read from."""
    return [path for path, stamp in model.stamps.items() if _changed(root, path, stamp)]


def _changed(root: ProjectRoot, path: str, stamp: FileStamp) -> bool:
    try:
        now = root.stat(path)
    except OSError:
        return stamp != ABSENT
    if (now.st_mtime_ns, now.st_size, now.st_ino) == (stamp.mtime_ns, stamp.size, stamp.inode):
        return False
    try:
        return stamp_of(root.read(path)).sha256 != stamp.sha256
    except MaadError:
        return stamp != ABSENT


def stamp_of(content: FileContent) -> FileStamp:
    """What a file looked like when it was read."""
    digest = hashlib.sha256(content.data).hexdigest()
    return FileStamp(content.mtime_ns, content.size, content.inode, digest)


def _read(root: ProjectRoot) -> _Reading:
    stamps = {REGISTRY_PATH: ABSENT}
    try:
        registered = read_registry(root)
        stamps[REGISTRY_PATH] = stamp_of(registered)
        registry = judge_registry(root, registered)
    except (MaadError, MaadErrors) as failure:
        return _Reading(None, tuple(errors_of(failure)), {}, {}, stamps)
    schemas: dict[str, Schema] = {}
    broken: dict[str, tuple[MaadError, ...]] = {}
    for entry in registry.types.values():
        ref, path = entry.schema_ref, schema_path(entry.schema_ref)
        if path in stamps:
            continue
        stamps[path] = ABSENT
        try:
            content = _read_schema(root, entry, registered)
            stamps[path] = stamp_of(content)
            text = decode_model_file(content.data, path)
            document = load_yaml_document(text, path)
            schemas[ref] = parse_schema(ref, document, registry.types, text)
        except (MaadError, MaadErrors) as failure:
            broken[ref] = tuple(errors_of(failure))
    return _Reading(registry, (), schemas, broken, stamps)


def _read_schema(root: ProjectRoot, entry: TypeEntry, registered: FileContent) -> FileContent:
    """A schema file; raises what is wrong with the place in the registry that names it."""
    path = schema_path(entry.schema_ref)
    try:
        return root.read(path)
    except MaadError as error:
        if error.code == "PATH_OUTSIDE_PROJECT":
            code = "REGISTRY_INVALID"
            message = (
                f'type "{entry.name}": {path} is a link that leads out of the project or nowhere'
            )
        else:
            code = "SCHEMA_NOT_FOUND"
            why = f"cannot be read: {error.message}"
            if is_absent(error):
                why = "does not exist; create it"
            message = f'{path}, the schema of type "{entry.name}", {why}'
        fault = Fault(("types", entry.name, "schema"), message, code)
        text = decode_model_file(registered.data, REGISTRY_PATH)
        raise MaadErrors(located_errors([fault], REGISTRY_PATH, text, "file")) from error


def model_of(registry: Registry, schemas: dict[str, Schema], stamps: dict[str, FileStamp]) -> Model:
    """The model of files that were read and judged, with what is worth a person's attention."""
    advisories = (*registry.advisories, *_disagreements(registry, schemas))
    return Model(registry, schemas, stamps, advisories)


def _disagreements(registry: Registry, schemas: Mapping[str, Schema]) -> list[Advisory]:
    """Where a schema file says another type or version than the registry."""
    found: list[Advisory] = []
    for entry in registry.types.values():
        schema = schemas.get(entry.schema_ref)
        if schema is None:
            continue
        if schema.type != entry.name:
            found.append(_advisory("SCHEMA_TYPE_MISMATCH", _mismatch(entry, schema), entry))
        if schema.version != ref_version(schema.ref):
            found.append(
                _advisory(
                    "SCHEMA_VERSION_MISMATCH",
                    f"{schema_path(schema.ref)} declares version {schema.version}, its name says "
                    f"{ref_version(schema.ref)}; the name counts",
                    entry,
                )
            )
    return found


def _advisory(code: str, message: str, entry: TypeEntry) -> Advisory:
    return Advisory(code, message, type=entry.name, file=schema_path(entry.schema_ref))


def _mismatch(entry: TypeEntry, schema: Schema) -> str:
    return (
        f'No schema for type "{entry.name}": {schema_path(entry.schema_ref)} declares '
        f"`type: {schema.type}`; make it `type: {entry.name}`"
    )
