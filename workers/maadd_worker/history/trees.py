"""Git tree objects kept in memory and edited in place, so that a commit rewrites only the
trees on the way to its files (design §7)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

import msgspec

DIRECTORY = b"40000"
REGULAR = b"100644"
EXECUTABLE = b"100755"
SYMLINK = b"120000"
SUBMODULE = b"160000"

_OID_BYTES = 20
_ENTRY = re.compile(rb"[0-7]{5,6} [^\0/]+\0.{20}", re.DOTALL)
_MOST_ENTRIES = 100_000


class TreeEntry(msgspec.Struct, frozen=True):
    """What a tree holds under a name: octal mode as Git writes it, binary object id."""

    mode: bytes
    oid: bytes


class CannotDescend(Exception):
    """A path leads through a submodule, which is named; its files belong to another repository."""


def _sort_key(entry: bytes) -> bytes:
    """Git's order: by name, a directory as if its name ended with a slash."""
    name = entry[entry.index(b" ") + 1 : -_OID_BYTES - 1]
    return name + b"/" if entry.startswith(DIRECTORY) else name


class _Node:
    """One directory: its entries as Git stores them, and those of its children already read."""

    __slots__ = ("changed", "children", "entries")

    def __init__(self, raw: bytes) -> None:
        self.entries: list[bytes] = _ENTRY.findall(raw)
        if sum(map(len, self.entries)) != len(raw):
            raise ValueError("malformed tree object")
        self.children: dict[bytes, _Node] = {}
        self.changed = False

    def position(self, name: bytes) -> tuple[int, bool]:
        """Where an entry of that name is, or belongs, and whether it is there.

        A name may stand at either of two places, as a file or as a directory.
        """
        for key in (name + b"/", name):
            index = bisect_left(self.entries, key, key=_sort_key)
            if index < len(self.entries):
                entry = self.entries[index]
                start = entry.index(b" ") + 1
                if entry[start : -_OID_BYTES - 1] == name:
                    return index, True
        return index, False

    def get(self, name: bytes) -> TreeEntry | None:
        index, found = self.position(name)
        if not found:
            return None
        entry = self.entries[index]
        return TreeEntry(entry[: entry.index(b" ")], entry[-_OID_BYTES:])

    def put(self, name: bytes, entry: TreeEntry) -> None:
        self.remove(name)
        raw = b"%s %s\0%s" % (entry.mode, name, entry.oid)
        index = bisect_left(self.entries, _sort_key(raw), key=_sort_key)
        self.entries.insert(index, raw)

    def remove(self, name: bytes) -> None:
        index, found = self.position(name)
        if found:
            del self.entries[index]


class TreeCache:
    """The tree of a commit, read as far as it is needed and changed in memory.

    `read` gives the bytes of a tree object, `write` stores one; ids are binary.
    """

    __slots__ = ("_loaded", "_read", "_root", "_write")

    def __init__(self, read: Callable[[bytes], bytes], write: Callable[[bytes], bytes]) -> None:
        self._read = read
        self._write = write
        self._root = _Node(b"")
        self._loaded = 0

    def load(self, root: bytes | None) -> None:
        """Start from a stored tree, or from an empty one."""
        self._loaded = 0
        self._root = self._node(root) if root is not None else _Node(b"")

    def _node(self, oid: bytes) -> _Node:
        node = _Node(self._read(oid))
        self._loaded += len(node.entries)
        return node

    def _child(self, node: _Node, name: bytes) -> _Node | None:
        child = node.children.get(name)
        if child is not None:
            return child
        entry = node.get(name)
        if entry is None:
            return None
        if entry.mode == SUBMODULE:
            raise CannotDescend
        if entry.mode != DIRECTORY:
            return None
        child = node.children[name] = self._node(entry.oid)
        return child

    def get(self, path: bytes) -> TreeEntry | None:
        """The entry at `path`, None when there is none. Raises CannotDescend."""
        *directories, name = path.split(b"/")
        node = self._root
        for depth, directory in enumerate(directories, 1):
            try:
                child = self._child(node, directory)
            except CannotDescend:
                submodule = b"/".join(directories[:depth])
                raise CannotDescend(submodule.decode("utf-8", "replace")) from None
            if child is None:
                return None
            node = child
        return node.get(name)

    def put(self, path: bytes, entry: TreeEntry) -> bool:
        """Set the entry at `path`, with the directories above; False when it was so already."""
        if self.get(path) == entry:
            return False
        *directories, name = path.split(b"/")
        node = self._root
        node.changed = True
        for directory in directories:
            child = self._child(node, directory)
            if child is None:
                node.remove(directory)
                child = node.children[directory] = _Node(b"")
            node = child
            node.changed = True
        node.children.pop(name, None)
        node.put(name, entry)
        return True

    def remove(self, path: bytes) -> bool:
        """Take the entry at `path` out; False when there is none."""
        if self.get(path) is None:
            return False
        *directories, name = path.split(b"/")
        node = self._root
        node.changed = True
        for directory in directories:
            child = self._child(node, directory)
            assert child is not None
            node = child
            node.changed = True
        node.children.pop(name, None)
        node.remove(name)
        return True

    def write(self) -> bytes:
        """Store every changed tree and give the id of the root; an empty directory vanishes."""
        root = self._stored(self._root)
        if self._loaded > _MOST_ENTRIES:
            self._root.children.clear()
            self._loaded = len(self._root.entries)
        return root

    def _stored(self, node: _Node) -> bytes:
        for name, child in list(node.children.items()):
            if not child.changed:
                continue
            oid = self._stored(child)
            if child.entries:
                node.put(name, TreeEntry(DIRECTORY, oid))
            else:
                del node.children[name]
                node.remove(name)
        node.changed = False
        return self._write(b"".join(node.entries)) if node.entries or node is self._root else b""
