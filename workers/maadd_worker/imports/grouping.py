"""Which items belong together: from the families of the structural scanner to types.

Families have exactly the same fields (spec 01 §17). Here those of one folder with much in
common are put together, and folders that hold the same kind of file too.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from maadd_worker.imports.source import Item
from maadd_worker.read.scan_report import ScannedFile, same_fields
from maadd_worker.schema.schema import IDENTITY_KEYS

_ALIKE = 0.4
"""Fields in common, of all fields of both, that make two families of a folder one."""

_SAME_KIND = 0.8
_TELLING_FIELDS = 4
"""So many common fields tell that two folders hold the same kind of file."""

_DATED = re.compile(r"[0-9]+([-_.][0-9]+)*")


class Group(msgspec.Struct, frozen=True):
    """Items that become one type; the members other than `items` are those of `TypePlan`."""

    name: str
    folders: tuple[str, ...]
    having: tuple[str, ...]
    doc_type: str | None
    items: tuple[Item, ...]


class _Cluster:
    """Families of one folder that become one; `having` tells them from its other files."""

    def __init__(self, unit: str, items: Sequence[Item]) -> None:
        self.unit = unit
        self.items: list[Item] = []
        self.having: tuple[str, ...] = ()
        self._counts: Counter[str] = Counter()
        self.add(items)

    def add(self, items: Sequence[Item]) -> None:
        self.items.extend(items)
        self._counts.update(key for item in items for key in item.fields)

    def core(self) -> frozenset[str]:
        """The fields that at least half of the items have."""
        half = len(self.items) / 2
        return frozenset(key for key, number in self._counts.items() if number >= half)


def group_items(items: Sequence[Item], name: str) -> list[Group]:
    """The groups, the most particular first; `name` is that of the source."""
    declared: dict[str, list[Item]] = {}
    rest: list[Item] = []
    for item in items:
        doc_type = item.fields.get("doc_type")
        if isinstance(doc_type, str) and doc_type:
            declared.setdefault(doc_type, []).append(item)
        else:
            rest.append(item)
    groups = [
        Group(doc_type, (".",), (), doc_type, tuple(members))
        for doc_type, members in sorted(declared.items())
    ]
    top = posixpath.commonpath([item.folder for item in rest]) if rest else ""
    units: dict[str, list[Item]] = {}
    for item in rest:
        units.setdefault(_unit(item, top), []).append(item)
    clusters = [one for unit in sorted(units) for one in _clusters(unit, units[unit])]
    merged = _merge_units(clusters)
    merged.sort(key=lambda one: (one[0].unit == top, not one[0].having, one[0].unit))
    groups += [_group(parts, top, name) for parts in merged]
    return groups


def _unit(item: Item, top: str) -> str:
    """The folder below `top` that an item is in; `top` itself for one that lies there."""
    below = item.folder[len(top) :].strip("/")
    return posixpath.join(top, below.split("/", 1)[0]) if below else top


def _clusters(unit: str, items: Sequence[Item]) -> list[_Cluster]:
    """The families of a folder, those put together that are alike."""
    by_path = {item.key: item for item in items}
    scanned = [
        ScannedFile(item.key, 0, tuple(item.fields), None, (), ()) for item in by_path.values()
    ]
    clusters: list[_Cluster] = []
    for fields, members in same_fields(scanned):
        family = [by_path[file.path] for file in members]
        near = max(clusters, key=lambda one: _likeness(one.core(), fields), default=None)
        alike = near is not None and _likeness(near.core(), fields) >= _ALIKE
        if near is not None and (alike or not fields or len(family) == 1):
            near.add(family)
        else:
            clusters.append(_Cluster(unit, family))
    clusters.sort(key=lambda one: -len(one.items))
    return _tell_apart(clusters)


def _tell_apart(clusters: list[_Cluster]) -> list[_Cluster]:
    """Clusters of a folder that a field tells from the others; the rest joins the largest."""
    kept = clusters[:1]
    for one in clusters[1:]:
        others = {key for other in clusters if other is not one for key in _any(other.items)}
        own = [key for key in sorted(_every(one.items)) if key not in others]
        if own:
            one.having = tuple(own[:1])
            kept.append(one)
        else:
            kept[0].add(one.items)
    return kept


def _merge_units(clusters: list[_Cluster]) -> list[list[_Cluster]]:
    merged: list[list[_Cluster]] = []
    for one in clusters:
        for parts in merged:
            first = parts[0]
            if first.unit != one.unit and first.having == one.having and _one_kind(first, one):
                parts.append(one)
                break
        else:
            merged.append([one])
    return merged


def _one_kind(one: _Cluster, other: _Cluster) -> bool:
    dated = all(_DATED.fullmatch(posixpath.basename(c.unit)) for c in (one, other))
    core, others = one.core(), other.core()
    if dated:
        return _likeness(core, others) >= _ALIKE or core == others
    return len(core & others) >= _TELLING_FIELDS and _likeness(core, others) >= _SAME_KIND


def _group(parts: Sequence[_Cluster], top: str, name: str) -> Group:
    first = parts[0]
    folder = posixpath.basename(first.unit)
    if not folder or first.unit == top or _DATED.fullmatch(folder):
        folder = name
    if first.having:
        folder = f"{folder} {first.having[0]}"
    items = sorted((item for one in parts for item in one.items), key=lambda item: item.key)
    folders = tuple(sorted({one.unit or "." for one in parts}))
    return Group(folder, folders, first.having, None, tuple(items))


def _any(items: Sequence[Item]) -> set[str]:
    return {key for item in items for key in item.fields if key not in IDENTITY_KEYS}


def _every(items: Sequence[Item]) -> set[str]:
    filled = ({key for key, value in item.fields.items() if value is not None} for item in items)
    return set.intersection(*filled)


def _likeness(one: frozenset[str], other: frozenset[str] | tuple[str, ...]) -> float:
    every = one.union(other)
    return len(one.intersection(other)) / len(every) if every else 1.0
