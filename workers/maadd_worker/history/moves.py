"""Keeps every record in one file of a commit while people move files about (design §8).

A request names the paths that hand moves have to do with, and which record the index has at
each. What of them belongs in the commit depends on its parent: where that has a record which the
commit places elsewhere, the path is taken away or gets the record that stands there now; and a
record whose place another one takes is committed where it stands now.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.history.store import Change
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.yaml_profile import load_frontmatter

ReadContent = Callable[[str], bytes | None]
"""The content of a project-relative path, None when there is none."""

_PLAIN_ID = re.compile(rb"^doc_id: ([A-Za-z0-9_.-]+)\r?$", re.MULTILINE)


def settle_moves(change: Change, at_parent: ReadContent, on_disk: ReadContent) -> Change:
    """The change with exactly the paths that belong in its commit. A path without content in
    the change is read from the disk; a file that is not the indexed record is left out."""
    if not change.moves:
        return change
    settling = _Settling(change, at_parent, on_disk)
    while settling.step():
        pass
    return settling.settled()


class _Settling:
    def __init__(self, change: Change, at_parent: ReadContent, on_disk: ReadContent) -> None:
        self._change = change
        self._at_parent = at_parent
        self._on_disk = on_disk
        self._before: dict[str, tuple[bool, str | None]] = {}
        self._now: dict[str, tuple[bool, str | None]] = {}
        self._placed: set[str] = set()
        self._displaced: set[str] = set()
        self._contents = dict(change.contents)
        self._paths: dict[str, None] = {}
        for path in change.paths:
            owner = change.moves.get(path)
            if path in change.contents:
                self._take(path, _id_in(change.contents[path]))
            elif owner is None or (owner in change.records and self._stands(owner, path)):
                self._take(path, owner)

    def step(self) -> bool:
        """Take what follows from the paths taken so far; False when nothing does."""
        count = len(self._paths)
        for path, owner in self._change.moves.items():
            if path in self._paths:
                continue
            tracked, record = self._parent_has(path)
            if not tracked and owner not in self._displaced:
                continue
            if record is not None and self._is_elsewhere(record, path):
                if owner and owner not in self._placed and self._stands(owner, path):
                    self._take(path, owner)
                else:
                    self._take_away(path)
            elif owner in self._displaced - self._placed and self._stands(owner, path):
                self._take(path, owner)
            elif tracked and record is None and not self._disk_has(path)[0]:
                self._take_away(path)
        return len(self._paths) > count

    def settled(self) -> Change:
        return msgspec.structs.replace(
            self._change, paths=tuple(self._paths), contents=self._contents, moves={}
        )

    def _is_elsewhere(self, record: str, path: str) -> bool:
        """Whether a record that the parent has at a path is not there any more."""
        if record in self._placed:
            return True
        return record in self._change.ended and self._disk_has(path)[1] != record

    def _take(self, path: str, record: str | None) -> None:
        self._paths[path] = None
        before = self._parent_has(path)[1]
        if before is not None and before not in self._change.ended:
            self._displaced.add(before)
        if record is not None:
            self._placed.add(record)

    def _take_away(self, path: str) -> None:
        self._take(path, None)
        self._contents[path] = None

    def _stands(self, record: str, path: str) -> bool:
        return self._disk_has(path)[1] == record

    def _parent_has(self, path: str) -> tuple[bool, str | None]:
        if path not in self._before:
            data = self._at_parent(path)
            self._before[path] = data is not None, _id_in(data, quick=True)
        return self._before[path]

    def _disk_has(self, path: str) -> tuple[bool, str | None]:
        if path not in self._now:
            data = self._on_disk(path)
            self._now[path] = data is not None, _id_in(data)
        return self._now[path]


def _id_in(data: bytes | None, *, quick: bool = False) -> str | None:
    """The id of the record in some bytes, None where they are none that can be read. `quick`
    does not look whether the rest can be read too."""
    if data is None:
        return None
    if quick and (found := _PLAIN_ID.search(data.partition(b"\n---")[0])) is not None:
        return found[1].decode()
    try:
        doc_id = load_frontmatter(split_file(data, ""), "").get("doc_id")
    except MaadError:
        return None
    return doc_id if isinstance(doc_id, str) else None
