"""The fresh observation of a project's schema contract (spec 05 §5.1, §5.5).

Never from caches of the file system's times: every file is read, and read again at the end.
Only judging what was read is remembered, by its exact bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd import __version__
from maadd.protocol.canonical_json import sha256_hex
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.contracts.dependencies import (
    Registration,
    Sources,
    about,
    check_schema_shape,
    invalid,
    parse_dependency,
    read_dependency,
    registrations,
)
from maadd_worker.contracts.safe_read import Check, refuse_obstructed
from maadd_worker.contracts.schema_contract import schema_contract_text
from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.schema.model import Model, model_of, stamp_of
from maadd_worker.schema.registry import REGISTRY_PATH, Registry, parse_registry
from maadd_worker.schema.schema import Schema, schema_path
from maadd_worker.schema.schema_file import parse_schema


class Observation(msgspec.Struct, frozen=True):
    """A schema contract as it was on the disk. `model` is what the engine would load from it."""

    contract_text: str
    """`schemaContract` as canonical JSON."""
    schema_digest: str
    model: Model


class _Prepared(msgspec.Struct, frozen=True):
    """What exact bytes come to; a pure function of them."""

    key: str
    registry: Registry
    schemas: dict[str, Schema]
    contract_text: str
    schema_digest: str


class Preparations:
    """Remembers the last contract that was judged good. `compiled` counts the judgements."""

    def __init__(self, engine_version: str = __version__) -> None:
        self.compiled = 0
        self._engine_version = engine_version
        self._last: _Prepared | None = None

    def forget(self) -> None:
        """The next observation judges anew."""
        self._last = None

    def find(self, key: str) -> _Prepared | None:
        """What these bytes came to, if they are the ones of last time."""
        last = self._last
        return last if last is not None and last.key == key else None

    def compile(
        self, key: str, sources: Sources, documents: Mapping[str, Any], check: Check
    ) -> _Prepared:
        """Judge the schemas by the rules of the ordinary loader, and build the identity."""
        self.compiled += 1
        try:
            registry = parse_registry(documents[REGISTRY_PATH])
        except MaadErrors as failure:
            raise _first(failure, REGISTRY_PATH) from failure
        schemas: dict[str, Schema] = {}
        for entry in registry.types.values():
            check()
            path = schema_path(entry.schema_ref)
            try:
                schemas[entry.schema_ref] = parse_schema(
                    entry.schema_ref, documents[path], registry.types
                )
            except MaadErrors as failure:
                raise _first(failure, path) from failure
        templated = frozenset(
            ref for ref in schemas if documents[schema_path(ref)].get("template") is not None
        )
        text = schema_contract_text(
            self._engine_version,
            {path: content.data.decode() for path, content in sources.files.items()},
            registry,
            list(schemas.values()),
            templated,
        )
        self._last = _Prepared(key, registry, schemas, text, sha256_hex(text))
        return self._last


def observe(
    root: ProjectRoot,
    doc_type: str,
    preparations: Preparations,
    check: Check,
    *,
    reread: bool = True,
) -> Observation:
    """The contract of the whole project, which must register `doc_type`.

    Without `reread` the closing comparison is left to the observation that follows. Raises
    SCHEMA_INVALID, REGISTRY_INVALID, PATH_OUTSIDE_PROJECT, UNKNOWN_TYPE,
    RECEIPT_CONTENT_INVALID, RECEIPT_OBSERVATION_CHANGED, SCHEMA_CONTRACT_CHANGED,
    RESPONSE_TOO_LARGE, and what `check` raises.
    """
    sources = Sources(root, check)
    documents: dict[str, Any] = {}
    registry_text = sources.read(REGISTRY_PATH)
    documents[REGISTRY_PATH] = parse_dependency(registry_text, REGISTRY_PATH)
    entries = registrations(documents[REGISTRY_PATH])
    texts = {entry.schema_ref: _read_type(root, entry, sources) for entry in entries}
    prepared = preparations.find(_key(sources.files))
    if prepared is None:
        for entry in entries:
            path = schema_path(entry.schema_ref)
            document = documents[path] = parse_dependency(texts[entry.schema_ref], path)
            check_schema_shape(document, entry, path)
    if all(entry.name != doc_type for entry in entries):
        known = ", ".join(entry.name for entry in entries)
        raise MaadError("UNKNOWN_TYPE", f"{doc_type!r} is no registered type; registered: {known}")
    if prepared is None:
        prepared = preparations.compile(_key(sources.files), sources, documents, check)
    if reread:
        _compare_again(root, sources.files, check)
    stamps = {
        path: stamp_of(sources.files[path])
        for path in (REGISTRY_PATH, *map(schema_path, prepared.schemas))
    }
    return Observation(
        prepared.contract_text,
        prepared.schema_digest,
        model_of(prepared.registry, dict(prepared.schemas), stamps),
    )


def _read_type(root: ProjectRoot, entry: Registration, sources: Sources) -> str:
    """The text of a type's schema, once its folder and its template are judged too."""
    try:
        refuse_obstructed(root, entry.path)
    except OSError as failure:
        raise invalid(REGISTRY_PATH, "unreadable", f"{entry.path}: {failure.strerror}") from None
    except MaadError as failure:
        raise about(failure, REGISTRY_PATH) from failure
    text = sources.read(schema_path(entry.schema_ref))
    if entry.template is not None:
        sources.read(entry.template)
    return text


def _compare_again(root: ProjectRoot, files: Mapping[str, FileContent], check: Check) -> None:
    """Every dependency must still have the bytes that were judged."""
    for path, content in files.items():
        try:
            same = read_dependency(root, path, check).data == content.data
        except MaadError as failure:
            if failure.code != "SCHEMA_INVALID":
                raise
            same = False
        if not same:
            raise MaadError(
                "SCHEMA_CONTRACT_CHANGED",
                f"{path} changed while the contract was observed; review it and ask again",
                {"dependency": path, "cause": "changed"},
            )


def _key(files: Mapping[str, FileContent]) -> str:
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path}\0{len(content.data)}\0".encode())
        digest.update(content.data)
    return digest.hexdigest()


def _first(failure: MaadErrors, path: str) -> MaadError:
    """The first finding of the ordinary loader, as the contract tells it."""
    first = errors_of(failure)[0]
    return invalid(path, "validation", first.message)
