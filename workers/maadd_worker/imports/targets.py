"""What a text means that names another item: by id, path, name, title or alias."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

import msgspec

from maadd.protocol.doc_ids import doc_id_fault
from maadd_worker.imports.links import link_path
from maadd_worker.imports.names import same_name
from maadd_worker.imports.source import Item, Link

_WIKI = re.compile(r"!?\[\[([^\[\]|#]+)(?:#[^\[\]|]*)?(?:\|[^\[\]]*)?\]\]")
_INLINE = re.compile(r"\[[^\[\]]*\]\(<?([^()<>\s#]+)(?:#[^()\s]*)?>?\)")
_SUFFIX = re.compile(r"\.(?:md|markdown|mdown|mkd|html?)$", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+")


class Target(msgspec.Struct, frozen=True):
    """An item that can be referred to."""

    key: str
    doc_type: str
    doc_id: str


class Named(msgspec.Struct, frozen=True):
    """A part of a value that may name an item: the name itself, and whether it was a link."""

    text: str
    is_link: bool

    @property
    def is_number(self) -> bool:
        return _NUMBER.fullmatch(self.text) is not None


def named_in(text: str) -> Named:
    """The name in `[[name|label]]`, `[label](path)` or a plain text."""
    text = text.strip()
    found = _WIKI.fullmatch(text) or _INLINE.fullmatch(text)
    return Named(found[1].strip(), True) if found else Named(text, False)


class Targets:
    """The items of a source by everything that names them.

    `prefixes` are the types of the project by id prefix: an id with one of these names a record
    that is there already, or will be.
    """

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self._prefixes = prefixes
        self._types: set[str] = set()
        self._by_id: dict[str, Target] = {}
        self._by_path: dict[str, Target] = {}
        self._by_number: dict[tuple[str, str], list[Target]] = {}
        self._by_name: dict[str, list[Target]] = {}

    def add(self, item: Item, target: Target, number: str | None) -> None:
        """Know an item; `number` is the text of the field that its id was made from.

        The part of an id behind its prefix, and the number that a file name begins with, name
        an item within its type too.
        """
        self._types.add(target.doc_type)
        self._by_id[target.doc_id] = target
        self._by_path[same_name(_SUFFIX.sub("", item.key))] = target
        numbers = {target.doc_id.partition("-")[2], number or ""}
        if leading := _NUMBER.match(item.stem):
            numbers.update((leading[0], leading[0].lstrip("0")))
        for one in {same_name(one) for one in numbers if one}:
            self._by_number.setdefault((target.doc_type, one), []).append(target)
        names = {item.stem, *_texts(item.fields.get("aliases")), *_texts(item.fields.get("alias"))}
        names.update(_texts([item.fields.get("title"), item.fields.get("name"), item.heading]))
        for name in {same_name(name) for name in names if name}:
            self._by_name.setdefault(name, []).append(target)

    def find(self, named: Named, item: Item, doc_type: str | None = None) -> Target | None:
        """The item of the given type (any, without one) that is meant in `item`; None also when
        several have the name and none of them is nearer than the others."""
        text = named.text
        found = self._by_id.get(text)
        if found is None and not named.is_link:
            found = self._numbered(text, doc_type)
        if found is None:
            found = self._at(posixpath.normpath(posixpath.join(item.folder, text)), text)
        if found is None:
            found = self._named(same_name(text), item, doc_type)
        if found is None:
            found = self._in_project(text)
        return found if found is None or doc_type in (None, found.doc_type) else None

    def find_link(self, link: Link, item: Item) -> Target | None:
        """The item that a link in the body of `item` leads to."""
        path = link_path(link, item.folder)
        found = self._at(path, path) if path else None
        if found is None and link.wiki:
            found = self._named(same_name(_SUFFIX.sub("", link.target)), item, None)
        return found

    def _at(self, *paths: str) -> Target | None:
        known = (self._by_path.get(same_name(_SUFFIX.sub("", path))) for path in paths)
        return next((one for one in known if one is not None), None)

    def numbers_its_ids(self, doc_type: str) -> bool:
        """Whether an id of the type is its prefix with a number behind."""
        return any(
            one.doc_type == doc_type and _NUMBER.fullmatch(one.doc_id.partition("-")[2])
            for one in self._by_id.values()
        )

    def _numbered(self, text: str, doc_type: str | None) -> Target | None:
        types = self._types if doc_type is None else (doc_type,)
        wanted = same_name(text)
        found = [one for name in types for one in self._by_number.get((name, wanted), ())]
        return found[0] if len(found) == 1 else None

    def _named(self, name: str, item: Item, doc_type: str | None) -> Target | None:
        found = self._by_name.get(name, [])
        if doc_type is not None:
            found = [one for one in found if one.doc_type == doc_type]
        if len(found) > 1:
            found = [one for one in found if one.key.rpartition("/")[0] == item.folder]
        return found[0] if len(found) == 1 else None

    def _in_project(self, text: str) -> Target | None:
        doc_type = self._prefixes.get(text.partition("-")[0])
        if doc_type is None or "-" not in text or doc_id_fault(text) is not None:
            return None
        return Target("", doc_type, text)


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, str):
                yield one
