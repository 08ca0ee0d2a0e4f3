"""The type registry, `_registry/object_types.yaml` (spec 01 §2)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, SourceLocation
from maadd_worker.disk.paths import is_safe_relative, is_safe_schema_ref, is_within
from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.markdown.frontmatter import decode_text
from maadd_worker.markdown.text import js_text
from maadd_worker.markdown.yaml_profile import load_yaml_document
from maadd_worker.schema.faults import Fault, located_errors
from maadd_worker.schema.primitives import BUILTIN_SUBTYPES, PRIMITIVES
from maadd_worker.schema.suggestion import did_you_mean

REGISTRY_PATH = "_registry/object_types.yaml"
ENGINE_FOLDERS = frozenset({"_registry", "_schema", "_backend", "_import", "_skills"})

_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ID_PREFIX = re.compile(r"[a-z0-9]{2,5}")
_ANNOTATION_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHARD_DIGITS = 2

_KeyFault = tuple[str, str]
"""The key of a type's entry, empty for the whole, and what is wrong with it."""


class TypeEntry(msgspec.Struct, frozen=True):
    """One registered type. `path` has no trailing slash.

    `shard` is the number of hex digits that name the sub-folder of new records, or None.
    """

    name: str
    path: str
    id_prefix: str
    schema_ref: str
    template: str | None = None
    shard: int | None = None


class Advisory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something in the model worth a person's attention that refuses nothing (health)."""

    code: str
    message: str
    type: str | None = None
    file: str | None = None
    line: int | None = None


class Registry(msgspec.Struct, frozen=True):
    """The types in file order, and the annotation types.

    `subtypes` are the project's own entries, `subtype_map` the built-in ones under them.
    """

    types: dict[str, TypeEntry]
    subtypes: dict[str, str]
    subtype_map: dict[str, str]
    id_prefixes: frozenset[str]
    advisories: tuple[Advisory, ...] = ()


def load_registry(root: ProjectRoot) -> Registry:
    """Read and judge the registry of a project; schema files are not looked at.

    Pure: creates no directory. Raises MaadErrors with every problem: REGISTRY_NOT_FOUND,
    REGISTRY_INVALID, DUPLICATE_PREFIX, FILE_NOT_FOUND (template), FILE_READ_ERROR, PARSE_ERROR.
    """
    try:
        content = read_registry(root)
    except MaadError as error:
        raise MaadErrors([error]) from error
    return judge_registry(root, content)


def read_registry(root: ProjectRoot) -> FileContent:
    """The bytes of the registry file: REGISTRY_NOT_FOUND, REGISTRY_INVALID (a link that leaves
    the project), FILE_READ_ERROR."""
    try:
        return root.read(REGISTRY_PATH)
    except MaadError as error:
        if error.code == "PATH_OUTSIDE_PROJECT":
            raise MaadError(
                "REGISTRY_INVALID",
                f"{REGISTRY_PATH}: the file is a link that leads out of the project or nowhere",
                location=SourceLocation(REGISTRY_PATH, 1, 1),
            ) from error
        if is_absent(error):
            raise MaadError(
                "REGISTRY_NOT_FOUND",
                f"{REGISTRY_PATH} does not exist; create it with a `types` mapping",
            ) from error
        raise


def is_type_name(name: str) -> bool:
    """Whether a record type may be called that."""
    return _TYPE_NAME.fullmatch(name) is not None


def is_id_prefix(text: str) -> bool:
    """Whether the ids of a type may begin with that."""
    return _ID_PREFIX.fullmatch(text) is not None


def is_absent(error: MaadError) -> bool:
    """Whether a FILE_READ_ERROR says that there is no such file."""
    return (error.details or {}).get("errno") == "ENOENT"


def judge_registry(root: ProjectRoot, content: FileContent) -> Registry:
    """The registry in `content`, its paths checked against the disk; raises MaadErrors."""
    try:
        text = decode_model_file(content.data, REGISTRY_PATH)
        document = load_yaml_document(text, REGISTRY_PATH)
    except MaadError as error:
        raise MaadErrors([error]) from error
    registry, faults = _parse(document)
    for entry in registry.types.values():
        faults.extend(_disk_faults(root, entry))
    if faults:
        raise MaadErrors(located_errors(faults, REGISTRY_PATH, text, "file"))
    return registry


