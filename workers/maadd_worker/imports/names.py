"""Names that an import makes up: of types, folders, prefixes and records (spec 01 §2, §10)."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Sequence

from maadd.protocol.doc_ids import doc_id_fault

MAX_ID_CHARACTERS = 100

_IRREGULAR = {"people": "person", "children": "child", "data": "data", "news": "news"}
_NO_WORD = re.compile(r"[^A-Za-z0-9]+")
_NO_ID = re.compile(r"[^A-Za-z0-9._]+")
_DOTS = re.compile(r"\.{2,}")
_PREFIXED_STEM = re.compile(r"([a-z0-9]{2,5})-.+")
_MOST_STEMS = 0.9


def plain(text: str) -> str:
    """The text in ASCII, letters without their marks; what has no ASCII form is left out."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def type_name(text: str) -> str:
    """A name that a type may have, in the singular: `_Posts` gives `post`."""
    words = _NO_WORD.sub("_", plain(text)).strip("_").lower()
    name = _singular(words)
    if not name or not name[0].isalpha():
        name = f"note_{name}".rstrip("_")
    return name


def folder_name(text: str, doc_type: str) -> str:
    """A folder that a type may have: what it was called, or the type in the plural."""
    return _NO_WORD.sub("-", plain(text)).strip("-").lower() or f"{doc_type}s"


def free_name(name: str, taken: Collection[str], mark: str = "_") -> str:
    """The name, with a number behind it when it is taken."""
    number, free = 2, name
    while free in taken:
        free = f"{name}{mark}{number}"
        number += 1
    return free


def _singular(words: str) -> str:
    first, underscore, last = words.rpartition("_")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith("ies") and len(last) > 4:
        last = f"{last[:-3]}y"
    elif last.endswith(("sses", "shes", "ches", "xes")):
        last = last[:-2]
    elif last.endswith("s") and not last.endswith(("ss", "us", "is")) and len(last) > 2:
        last = last[:-1]
    return f"{first}{underscore}{last}"


def choose_prefix(doc_type: str, stems: Sequence[str], taken: Collection[str]) -> str:
    """An id prefix that is not taken: the one that most file names have already, else letters
    of the type's name."""
    found = [match[1] for stem in stems if (match := _PREFIXED_STEM.fullmatch(stem))]
    common = max(sorted(set(found)), key=found.count, default="")
    if common and found.count(common) >= _MOST_STEMS * len(stems) and len(stems) > 1:
        letters = common
    else:
        letters = doc_type.replace("_", "")
        if len(letters) > 5:
            letters = letters[0] + re.sub("[aeiou]", "", letters[1:])
            letters = letters[:3]
        letters = letters.ljust(2, "x")
    number, prefix = 2, letters
    while prefix in taken:
        prefix = f"{letters[: 5 - len(str(number))]}{number}"
        number += 1
    return prefix


def record_id(prefix: str, text: str, *, keep_case: bool = False) -> str | None:
    """`<prefix>-<text>`, in the characters that an id may have; None when none of them are left.

    A text that begins with the prefix gets no second one.
    """
    kept = _DOTS.sub(".", _NO_ID.sub("-", plain(text)))
    if not keep_case:
        kept = kept.lower()
    kept = re.sub("-{2,}", "-", kept)[:MAX_ID_CHARACTERS].strip("-._")
    if not kept:
        return None
    doc_id = kept if kept.startswith(f"{prefix}-") and len(kept) > len(prefix) + 1 else None
    doc_id = doc_id or f"{prefix}-{kept}"
    return doc_id if doc_id_fault(doc_id, stem=True) is None else None


def digest_id(prefix: str, key: str) -> str:
    """The id of a record whose name has no ASCII letters: from the digest of where it lies."""
    return f"{prefix}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def same_name(text: str) -> str:
    """The form in which names are compared: case and composition do not count."""
    return unicodedata.normalize("NFC", text).strip().casefold()
