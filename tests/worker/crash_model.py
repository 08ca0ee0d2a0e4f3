"""What a project must look like after calls of which some were answered and some were not."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import msgspec

REGISTRY = """\
types:
  ship:
    path: ships
    id_prefix: shp
    schema: ship.v2
  voyage:
    path: voyages
    id_prefix: voy
    schema: voyage.v1
  port:
    path: lands/ports
    id_prefix: prt
    schema: port.v1
"""

FOLDERS = {"shp": "ships", "voy": "voyages", "prt": "lands/ports"}
"""The folder of a record by the beginning of its id; that of ports does not exist yet."""

SHIP_V2 = """\
type: ship
version: 2
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  tonnage: {type: number, index: true}
  tags: {type: list, item_type: string, index: true}
  flag: {type: string, default: none}
"""

GROUP = 777
"""The tonnage that some ships share from the start."""


class Record(msgspec.Struct, frozen=True):
    """A record as the project shall have it; `deleted` is a tombstone."""

    doc_id: str
    frontmatter: dict[str, Any]
    body: str
    version: int = 1
    deleted: bool = False


State = dict[str, Record | None]
"""None for a record that is gone for good."""


class Op(msgspec.Struct, frozen=True):
    """One call and what it makes of each record that it touches.

    `whole` says that the effects come together or not at all.
    """

    tool: str
    args: dict[str, Any]
    effects: State
    whole: bool = False

    @property
    def key(self) -> str | None:
        key = self.args.get("idempotencyKey")
        return key if isinstance(key, str) else None


def ship(doc_id: str, name: str, body: str = "", **fields: Any) -> Record:
    front = {"doc_id": doc_id, "doc_type": "ship", "schema": "ship.v2", "name": name, **fields}
    return Record(doc_id, front, body)


def changed(record: Record, *, body: str | None = None, **fields: Any) -> Record:
    return msgspec.structs.replace(
        record,
        frontmatter={**record.frontmatter, **fields},
        body=record.body if body is None else body,
        version=record.version + 1,
    )


def buried(record: Record) -> Record:
    return msgspec.structs.replace(record, deleted=True)


class Script:
    """Invents calls, each on top of the state that those before will leave."""

    def __init__(self, state: State, rng: random.Random) -> None:
        self.state: State = dict(state)
        self._rng = rng
        self._number = 0

    def next(self, tool: str, **choice: Any) -> Op:
        """A call of the tool, or a create where no ship is left for it; `choice` settles what
        would be drawn by lot."""
        if tool in ("delete", "bulk_update", "bulk_delete") and not self._live():
            tool = "create"
        op: Op = getattr(self, f"_{tool}")(**choice)
        self.state |= op.effects
        return op

    def _unique(self) -> int:
        self._number += 1
        return self._number

    def _live(self, *, movable: bool = True) -> list[Record]:
        """Ships of the present schema; the first one, which voyages need, only on request."""
        return [
            record
            for record in self.state.values()
            if record is not None
            and not record.deleted
            and record.frontmatter["schema"] == "ship.v2"
            and (record.doc_id != "shp-s0" or not movable)
        ]

    def _call(self, tool: str, args: dict[str, Any], effects: State, **more: Any) -> Op:
        key = {"idempotencyKey": f"key-{self._unique()}"}
        return Op(f"maad_{tool}", {**args, **key}, effects, **more)

    def _new(self, **fields: Any) -> tuple[dict[str, Any], Record]:
        number = self._unique()
        body = f"# Ship {number}\n\nSailed with [[person:Ada {number}|Ada]]."
        record = ship(f"shp-n{number}", f"N{number}", body, tonnage=number, **fields)
        sent = {name: record.frontmatter[name] for name in ("name", "tonnage", *fields)}
        item = {"docType": "ship", "docId": record.doc_id, "fields": sent, "body": body}
        return item, record

    def _create(self, doc_type: str = "ship") -> Op:
        if doc_type == "port":
            number = self._unique()
            front = {"doc_id": f"prt-{number}", "doc_type": "port", "schema": "port.v1"}
            record = Record(f"prt-{number}", {**front, "name": "P"}, "")
            item = {"docType": "port", "docId": record.doc_id, "fields": {"name": "P"}, "body": ""}
        else:
            item, record = self._new(tags=["new", "ship"])
        return self._call("create", item, {record.doc_id: record})

    def _edit(self, record: Record, how: str) -> tuple[dict[str, Any], Record]:
        number = self._unique()
        if how == "fields":
            value = 1000 + number
            after = changed(record, tonnage=value)
            return {"docId": record.doc_id, "fields": {"tonnage": value}}, after
        text = f"Text {number}"
        if how == "body":
            return {"docId": record.doc_id, "body": text}, changed(record, body=text)
        body = f"{record.body}\n\n{text}" if record.body else text
        return {"docId": record.doc_id, "appendBody": text}, changed(record, body=body)

    def _update(self, how: str | None = None) -> Op:
        record = self._rng.choice(self._live(movable=False))
        args, after = self._edit(record, how or self._how())
        return self._call("update", args, {record.doc_id: after})

    def _update_new(self) -> Op:
        """An update of a record that the script has made."""
        made = next(one for doc_id, one in self.state.items() if doc_id.startswith("shp-n") and one)
        args, after = self._edit(made, "fields")
        return self._call("update", args, {made.doc_id: after})

    def _how(self) -> str:
        return self._rng.choice(("fields", "body", "append"))

    def _delete(self, mode: str | None = None) -> Op:
        record = self._rng.choice(self._live())
        mode = mode or self._rng.choice(("soft", "hard"))
        after = buried(record) if mode == "soft" else None
        return self._call("delete", {"docId": record.doc_id, "mode": mode}, {record.doc_id: after})

    def _bulk_create(self, count: int | None = None, atomic: bool | None = None) -> Op:
        made = [self._new() for _ in range(count or self._rng.randint(2, 6))]
        atomic = self._rng.random() < 0.5 if atomic is None else atomic
        args = {"records": [item for item, _ in made], "atomic": atomic}
        effects: State = {record.doc_id: record for _, record in made}
        return self._call("bulk_create", args, effects, whole=atomic)

    def _bulk_update(self) -> Op:
        chosen = self._some()
        made = [self._edit(record, self._how()) for record in chosen]
        effects: State = {record.doc_id: record for _, record in made}
        return self._call("bulk_update", {"updates": [item for item, _ in made]}, effects)

    def _some(self) -> list[Record]:
        live = self._live()
        return self._rng.sample(live, min(len(live), self._rng.randint(2, 5)))

    def _bulk_delete(self, mode: str | None = None) -> Op:
        chosen = self._some()
        mode = mode or self._rng.choice(("soft", "hard"))
        args = {"docIds": [one.doc_id for one in chosen], "mode": mode, "confirm": True}
        return self._call("bulk_delete", args, _removed(chosen, mode))

    def _delete_where(self, mode: str | None = None) -> Op:
        mode = mode or self._rng.choice(("soft", "hard"))
        chosen = [
            record
            for record in self.state.values()
            if record is not None
            and not record.deleted
            and record.frontmatter.get("tonnage") == GROUP
        ]
        filters = {"tonnage": GROUP}
        args = {"docType": "ship", "filters": filters, "mode": mode, "confirm": True}
        return self._call("delete_where", args, _removed(chosen, mode))

    def _purge_soft_deleted(self, every: bool = False) -> Op:
        """`every`: the tombstones are all made by now."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        old = [one.doc_id for one in self.state.values() if one is not None and one.deleted]
        # Otherwise what this very run deletes will be younger than the threshold.
        effects: State = {doc_id: None for doc_id in old if every or doc_id.startswith("shp-t")}
        return self._call("purge_soft_deleted", {"olderThan": now, "confirm": True}, effects)

    def _repair_where(self, repair: str | None = None) -> Op:
        repair = repair or self._rng.choice(("prune_orphan_refs", "fix_schema_drift"))
        effects: State = {}
        doc_type = "voyage" if repair == "prune_orphan_refs" else "ship"
        for record in list(self.state.values()):
            if record is None or record.deleted or record.frontmatter["doc_type"] != doc_type:
                continue
            if repair == "prune_orphan_refs":
                stops = record.frontmatter["stops"]
                left = [stop for stop in stops if self._is_live(stop)]
                if left != stops:
                    effects[record.doc_id] = changed(record, stops=left)
            elif record.frontmatter["schema"] == "ship.v1":
                after = changed(record, schema="ship.v2", flag="none")
                after.frontmatter.pop("old")
                effects[record.doc_id] = after
        args = {"docType": doc_type, "repairTypes": [repair], "confirm": True}
        return self._call("repair_where", args, effects)

    def _is_live(self, doc_id: str) -> bool:
        record = self.state.get(doc_id)
        return record is not None and not record.deleted

    def _flush(self) -> Op:
        return Op("maad_flush", {}, {})

    def _backup(self) -> Op:
        args = {"label": f"crash-{self._unique()}", "allowDirty": True}
        return Op("maad_backup", args, {})

    def _get(self) -> Op:
        return Op("maad_get", {"docId": "shp-s0"}, {})


RECORD_TOOLS = ("create", "update", "delete")
WRITE_TOOLS = (
    *RECORD_TOOLS,
    "bulk_create",
    "bulk_update",
    "bulk_delete",
    "delete_where",
    "repair_where",
    "purge_soft_deleted",
)
TOOLS = (*WRITE_TOOLS, "flush", "backup")


def _removed(chosen: Sequence[Record], mode: str) -> State:
    return {one.doc_id: buried(one) if mode == "soft" else None for one in chosen}