def parse_registry(document: object) -> Registry:
    """The registry in a parsed YAML document, without a look at the disk; raises MaadErrors."""
    registry, faults = _parse(document)
    if faults:
        raise MaadErrors(located_errors(faults, REGISTRY_PATH, None, "file"))
    return registry


def decode_model_file(data: bytes, file: str) -> str:
    """The YAML of a registry or schema file, without its byte order mark and, where it is written
    like the frontmatter of a record, without its closing line; PARSE_ERROR."""
    text = decode_text(data, file).removeprefix("\ufeff")
    whole = text.rstrip()
    if text.startswith("---") and whole.endswith("\n---"):
        return whole[:-3]
    return text


def _parse(document: object) -> tuple[Registry, list[Fault]]:
    """Everything usable in the document, and everything wrong with it."""
    members = document if isinstance(document, dict) else {}
    declared = members.get("types")
    if not isinstance(declared, dict):
        message = "`types` must be a mapping of type names; write `types: {}` for none"
        fault = _fault(message, "types")
        return Registry({}, {}, dict(BUILTIN_SUBTYPES), frozenset()), [fault]
    faults: list[Fault] = []
    types: dict[str, TypeEntry] = {}
    owners: dict[str, str] = {}
    for name, value in declared.items():
        entry = _parse_entry(name, value, faults)
        if entry is None:
            continue
        owner = owners.setdefault(entry.id_prefix, name)
        if owner != name:
            message = (
                f'types "{owner}" and "{name}" both have the id_prefix "{entry.id_prefix}"; '
                "give one of them another"
            )
            faults.append(Fault(("types", name, "id_prefix"), message, "DUPLICATE_PREFIX"))
        types[name] = entry
    subtypes = _parse_subtypes(members, faults)
    registry = Registry(
        types=types,
        subtypes=subtypes,
        subtype_map={**BUILTIN_SUBTYPES, **subtypes},
        id_prefixes=frozenset(owners),
        advisories=(*_path_advisories(types), *_subtype_advisories(subtypes)),
    )
    return registry, faults


def _parse_entry(name: str, value: object, faults: list[Fault]) -> TypeEntry | None:
    """One type, or None with its faults appended."""
    found: list[_KeyFault] = []
    if not is_type_name(name):
        found.append(("", "a type name is lower-case letters, digits and `_`, a letter first"))
    if isinstance(value, dict):
        entry = _entry_of(name, value, found)
    else:
        found.append(("", "must be a mapping with path, id_prefix and schema"))
        entry = None
    faults.extend(_fault(f'type "{name}": {fault}', "types", name, key) for key, fault in found)
    return None if found else entry


def _entry_of(name: str, members: Mapping[str, Any], found: list[_KeyFault]) -> TypeEntry:
    """The entry that the members describe, sound when nothing is added to `found`."""
    path = _text(members, "path", found)
    id_prefix = _text(members, "id_prefix", found)
    schema_ref = _text(members, "schema", found)
    template, shard = members.get("template"), members.get("shard")
    if path:
        found.extend(("path", fault) for fault in _path_faults(path))
    if id_prefix and not is_id_prefix(id_prefix):
        fault = f'id_prefix "{id_prefix}" must be 2 to 5 lower-case letters or digits'
        found.append(("id_prefix", fault))
    if schema_ref and not is_safe_schema_ref(schema_ref):
        found.append(("schema", f'schema "{schema_ref}" must look like `task.v1`'))
    if template is not None and not (isinstance(template, str) and is_safe_relative(template)):
        found.append(("template", "template must be a relative path inside the project"))
    if shard is not None and (type(shard) is not int or shard != _SHARD_DIGITS):
        fault = f"shard can only be {_SHARD_DIGITS}; remove the key for a flat folder"
        found.append(("shard", fault))
    return TypeEntry(name, path.removesuffix("/"), id_prefix, schema_ref, template, shard)


def _text(value: Mapping[str, Any], key: str, found: list[_KeyFault]) -> str:
    """The non-empty text under `key`; empty with a fault noted otherwise."""
    text = value.get(key)
    if isinstance(text, str) and text:
        return text
    if text is None or text == "":
        found.append((key, f"{key} is missing"))
    else:
        advice = "" if isinstance(text, dict | list) else "; put it in quotes"
        found.append((key, f"{key} must be text{advice}"))
    return ""


