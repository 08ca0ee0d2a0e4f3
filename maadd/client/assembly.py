"""Putting the pages of a complete delivery together, trusting none of them (spec 05 §9.7)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from maadd.protocol.canonical_json import DELIVERY, canonical_json, sha256_hex
from maadd.protocol.errors import MaadError
from maadd.protocol.shape_json import ENCODING, unpack
from maadd.protocol.strict_json import MAX_SAFE_INTEGER

FORMAT = "complete-json-v1"
MAX_PAGES = 1_024
MAX_PACKED = 1_048_576
"""Bytes, and UTF-16 code units, that the packed text of a delivery may have."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SAME_EVERYWHERE = (
    "snapshotId",
    "digest",
    "packedDigest",
    "totalBytes",
    "totalCharacters",
    "expiresAt",
)
_INTEGERS = ("totalBytes", "totalCharacters", "offset", "endOffset", "expiresAt")


class AssemblyError(ValueError):
    """The pages are not one complete delivery: throw all of them away and start over."""


def assemble(pages: Sequence[Mapping[str, Any]], now_ms: int) -> Any:
    """The value that the pages deliver, in order from the first to the last.

    `pages` are the `data` members of the answers, `now_ms` is the time in Unix milliseconds.
    Every count and both digests are verified before anything is returned.
    """
    if not isinstance(pages, list | tuple) or not 0 < len(pages) <= MAX_PAGES:
        _refuse(f"a delivery has 1 to {MAX_PAGES} pages")
    chunks: list[bytes] = []
    end = 0
    for number, page in enumerate(pages):
        _check_page(page, pages[0], now_ms)
        units = page["chunk"].encode("utf-16-le", "surrogatepass")
        if page["offset"] != end or page["endOffset"] != end + len(units) // 2 or not units:
            _refuse(f"page {number + 1} does not follow the one before it")
        end = page["endOffset"]
        last = number == len(pages) - 1
        cursor = None if last else f"{page['snapshotId']}:{end}"
        if page["complete"] is not last or page["nextCursor"] != cursor:
            _refuse(f"page {number + 1} says something else about what follows")
        chunks.append(units)
    return _verified(b"".join(chunks), pages[0])


def _check_page(page: Any, first: Mapping[str, Any], now_ms: int) -> None:
    """What holds for every page by itself and beside the first."""
    if not isinstance(page, Mapping):
        _refuse("a page is no object")
    if page.get("delivery") != FORMAT or page.get("encoding") != ENCODING:
        _refuse(f"a page is not {FORMAT} of {ENCODING}")
    if not isinstance(page.get("chunk"), str) or not isinstance(page.get("snapshotId"), str):
        _refuse("a page lacks its text")
    if "complete" not in page or "nextCursor" not in page:
        _refuse("a page does not say what follows")
    if not all(_is_safe_integer(page.get(name)) for name in _INTEGERS):
        _refuse("a count of a page is no integer")
    for name in ("digest", "packedDigest"):
        digest = page.get(name)
        if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            _refuse(f"the {name} of a page is none")
    for name in ("totalBytes", "totalCharacters"):
        if not 0 < page[name] <= MAX_PACKED:
            _refuse(f"{name} is out of bounds")
    if any(page[name] != first.get(name) for name in _SAME_EVERYWHERE):
        _refuse("the pages belong to different deliveries")
    if page["expiresAt"] <= now_ms:
        _refuse("the delivery has expired")


def _verified(units: bytes, page: Mapping[str, Any]) -> Any:
    """The value in the joined text, whose sizes and digests must be those announced."""
    if len(units) // 2 != page["totalCharacters"]:
        _refuse("the text has another length than announced")
    try:
        packed = units.decode("utf-16-le")
    except UnicodeDecodeError:
        _refuse("the text ends within a character")
    data = packed.encode()
    if len(data) != page["totalBytes"]:
        _refuse("the text has another size than announced")
    if sha256_hex(data) != page["packedDigest"]:
        _refuse("the text was changed on its way")
    try:
        value = unpack(packed)
        digest = sha256_hex(canonical_json(value, DELIVERY))
    except MaadError as failure:
        raise AssemblyError(failure.message) from failure
    if digest != page["digest"]:
        _refuse("the content has another digest than announced")
    return value


def _is_safe_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= MAX_SAFE_INTEGER


def _refuse(problem: str) -> NoReturn:
    raise AssemblyError(f"{problem}; discard all pages and start over")
