"""Edits the bytes of a Git index file, leaving every entry that is not named untouched.

Formats 2 and 3 with SHA-1 names (gitformat-index). The cached trees are kept and only
invalidated where a path changed. What cannot be kept true (a split, sparse or
prefix-compressed index, an untracked cache, a file system monitor) raises
UnsupportedIndex; the `git` program edits those.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

HEADER = struct.Struct(">4sII")
_FIXED = struct.Struct(">10I20sH")
_EXTENSION = struct.Struct(">4sI")
DIGEST_BYTES = 20
_FLAGS_AT = 60
_NAME_AT = 62
_NAME_MASK = 0xFFF
_EXTENDED_BIT = 0x40
_MODE_AT = 24
_SUBMODULE_MODE = (0o160000).to_bytes(4)
_WORD = 0xFFFF_FFFF
_SEARCHED_ONE_BY_ONE = 16

_KEPT = (b"REUC",)
_NEEDS_GIT = (b"UNTR", b"FSMN", b"link", b"sdir")


class IndexEntry(msgspec.Struct, frozen=True):
    """A file in the index: mode as a number, binary object id, and the stat data of the file
    whose content the object is. All zero means "not known": Git then compares contents."""

    mode: int
    oid: bytes
    ctime_ns: int = 0
    mtime_ns: int = 0
    device: int = 0
    inode: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0


class UnsupportedIndex(Exception):
    """A sound index in a form that only the `git` program can edit faithfully."""


class DamagedIndex(Exception):
    """Bytes that are no index."""


def edit_index(data: bytes, updates: Mapping[bytes, IndexEntry | None]) -> bytes:
    """The index with the given paths set, or removed where the value is None.

    Conflict stages of a named path give way to it, and so does a file where a directory is
    needed, or files under a path that now is a file itself.
    """
    version, count = check_head(data)
    added = sorted((path, entry) for path, entry in updates.items() if entry is not None)
    dropped = {*updates, *(parent for path, _ in added for parent in parents(path))}
    inside = _turned_into_files(data, count, [path for path, _ in added])
    pieces: list[bytes] = []
    kept_from = HEADER.size
    upcoming = iter(added)
    following = next(upcoming, None)
    remaining = count
    end = kept_from
    for start, name, end in entries(data, count):
        if following is not None and following[0] <= name:
            pieces.append(data[kept_from:start])
            kept_from = start
            while following is not None and following[0] <= name:
                pieces.append(encode_entry(*following))
                following = next(upcoming, None)
        if name in dropped or (inside and name.startswith(inside)):
            pieces.append(data[kept_from:start])
            kept_from = end
            remaining -= 1
    pieces.append(data[kept_from:end])
    while following is not None:
        pieces.append(encode_entry(*following))
        following = next(upcoming, None)
    pieces.extend(extensions(data, end, updates))
    head = HEADER.pack(b"DIRC", version, remaining + len(added))
    result = b"".join([head, *pieces])
    return result + hashlib.sha1(result).digest()


def find_objects(data: bytes, paths: Set[bytes]) -> tuple[dict[bytes, bytes], bool]:
    """The object ids that the index has for some paths, of a conflict the last stage; and whether
    entries were changed since the trees that are kept with them were made.

    A commit makes these trees anew; commands that change entries (`git add`, `git rm`, `git
    reset -- <path>`) only mark them.
    """
    _, count = check_head(data)
    oid_at = _FLAGS_AT - DIGEST_BYTES
    found = {}
    end = HEADER.size
    for start, name, end in entries(data, count):  # noqa: B007 -- the last end
        if name in paths:
            found[name] = data[start + oid_at : start + _FLAGS_AT]
    return found, any(
        signature == b"TREE" and content.startswith(b"\0-1 ")
        for signature, content in _each_extension(data, end)
    )


def find_submodules(data: bytes) -> list[bytes]:
    """The paths that the index has as submodules. DamagedIndex, UnsupportedIndex."""
    _, count = check_head(data, checksum=False)
    if _SUBMODULE_MODE not in data:
        return []
    return [
        name
        for start, name, _ in entries(data, count)
        if data.startswith(_SUBMODULE_MODE, start + _MODE_AT)
    ]


def _turned_into_files(data: bytes, count: int, paths: Sequence[bytes]) -> tuple[bytes, ...]:
    """Those of the paths, with a slash behind, that are directories in the index."""
    if len(paths) <= _SEARCHED_ONE_BY_ONE:
        return tuple(path + b"/" for path in paths if path + b"/" in data)
    directories: set[bytes] = set()
    last = b""
    for _, name, _ in entries(data, count):
        directory = name[: name.rfind(b"/") + 1]
        if directory != last:
            directories.update(parent + b"/" for parent in parents(name))
            last = directory
    return tuple(path + b"/" for path in paths if path + b"/" in directories)


def new_index() -> bytes:
    """An index without entries."""
    head = HEADER.pack(b"DIRC", 2, 0)
    return head + hashlib.sha1(head).digest()


def check_head(data: bytes, *, checksum: bool = True) -> tuple[int, int]:
    """Version and number of entries. DamagedIndex, UnsupportedIndex."""
    if len(data) < HEADER.size + DIGEST_BYTES:
        raise DamagedIndex("the file is too short")
    signature, version, count = HEADER.unpack_from(data)
    if signature != b"DIRC":
        raise DamagedIndex("the signature is wrong")
    if version not in (2, 3):
        raise UnsupportedIndex(f"index format {version}")
    digest = data[-DIGEST_BYTES:]
    if (
        checksum
        and any(digest)
        and hashlib.sha1(memoryview(data)[:-DIGEST_BYTES]).digest() != digest
    ):
        raise DamagedIndex("the checksum does not match")
    return version, count


def entries(data: bytes, count: int, start: int = HEADER.size) -> Iterator[tuple[int, bytes, int]]:
    """Start, name and end of `count` entries from `start` on, in the order of the file."""
    limit = len(data) - DIGEST_BYTES
    for _ in range(count):
        if start + _NAME_AT > limit:
            raise DamagedIndex("entries are missing")
        flags = data[start + _FLAGS_AT]
        name_at = start + (_NAME_AT + 2 if flags & _EXTENDED_BIT else _NAME_AT)
        length = (flags << 8 | data[start + _FLAGS_AT + 1]) & _NAME_MASK
        name_end = name_at + length if length < _NAME_MASK else data.find(b"\0", name_at)
        end = start + ((name_end - start + 8) & ~7)
        if name_end < 0 or end > limit:
            raise DamagedIndex("entries are missing")
        yield start, data[name_at:name_end], end
        start = end


def parents(path: bytes) -> Iterator[bytes]:
    """The directories above a path."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def encode_entry(path: bytes, entry: IndexEntry) -> bytes:
    """The bytes of one entry, padded."""
    fixed = _FIXED.pack(
        entry.ctime_ns // 1_000_000_000 & _WORD,
        entry.ctime_ns % 1_000_000_000,
        entry.mtime_ns // 1_000_000_000 & _WORD,
        entry.mtime_ns % 1_000_000_000,
        entry.device & _WORD,
        entry.inode & _WORD,
        entry.mode,
        entry.uid & _WORD,
        entry.gid & _WORD,
        entry.size & _WORD,
        entry.oid,
        min(len(path), _NAME_MASK),
    )
    return fixed + path + b"\0" * (8 - (_NAME_AT + len(path)) % 8)