def _path_faults(path: str) -> list[str]:
    if not is_safe_relative(path):
        rule = "a relative path inside the project, of letters, digits, `.`, `_` and `-`"
        return [f'path "{path}" must be {rule}']
    first = path.split("/", 1)[0]
    if first in ENGINE_FOLDERS:
        return [f'path "{path}": the folder {first} belongs to the engine']
    return []


def _parse_subtypes(document: Mapping[str, Any], faults: list[Fault]) -> dict[str, str]:
    extraction = document.get("extraction")
    declared = extraction.get("subtypes") if isinstance(extraction, dict) else None
    if not isinstance(declared, dict):
        return {}
    subtypes: dict[str, str] = {}
    for subtype, primitive in declared.items():
        if isinstance(primitive, str) and primitive in PRIMITIVES:
            subtypes[subtype] = primitive
            continue
        hint = did_you_mean(primitive, PRIMITIVES) if isinstance(primitive, str) else ""
        message = (
            f'extraction subtype "{subtype}": "{js_text(primitive)}" is no primitive{hint}; '
            f"use one of {', '.join(PRIMITIVES)}"
        )
        faults.append(_fault(message, "extraction", "subtypes", subtype))
    return subtypes


def _path_advisories(types: Mapping[str, TypeEntry]) -> list[Advisory]:
    found: list[Advisory] = []
    entries = list(types.values())
    for position, entry in enumerate(entries):
        if entry.path.startswith("_"):
            found.append(
                Advisory(
                    "TYPE_PATH_UNDERSCORE",
                    f'type "{entry.name}": path "{entry.path}" begins with `_`, '
                    "which marks folders of the engine",
                    type=entry.name,
                    file=REGISTRY_PATH,
                )
            )
        for earlier in entries[:position]:
            if _overlap(earlier.path, entry.path):
                found.append(
                    Advisory(
                        "TYPE_PATHS_OVERLAP",
                        f'types "{earlier.name}" ({earlier.path}) and "{entry.name}" '
                        f"({entry.path}) share files, which are scanned twice",
                        type=entry.name,
                        file=REGISTRY_PATH,
                    )
                )
    return found


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _subtype_advisories(subtypes: Mapping[str, str]) -> list[Advisory]:
    return [
        Advisory(
            "SUBTYPE_UNREACHABLE",
            f'extraction subtype "{subtype}" can never be written in an annotation: '
            "a type there is ASCII letters, digits and `_`, no digit first",
            file=REGISTRY_PATH,
        )
        for subtype in subtypes
        if not _ANNOTATION_TYPE.fullmatch(subtype)
    ]


def _disk_faults(root: ProjectRoot, entry: TypeEntry) -> list[Fault]:
    """What the disk says against the paths of one type. A missing folder is fine."""
    places = [("path", entry.path, stat.S_IFDIR, "a folder")]
    if entry.template is not None:
        places.append(("template", entry.template, stat.S_IFREG, "a file"))
    faults: list[Fault] = []
    for key, rel, kind, noun in places:
        subject, where = f'type "{entry.name}": {key} "{rel}"', ("types", entry.name, key)
        try:
            found = _kind(root, rel)
        except OSError as error:
            faults.append(_fault(f"{subject} is a link that cannot be followed: {error}", *where))
            continue
        if found is None and key == "template":
            faults.append(Fault(where, f"{subject} does not exist", "FILE_NOT_FOUND"))
        elif found not in (None, kind):
            faults.append(_fault(f"{subject} is not {noun}", *where))
    return faults


def _kind(root: ProjectRoot, rel: str) -> int | None:
    """The file format bits of what `rel` leads to; None when nothing is there or may be seen.

    OSError when it leads out of the project or in a circle.
    """
    real = os.path.realpath(os.path.join(root.path, rel))
    if not is_within(root.path, real):
        raise OSError("it leads out of the project")
    try:
        return stat.S_IFMT(root.stat(rel).st_mode)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def _fault(message: str, *path: str) -> Fault:
    return Fault(path, message, "REGISTRY_INVALID")
