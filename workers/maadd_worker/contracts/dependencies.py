"""The files a schema contract depends on: read once, parsed and judged by their form (05 §5.1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.protocol.canonical_json import canonical_json
from maadd.protocol.errors import MaadError
from maadd_worker.contracts.safe_read import Check, read_bounded
from maadd_worker.contracts.stored_document import load_strict_yaml
from maadd_worker.disk.paths import is_safe_relative, is_safe_schema_ref
from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.markdown.frontmatter import BOM, split_file
from maadd_worker.schema.primitives import PRIMITIVES
from maadd_worker.schema.registry import REGISTRY_PATH, is_id_prefix, is_type_name

MAX_SOURCE_BYTES = 262_144
MAX_TYPES = 64
MAX_DEPENDENCIES = 129
_MAX_REF_LENGTH = 128
_MAX_HEADING_LEVEL = 6


class Registration(msgspec.Struct, frozen=True):
    """What the registry says of one type, before any file of it was read."""

    name: str
    path: str
    id_prefix: str
    schema_ref: str
    template: str | None


class Sources:
    """The dependencies of one observation, each read at most once."""

    __slots__ = ("_check", "_root", "_total", "files")

    def __init__(self, root: ProjectRoot, check: Check) -> None:
        self._root = root
        self._check = check
        self._total = 0
        self.files: dict[str, FileContent] = {}

    def read(self, path: str) -> str:
        """The text of a dependency.

        Raises SCHEMA_INVALID for one that is missing, unreadable, no UTF-8 or starts with a
        byte order mark, and what `read_bounded` raises; RESPONSE_TOO_LARGE for all together.
        """
        content = self.files.get(path)
        if content is None:
            content = read_dependency(self._root, path, self._check)
            self._total += len(content.data)
            if self._total > MAX_SOURCE_BYTES:
                raise MaadError(
                    "RESPONSE_TOO_LARGE",
                    f"registry, schemas and templates have more than {MAX_SOURCE_BYTES} bytes",
                    {"capBytes": MAX_SOURCE_BYTES, "dependency": path},
                )
            self.files[path] = content
            if len(self.files) > MAX_DEPENDENCIES:
                raise invalid(path, "dependencies", f"more than {MAX_DEPENDENCIES} files")
        try:
            text = content.data.decode()
        except UnicodeDecodeError as failure:
            raise invalid(path, "utf8", f"invalid UTF-8 at byte {failure.start}") from None
        if text.startswith(BOM):
            raise invalid(path, "bom", "it starts with a byte order mark; save it without one")
        return text


def read_dependency(root: ProjectRoot, path: str, check: Check) -> FileContent:
    """The bytes of one dependency; SCHEMA_INVALID instead of an OSError."""
    try:
        return read_bounded(root, path, check)
    except OSError as failure:
        missing = isinstance(failure, FileNotFoundError | NotADirectoryError)
        cause = "missing" if missing else "unreadable"
        raise invalid(path, cause, os.strerror(failure.errno or 0)) from None
    except MaadError as failure:
        raise about(failure, path) from failure


def about(failure: MaadError, path: str) -> MaadError:
    """The failure with the file that it is about."""
    return MaadError(failure.code, failure.message, {**(failure.details or {}), "dependency": path})


def parse_dependency(text: str, path: str) -> Any:
    """The value of a registry or schema text, itself within the bounds of canonical JSON.

    RECEIPT_CONTENT_INVALID for an empty file and for values beyond those, SCHEMA_INVALID for
    what is no YAML.
    """
    if not text:
        details = {"dependency": path, "cause": "empty"}
        raise MaadError("RECEIPT_CONTENT_INVALID", f"{path} is empty", details)
    try:
        value = load_strict_yaml(_inside_fences(text))
    except MaadError as failure:
        raise invalid(path, "yaml", failure.message) from failure
    try:
        canonical_json(value)
    except MaadError as failure:
        raise about(failure, path) from failure
    return value


def registrations(document: Any) -> list[Registration]:
    """The types in registry order; SCHEMA_INVALID and REGISTRY_INVALID by the form alone."""
    types = document.get("types") if isinstance(document, dict) else None
    if not isinstance(types, dict):
        raise _bad_registry("`types` must be a mapping of type names")
    if not 1 <= len(types) <= MAX_TYPES:
        raise _bad_registry(f"{len(types)} types; a contract covers 1 to {MAX_TYPES}")
    found = [_registration(name, entry) for name, entry in types.items()]
    _check_subtypes(document)
    owners: dict[str, str] = {}
    for entry in found:
        owner = owners.setdefault(entry.id_prefix, entry.name)
        if owner != entry.name:
            raise MaadError(
                "REGISTRY_INVALID",
                f"types {owner!r} and {entry.name!r} both have the id_prefix {entry.id_prefix!r}",
                {"dependency": REGISTRY_PATH, "cause": "duplicate_prefix"},
            )
    return found


def check_schema_shape(document: Any, entry: Registration, path: str) -> None:
    """SCHEMA_INVALID unless the top level of a schema file has the form of one of this type."""
    if not isinstance(document, dict):
        raise invalid(path, "shape", "it must be a mapping with type and fields")
    if document.get("type") != entry.name:
        raise invalid(path, "type", f"it must declare `type: {entry.name}`")
    version = document.get("version")
    if version is not None and not (type(version) is int and version >= 1):
        raise invalid(path, "shape", "version must be a positive integer")
    required = document.get("required")
    if required is not None and not _is_list_of_text(required):
        raise invalid(path, "shape", "required must be a list of field names")
    fields = document.get("fields")
    if not isinstance(fields, dict):
        raise invalid(path, "shape", "fields must be a mapping of field names to definitions")
    for name, definition in fields.items():
        if not (isinstance(definition, dict) and isinstance(definition.get("type"), str)):
            raise invalid(path, "shape", f"the field {name!r} must be a mapping with a type")
    template = document.get("template")
    if template is not None and not _is_template(template):
        raise invalid(path, "shape", "template must be {headings: [{level 1 to 6, text, id?}]}")


def invalid(path: str, cause: str, problem: str) -> MaadError:
    """SCHEMA_INVALID about one file."""
    return MaadError("SCHEMA_INVALID", f"{path}: {problem}", {"dependency": path, "cause": cause})


def _inside_fences(text: str) -> str:
    """The inside of a leading `---` block, else the whole text."""
    if not text.startswith("---"):
        return text
    try:
        split = split_file(text.encode(), "")
    except MaadError:
        return text
    return split.block if split.has_frontmatter else text


def _registration(name: str, entry: Any) -> Registration:
    if not is_type_name(name):
        raise _bad_registry(f"{name!r} is no type name")
    if not isinstance(entry, dict):
        raise _bad_registry(f"type {name!r} must be a mapping with path, id_prefix and schema")
    path, prefix, ref = (_text(name, entry, key) for key in ("path", "id_prefix", "schema"))
    template = entry.get("template")
    if template is not None:
        template = _text(name, entry, "template")
    if not is_id_prefix(prefix):
        raise _bad_registry(f"type {name!r}: id_prefix must be 2 to 5 lower-case letters or digits")
    if len(ref) > _MAX_REF_LENGTH or not is_safe_schema_ref(ref):
        raise _bad_registry(f"type {name!r}: schema must look like `task.v1`")
    for place in (path, template):
        if place is not None and not is_safe_relative(place):
            raise MaadError(
                "PATH_OUTSIDE_PROJECT",
                f"type {name!r}: {place!r} is no safe path inside the project",
                {"dependency": REGISTRY_PATH, "cause": "path"},
            )
    return Registration(name, path, prefix, ref, template)


def _text(name: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not (isinstance(value, str) and value):
        raise _bad_registry(f"type {name!r}: {key} must be a text that is not empty")
    return value


def _check_subtypes(document: Mapping[str, Any]) -> None:
    extraction = document.get("extraction")
    subtypes = extraction.get("subtypes") if isinstance(extraction, dict) else None
    if subtypes is None:
        return
    if not isinstance(subtypes, dict) or any(one not in PRIMITIVES for one in subtypes.values()):
        raise _bad_registry("extraction.subtypes must map names to primitives")


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_template(template: Any) -> bool:
    headings = template.get("headings") if isinstance(template, dict) else None
    return isinstance(headings, list) and all(_is_heading(heading) for heading in headings)


def _is_heading(heading: Any) -> bool:
    if not isinstance(heading, dict):
        return False
    level, text, anchor = heading.get("level"), heading.get("text"), heading.get("id")
    return (
        type(level) is int
        and 1 <= level <= _MAX_HEADING_LEVEL
        and isinstance(text, str)
        and (anchor is None or isinstance(anchor, str))
    )


def _bad_registry(problem: str) -> MaadError:
    return invalid(REGISTRY_PATH, "shape", problem)
