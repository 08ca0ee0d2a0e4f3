"""Folders of Markdown files as a source."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from maadd.protocol.errors import MaadError
from maadd_worker.imports.links import find_links
from maadd_worker.imports.source import Item, Misfit, Progress, Source, misfit_of
from maadd_worker.imports.toml_frontmatter import read_toml
from maadd_worker.markdown.blocks import Block, scan_blocks
from maadd_worker.markdown.frontmatter import SplitFile, decode_text, split_file
from maadd_worker.markdown.text import js_trim
from maadd_worker.markdown.verbatim import VerbatimZones
from maadd_worker.markdown.yaml_profile import read_frontmatter

SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")

_NEVER = frozenset({"node_modules"})
_SECTION_CHARACTERS = 80
_READ_AGAIN = "it is left as it was; run the import again"


class _Found(msgspec.Struct):
    """What a walk has come across."""

    files: list[str]
    misfits: list[Misfit]
    others: Counter[str]
    passed_over: list[str]


def read_folder(
    path: str, *, max_bytes: int, without: Sequence[str] = (), progress: Progress
) -> Source:
    """Every Markdown file below `path`, in path order.

    Links are not followed. Names with a leading dot and `node_modules` are passed over, like
    the absolute folders `without`. What cannot be looked at is a misfit, and so is a file over
    `max_bytes` (0: no limit). Raises FILE_READ_ERROR when the folder itself cannot be read.
    """
    root = os.path.realpath(path)
    found = _Found([], [], Counter(), [])
    _walk(root, frozenset(without), found)
    items: list[Item] = []
    for done, key in enumerate(found.files):
        progress(done, len(found.files))
        try:
            items.append(_item(key, _read(root, key, max_bytes)))
        except MaadError as error:
            found.misfits.append(misfit_of(key, error))
    progress(len(found.files), len(found.files))

    def read_text(item: Item) -> str:
        data = _read(root, item.key, max_bytes)
        if hashlib.sha256(data).hexdigest() != item.digest:
            raise MaadError(
                "VERSION_CONFLICT", f"the file changed while it was imported; {_READ_AGAIN}"
            )
        return decode_text(data, item.key)

    return Source(
        "markdown",
        root,
        os.path.basename(root),
        tuple(items),
        tuple(found.misfits),
        read_text,
        dict(sorted(found.others.items())),
        tuple(found.passed_over),
    )


def _walk(root: str, without: frozenset[str], found: _Found) -> None:
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError as failure:
            why = os.strerror(failure.errno or 0)
            if not folder:
                raise MaadError(
                    "FILE_READ_ERROR", f"{root} cannot be read: {why}; check its permissions"
                ) from None
            found.misfits.append(
                Misfit(f"{folder}/", f"the folder cannot be read: {why}", "check its permissions")
            )
            continue
        inner = []
        for entry in names:
            key = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if _look(entry, key, without, found):
                    inner.append(key)
            except OSError as failure:
                # What a link leads to may be hidden, and a process may end between two looks.
                why = os.strerror(failure.errno or 0)
                found.misfits.append(
                    Misfit(key, f"it cannot be looked at: {why}", "check its permissions")
                )
        pending.extend(reversed(inner))
    found.files.sort()


def _look(entry: os.DirEntry[str], key: str, without: frozenset[str], found: _Found) -> bool:
    """Note what an entry is; whether it is a folder to look into."""
    markdown = entry.name.lower().endswith(SUFFIXES)
    if any("\ud800" <= character <= "\udfff" for character in entry.name):
        shown = os.fsencode(key).decode("utf-8", "backslashreplace")
        found.misfits.append(Misfit(shown, "its name is not UTF-8", "rename it"))
    elif entry.is_symlink():
        if markdown or entry.is_dir():
            found.misfits.append(
                Misfit(key, "it is a link, and links are not followed", "import what it leads to")
            )
    elif entry.is_dir(follow_symlinks=False):
        if entry.name.startswith(".") or entry.name in _NEVER or entry.path in without:
            found.passed_over.append(key)
            return False
        return True
    elif markdown and entry.name.startswith("."):
        found.passed_over.append(key)
    elif markdown:
        found.files.append(key)
    else:
        found.others[os.path.splitext(entry.name)[1].lower() or "no suffix"] += 1
    return False


def _read(root: str, key: str, max_bytes: int) -> bytes:
    """The bytes of a regular file."""
    try:
        descriptor = os.open(
            os.path.join(root, key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise MaadError("FILE_READ_ERROR", "it is no regular file; leave it out")
            if max_bytes and status.st_size > max_bytes:
                raise MaadError(
                    "DOC_TOO_LARGE",
                    f"it has {status.st_size} bytes, more than {max_bytes}; raise "
                    "MAAD_MAX_DOC_BYTES or split the file",
                )
            return file.read()
    except OSError as failure:
        why = os.strerror(failure.errno or 0)
        raise MaadError(
            "FILE_READ_ERROR", f"it cannot be read: {why}; check its permissions"
        ) from None


def _item(key: str, data: bytes) -> Item:
    """What a file says. Raises PARSE_ERROR and YAML_PROFILE_VIOLATION with the place."""
    digest = hashlib.sha256(data).hexdigest()
    if not data:
        return Item(key, digest, {}, {}, {})
    toml = read_toml(decode_text(data, key), key)
    if toml is None:
        split = split_file(data, key)
        read = read_frontmatter(split, key)
        values, key_lines, raw = read.values, read.key_lines, _raw(split, read.values)
        body, start = split.body, split.body_start_line
    else:
        values, key_lines, raw = toml.values, toml.key_lines, toml.raw
        body, start = toml.body, toml.body_start_line
    zones = VerbatimZones(body)
    blocks = scan_blocks(body, start, zones)
    heading = next((block.heading for block in blocks if block.level and block.heading), None)
    return Item(
        key,
        digest,
        values,
        key_lines,
        raw,
        heading=heading,
        sections=dict(_sections(body, start, blocks)),
        links=tuple(find_links(body, start, zones)),
        size=len(data),
    )


def _raw(split: SplitFile, values: dict[str, Any]) -> dict[str, Any]:
    """Numbers and truth values as they were written: `1.10` is no `1.1` for its author."""
    keys = [key for key, value in values.items() if _is_written_otherwise(value)]
    if not keys:
        return {}
    try:
        texts = yaml.load(split.block, Loader=yaml.CBaseLoader)
    except yaml.YAMLError:
        # A form that only the profile's own scanner reads: then there is nothing to compare.
        return {}
    return {key: texts[key] for key in keys if key in texts}


def _is_written_otherwise(value: object) -> bool:
    if isinstance(value, list):
        return any(_is_written_otherwise(one) for one in value)
    return isinstance(value, bool | int | float)


def _sections(body: str, start: int, blocks: Sequence[Block]) -> Iterator[tuple[str, str]]:
    lines = body.split("\n")
    for block in reversed(blocks):
        if not block.heading:
            continue
        content = (
            js_trim(line)
            for line in lines[block.start_line - start + 1 : block.end_line - start + 1]
        )
        text = next((line for line in content if line), "")
        if text and len(text) <= _SECTION_CHARACTERS:
            yield block.heading, text