def extensions(data: bytes, start: int, paths: Mapping[bytes, object]) -> Iterator[bytes]:
    """What follows the entries, as far as it stays true; optional rest may be left out."""
    for signature, content in _each_extension(data, start):
        if signature in _NEEDS_GIT or signature[:1].islower():
            raise UnsupportedIndex(f"index extension {signature.decode('latin-1')}")
        if signature == b"TREE":
            content = _invalidate_trees(content, paths)
        elif signature not in _KEPT:
            continue
        yield _EXTENSION.pack(signature, len(content))
        yield content


def _each_extension(data: bytes, start: int) -> Iterator[tuple[bytes, bytes]]:
    """Signature and content of every extension from `start` on."""
    limit = len(data) - DIGEST_BYTES
    while start < limit:
        if start + _EXTENSION.size > limit:
            raise DamagedIndex("an extension is cut off")
        signature, size = _EXTENSION.unpack_from(data, start)
        content = data[start + _EXTENSION.size : start + _EXTENSION.size + size]
        start += _EXTENSION.size + size
        if start > limit:
            raise DamagedIndex("an extension is cut off")
        yield signature, content


class _CachedTree:
    """One directory of the TREE extension; `oid` is empty once it is invalid."""

    __slots__ = ("children", "count", "name", "oid")

    def __init__(self, name: bytes, count: bytes, oid: bytes) -> None:
        self.name = name
        self.count = count
        self.oid = oid
        self.children: dict[bytes, _CachedTree] = {}

    def encode(self) -> bytes:
        head = b"%s\0%s %d\n%s" % (self.name, self.count, len(self.children), self.oid)
        return head + b"".join(child.encode() for child in self.children.values())


def _read_tree(content: bytes, start: int) -> tuple[_CachedTree, int]:
    """The directory that starts at `start`, and where the next one does."""
    name_end = content.index(b"\0", start)
    line_end = content.index(b"\n", name_end)
    count, subtrees = content[name_end + 1 : line_end].split(b" ")
    at = line_end + 1 + (0 if count.startswith(b"-") else DIGEST_BYTES)
    tree = _CachedTree(content[start:name_end], count, content[line_end + 1 : at])
    for _ in range(int(subtrees)):
        child, at = _read_tree(content, at)
        tree.children[child.name] = child
    return tree, at


def _invalidate_trees(content: bytes, paths: Mapping[bytes, object]) -> bytes:
    try:
        root, end = _read_tree(content, 0)
    except (ValueError, RecursionError) as failure:
        raise DamagedIndex("the cached trees are malformed") from failure
    if end != len(content):
        raise DamagedIndex("the cached trees are malformed")
    for path in paths:
        node = root
        node.count, node.oid = b"-1", b""
        *directories, name = path.split(b"/")
        for directory in directories:
            child = node.children.get(directory)
            if child is None:
                break
            node = child
            node.count, node.oid = b"-1", b""
        else:
            node.children.pop(name, None)
    return root.encode()
