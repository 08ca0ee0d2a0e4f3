"""Records to bytes: new files, and edits that leave every untouched line alone (spec 01 §9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.block_edit import BlockEdit, edit_lines, field_line, rebuild
from maadd_worker.markdown.body import current_body, rewritten_body, update_body
from maadd_worker.markdown.diagnostics import parse_error
from maadd_worker.markdown.frontmatter import BOM, SplitFile, split_file
from maadd_worker.markdown.layout import block_layout
from maadd_worker.markdown.text import js_trim
from maadd_worker.markdown.values import same_value
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.markdown.yaml_write import check_keys

__all__ = ["check_keys", "order_keys", "rewrite_record", "serialize_record", "update_body"]

IDENTITY_KEYS = ("doc_id", "doc_type", "schema")


def order_keys(
    frontmatter: Mapping[str, Any], required: Sequence[str], fields: Sequence[str]
) -> list[str]:
    """The keys of `frontmatter` in the order they are written (spec 01 §9.2).

    Identity first, then the schema's required fields, its other fields, and the rest as found.
    """
    ordered = dict.fromkeys((*IDENTITY_KEYS, *required, *fields))
    return [key for key in ordered if key in frontmatter] + [
        key for key in frontmatter if key not in ordered
    ]


def serialize_record(
    frontmatter: Mapping[str, Any],
    key_order: Sequence[str],
    body: str | None,
    *,
    file: str = "new record",
) -> bytes:
    """The bytes of a new file: LF line ends, no BOM; an empty or absent body leaves none.

    `file` is the project-relative path that failures name. Keys that `key_order` lacks follow
    it. Raises INVALID_FIELDS for what cannot be stored, the parser's codes for what the profile
    refuses, FRONTMATTER_GUARD when reading the bytes back would not give the same record.
    """
    check_keys(frontmatter)
    lines = [field_line(key, frontmatter[key]) for key in _every_key(key_order, frontmatter)]
    block = "".join(f"{line}\n" for line in lines)
    data = _encode(f"---\n{block}---\n" + (f"\n{body}\n" if body else ""))
    _verify(data, file, frontmatter, body or "")
    return data


def rewrite_record(
    original: bytes,
    file: str,
    frontmatter: Mapping[str, Any],
    key_order: Sequence[str],
    *,
    body: str | None,
) -> bytes:
    """The bytes of a file once it holds `frontmatter` and `body`.

    Fields that keep their value keep their lines, comments, quotes and place; changed ones
    are edited in place, new ones follow their predecessor in `key_order`, absent ones go with
    the comment lines right above them. BOM, line ends and final newlines stay as found.
    `body` None keeps every byte of the body. `file` is the project-relative path.

    Raises what `serialize_record` raises, and PARSE_ERROR or YAML_PROFILE_VIOLATION for an
    original that does not parse: such a file is never rewritten.
    """
    if not original:
        raise parse_error("empty file; restore it or delete it", file, 1, 1)
    check_keys(frontmatter)
    split = split_file(original, file)
    stored = load_frontmatter(split, file)
    wanted_body = current_body(split) if body is None else body
    new_body = split.body if body is None else rewritten_body(split, body)
    if same_value(stored, frontmatter):
        data = _assemble(split, split.block, new_body)
        _verify(data, file, frontmatter, wanted_body)
        return data

    layout = block_layout(split, file)
    key_order = _every_key(key_order, frontmatter)
    edit = BlockEdit(split.block, layout, split.newline, stored, frontmatter, key_order)
    if layout.line_based:
        data = _assemble(split, edit_lines(edit), new_body)
        if _reads_back(data, file, frontmatter, wanted_body):
            return data
    # Directives, explicit keys, flow mappings and other rare forms: every field anew.
    data = _assemble(split, rebuild(edit), new_body)
    _verify(data, file, frontmatter, wanted_body)
    return data


def _every_key(key_order: Sequence[str], frontmatter: Mapping[str, Any]) -> list[str]:
    ordered = dict.fromkeys(key for key in key_order if key in frontmatter)
    return list(ordered) + [key for key in frontmatter if key not in ordered]


def _assemble(split: SplitFile, block: str, body: str) -> bytes:
    opening = split.opening or f"---{split.newline}"
    closing = split.closing or f"---{split.newline}"
    if body and not closing.endswith("\n"):
        closing += split.newline
    if not split.has_frontmatter and not block:
        opening = closing = ""
    return _encode(f"{BOM if split.bom else ''}{opening}{block}{closing}{body}")


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MaadError(
            "INVALID_FIELDS",
            "a text holds half of a character (a lone surrogate); send complete Unicode",
        ) from None


def _verify(data: bytes, file: str, frontmatter: Mapping[str, Any], body: str) -> None:
    """Raise unless `data` reads back as the record; parser errors pass through."""
    split = split_file(data, file)
    read = load_frontmatter(split, file)
    differing = [
        key
        for key in dict.fromkeys((*frontmatter, *read))
        if key not in read or key not in frontmatter or not same_value(frontmatter[key], read[key])
    ]
    if differing:
        raise MaadError(
            "FRONTMATTER_GUARD",
            f"field {differing[0]!r} would not read back as written; nothing was written",
            {"field": differing[0]},
        )
    if current_body(split) != js_trim(body.replace("\r\n", "\n")):
        raise MaadError(
            "FRONTMATTER_GUARD", "the body would not read back as written; nothing was written"
        )


def _reads_back(data: bytes, file: str, frontmatter: Mapping[str, Any], body: str) -> bool:
    try:
        _verify(data, file, frontmatter, body)
    except MaadError:
        return False
    return True
