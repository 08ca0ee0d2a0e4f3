"""Values of a source as the fields of a type take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from maadd_worker.extract.times import normalize_date
from maadd_worker.imports.infer import is_plain_number
from maadd_worker.imports.names import record_id
from maadd_worker.imports.plan import DATE_IN_NAME, HEADING, SECTION, ImportPlan
from maadd_worker.imports.source import Item
from maadd_worker.imports.targets import Targets, named_in
from maadd_worker.imports.values import paired, written
from maadd_worker.markdown.yaml_scalars import core_scalar
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import DAY_FORMAT, IDENTITY_KEYS, FieldDef

KEPT_IDENTITY = {name: f"source_{name}" for name in IDENTITY_KEYS}
"""Where a value goes that stands under a name which belongs to the engine."""

_DAY_CHARACTERS = len("2000-01-01")


class Unfit(Exception):
    """A value that a field does not take."""

    def __init__(self, field: str, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason
        self.advice = advice


class Converter:
    """Makes the fields of records; `dangling` hears of refs to records that are not there."""

    def __init__(
        self,
        plan: ImportPlan,
        model: Model,
        targets: Targets,
        dangling: Callable[[Item, str, str], None],
    ) -> None:
        self._plan = plan
        self._model = model
        self._targets = targets
        self._dangling = dangling

    def fields(self, item: Item, doc_type: str, doc_id: str) -> dict[str, Any]:
        """All fields of the record that an item becomes, without its identity. Raises Unfit."""
        type_plan = self._plan.types[doc_type]
        schema = self._model.schema(doc_type)
        identity = {"doc_id": doc_id, "doc_type": doc_type, "schema": schema.ref}
        fields: dict[str, Any] = {}
        for name, value in item.fields.items():
            if name in IDENTITY_KEYS:
                if value is not None and value != identity[name]:
                    fields[KEPT_IDENTITY[name]] = value
            elif name != type_plan.body:
                field = schema.fields.get(name)
                raw = item.raw.get(name)
                fields[name] = value if field is None else self._value(field, value, raw, item)
        for name, origin in type_plan.derive.items():
            if fields.get(name) is None:
                text = derived(item, origin)
                field = schema.fields.get(name)
                if text is not None and field is not None:
                    fields[name] = self._value(field, text, None, item)
        for target_type, name in type_plan.links.items():
            linked = self._linked(item, target_type)
            if linked:
                fields[name] = list(dict.fromkeys([*_listed(fields.get(name)), *linked]))
        return fields

    def _linked(self, item: Item, target_type: str) -> Iterator[str]:
        if self._plan.links != "refs":
            return
        for link in item.links:
            target = self._targets.find_link(link, item)
            if target is not None and target.doc_type == target_type and target.key != item.key:
                yield target.doc_id

    def _value(self, field: FieldDef, value: Any, raw: Any, item: Item) -> Any:
        if value is None or (value == "" and field.type != "string"):
            return None
        if field.type != "list":
            return self._scalar(field, field.type, value, raw, item)
        item_type = field.item_type or "string"
        if isinstance(value, str):
            whole = named_in(value)
            single = item_type == "ref" and (
                whole.is_link or self._targets.find(whole, item, field.target) is not None
            )
            parts = [value] if single else [one.strip() for one in value.split(",")]
            members = [(one, None) for one in parts if one]
        elif isinstance(value, list):
            members = [(one, raw_one) for one, raw_one in paired(value, raw) if one is not None]
        else:
            members = [(value, raw)]
        if item_type == "list":
            return value
        return [self._scalar(field, item_type, one, raw_one, item) for one, raw_one in members]

    def _scalar(self, field: FieldDef, kind: str, value: Any, raw: Any, item: Item) -> Any:
        match kind:
            case "number":
                return _number(field, value)
            case "boolean":
                return _boolean(field, value)
            case "ref":
                return self._ref(field, value, raw, item)
            case "date":
                return _date(field, as_text(value, raw))
            case "enum":
                return _enum(field, as_text(value, raw))
            case _:
                return as_text(value, raw)

    def _ref(self, field: FieldDef, value: Any, raw: Any, item: Item) -> str:
        if isinstance(value, bool | list | dict):
            raise Unfit(field.name, f"{_shown(value)} names no record", _no_ref(field))
        named = named_in(written(value, raw))
        target = self._targets.find(named, item, field.target)
        if target is not None:
            return target.doc_id
        entry = self._model.registry.types.get(field.target or "")
        if named.is_number and entry is not None and self._targets.numbers_its_ids(entry.name):
            # The number of something that the source does not have: a ref all the same.
            doc_id = record_id(entry.id_prefix, named.text)
            if doc_id is not None:
                self._dangling(item, field.name, doc_id)
                return doc_id
        raise Unfit(field.name, f"{_shown(value)} names no {field.target}", _no_ref(field))


def derived(item: Item, origin: str) -> str | None:
    """The text that an item has in another form than a field."""
    if origin == HEADING:
        return item.heading or item.stem
    if origin == DATE_IN_NAME:
        return normalize_date(item.stem[:_DAY_CHARACTERS])
    if origin.startswith(SECTION):
        return item.sections.get(origin.removeprefix(SECTION))
    return None


def _number(field: FieldDef, value: Any) -> Any:
    if isinstance(value, str) and is_plain_number(value.strip()):
        return core_scalar(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    advice = f"correct it, or declare {field.name} a string in the plan"
    raise Unfit(field.name, f"{_shown(value)} is no number", advice)


def _boolean(field: FieldDef, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    advice = f"write true or false, or declare {field.name} a string in the plan"
    raise Unfit(field.name, f"{_shown(value)} is neither true nor false", advice)


def _date(field: FieldDef, text: str) -> str:
    if field.format != DAY_FORMAT:
        return text
    found = normalize_date(text)
    if found is None:
        advice = f"write YYYY-MM-DD, or declare {field.name} a string in the plan"
        raise Unfit(field.name, f"{_shown(text)} is no date", advice)
    return found


def _enum(field: FieldDef, text: str) -> str:
    if text not in (field.values or ()):
        advice = f"add it to the values of {field.name} in the plan, or correct it"
        raise Unfit(field.name, f"{_shown(text)} is not one of its values", advice)
    return text


def as_text(value: Any, raw: Any = None) -> str:
    """A value as a text: as it was written, lists and maps as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return written(value, raw)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _no_ref(field: FieldDef) -> str:
    return f"correct it, or declare {field.name} a string in the plan"


def _shown(value: Any) -> str:
    text = as_text(value, None)
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
