"""Judging a record's frontmatter by its schema (spec 01 §8).

Structural rules run in every mode. In `write` mode the rules for new values run too, over the
fields that the call changes; in the other modes the stored document id is judged, which a
write has checked before. Fields that the schema does not define are never looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from maadd.protocol.doc_ids import describe_fault, doc_id_fault
from maadd_worker.markdown.text import JS_WHITESPACE, js_text
from maadd_worker.schema.ids import has_type_prefix
from maadd_worker.schema.model import Model
from maadd_worker.schema.precision import is_calendar_date, starts_with_day
from maadd_worker.schema.registry import TypeEntry
from maadd_worker.schema.schema import DAY_FORMAT, FieldDef, Schema
from maadd_worker.schema.write_rules import (
    MAX_LENGTH_EXCEEDED,
    MULTILINE_NOT_ALLOWED,
    ConstraintViolation,
    date_drift,
    text_violations,
)

Mode = Literal["write", "read", "index", "audit"]

_AMOUNT = re.compile(rf"[0-9]+(?:\.[0-9]+)?[{JS_WHITESPACE}]+[A-Z]{{3}}")
_AMOUNT_FORM = "<number> <CURRENCY>, for example 1250.00 USD"
_SHOWN_CHARACTERS = 80
_NOT_REQUIRED_HERE = frozenset({"doc_type", "schema"})


class Finding(msgspec.Struct, frozen=True):
    """One thing wrong with one field. `actual` and `limit` are lengths in code points."""

    field: str
    message: str
    code: str | None = None
    actual: int | None = None
    limit: int | None = None


class ValidationReport(msgspec.Struct, frozen=True):
    """Errors block a write, warnings travel with its result."""

    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.errors


_FLAWLESS = ValidationReport()


def validate(
    schema: Schema,
    model: Model,
    frontmatter: Mapping[str, object],
    mode: Mode,
    changed: Collection[str] | None = None,
) -> ValidationReport:
    """Findings in order: missing required fields, then the fields of the schema in its order.

    `changed` names the fields that a write touches, None means all of them.
    """
    errors: list[Finding] = []
    warnings: list[Finding] = []
    writing = mode == "write"
    value_of = frontmatter.get
    for name in schema.required:
        if value_of(name) is None and name not in _NOT_REQUIRED_HERE:
            field = schema.fields.get(name)
            if field is None or field.default is None:
                errors.append(Finding(name, _missing(field, model)))
    if not writing:
        _judge_stored_id(value_of("doc_id"), errors)
    for name, field in schema.fields.items():
        value = value_of(name)
        if value is None:
            continue
        if field.type == "list":
            sound = _judge_list(name, field, value, model, errors)
        else:
            problem = _CHECKS[field.type](field, value, model)
            sound = problem is None
            if problem is not None:
                errors.append(Finding(name, problem))
        if writing and sound and (changed is None or name in changed):
            _judge_new_value(field, value, errors, warnings)
    if not errors and not warnings:
        return _FLAWLESS
    return ValidationReport(tuple(errors), tuple(warnings))


def id_prefix_warning(entry: TypeEntry, doc_id: str) -> Finding | None:
    """ID_PREFIX_MISMATCH when refs to a caller's id could never pass the prefix rule."""
    if has_type_prefix(entry, doc_id):
        return None
    return Finding(
        "doc_id",
        f'"{doc_id}" does not start with "{entry.id_prefix}-", so no ref of type '
        f'"{entry.name}" can point to it',
        "ID_PREFIX_MISMATCH",
    )


def _judge_stored_id(doc_id: object, errors: list[Finding]) -> None:
    if doc_id is None:
        return
    reason = doc_id_fault(doc_id)
    if reason is not None:
        errors.append(Finding("doc_id", f"{_shown(doc_id)} {describe_fault(reason)} ({reason})"))


def _check_string(field: FieldDef, value: object, model: Model) -> str | None:
    return None if isinstance(value, str) else f"Expected string, got {_js_type(value)}"


def _check_number(field: FieldDef, value: object, model: Model) -> str | None:
    if isinstance(value, float):
        finite = math.isfinite(value)
    else:
        finite = isinstance(value, int) and not isinstance(value, bool)
    return None if finite else f"Expected finite number, got {_shown(value)}"


def _check_boolean(field: FieldDef, value: object, model: Model) -> str | None:
    return None if isinstance(value, bool) else f"Expected boolean, got {_js_type(value)}"


def _check_date(field: FieldDef, value: object, model: Model) -> str | None:
    if isinstance(value, str) and (field.format != DAY_FORMAT or starts_with_day(value)):
        return None
    advice = ""
    if field.format != DAY_FORMAT and _js_type(value) == "number":
        # A year alone is a number in YAML.
        advice = ", a number; put it in quotes"
    return f"Expected a date of format {field.format or 'text'}, got {_shown(value)}{advice}"


def _check_enum(field: FieldDef, value: object, model: Model) -> str | None:
    values = field.values or ()
    if isinstance(value, str) and value in values:
        return None
    return f"{_shown(value)} not in enum [{', '.join(values)}]"


def _check_ref(field: FieldDef, value: object, model: Model) -> str | None:
    target = model.registry.types.get(field.target or "")
    if target is None:
        return f'Refers to type "{field.target}", which is not in the registry'
    if isinstance(value, str) and value.startswith(f"{target.id_prefix}-"):
        return None
    return (
        f'Expected a ref to type "{target.name}", which must start with '
        f'"{target.id_prefix}-", got {_shown(value)}'
    )


def _check_amount(field: FieldDef, value: object, model: Model) -> str | None:
    if isinstance(value, str) and _AMOUNT.fullmatch(value):
        return None
    return f"Expected {_AMOUNT_FORM}, got {_shown(value)}"


_CHECKS: Mapping[str, Callable[[FieldDef, object, Model], str | None]] = MappingProxyType(
    {
        "string": _check_string,
        "number": _check_number,
        "boolean": _check_boolean,
        "date": _check_date,
        "enum": _check_enum,
        "ref": _check_ref,
        "amount": _check_amount,
    }
)


def _judge_list(
    name: str, field: FieldDef, value: object, model: Model, errors: list[Finding]
) -> bool:
    """Check a list and each item, which inherits format, target and values of the list."""
    item_type = field.item_type or "string"
    if not isinstance(value, list):
        errors.append(Finding(name, f"expected array of {item_type}, got {_js_type(value)}"))
        return False
    before = len(errors)
    if item_type == "list":
        inner = msgspec.structs.replace(field, item_type=None)
        for position, item in enumerate(value):
            _judge_list(f"{name}[{position}]", inner, item, model, errors)
        return len(errors) == before
    check = _CHECKS[item_type]
    for position, item in enumerate(value):
        problem = check(field, item, model)
        if problem is not None:
            errors.append(Finding(f"{name}[{position}]", problem))
    return len(errors) == before


def _judge_new_value(
    field: FieldDef, value: object, errors: list[Finding], warnings: list[Finding]
) -> None:
    """The rules for values that a write brings in; `value` is structurally sound."""
    if field.type == "string":
        for violation in text_violations(field, value):
            (errors if violation.severity == "error" else warnings).append(_constraint(violation))
    elif field.type == "date":
        if _is_impossible(field, value):
            errors.append(_impossible(field.name, value))
        else:
            _judge_precision(field, value, errors, warnings)
    elif field.item_type == "date" and isinstance(value, list):
        errors.extend(
            _impossible(f"{field.name}[{position}]", item)
            for position, item in enumerate(value)
            if _is_impossible(field, item)
        )


def _is_impossible(field: FieldDef, value: object) -> bool:
    return field.format == DAY_FORMAT and isinstance(value, str) and not is_calendar_date(value)


def _impossible(name: str, value: object) -> Finding:
    return Finding(
        name,
        f"{_shown(value)} is no calendar date; write an existing day as YYYY-MM-DD, "
        "with a time after `T` if needed",
        "FIELD_DATE_INVALID",
    )


def _judge_precision(
    field: FieldDef, value: object, errors: list[Finding], warnings: list[Finding]
) -> None:
    drift = date_drift(field, value)
    if drift is None:
        return
    message = (
        f"{_shown(value)} is a {drift.actual}-precision date, {drift.direction} than "
        f"store_precision={drift.declared}"
    )
    reaction = field.on_coarser if drift.direction == "coarser" else field.on_finer
    if reaction == "error":
        errors.append(Finding(field.name, message))
    else:
        code = f"PRECISION_{drift.direction.upper()}_THAN_DECLARED"
        warnings.append(Finding(field.name, message, code))


def _constraint(violation: ConstraintViolation) -> Finding:
    actual, limit = violation.actual, violation.limit
    if violation.code == MULTILINE_NOT_ALLOWED:
        message = "must be a single line; remove the line breaks"
    elif violation.code == MAX_LENGTH_EXCEEDED:
        message = f"has {actual} characters, at most {limit} are allowed"
    else:
        message = f"has {actual} characters, at most {limit} are advised"
    return Finding(violation.field, message, violation.code, actual, limit)


def _missing(field: FieldDef | None, model: Model) -> str:
    """`Required field missing` with what the field takes."""
    return "Required field missing" + (f": {_expects(field, model)}" if field else "")


def _expects(field: FieldDef, model: Model) -> str:
    kind = field.scalar_type
    if kind == "enum":
        text = f"enum, one of {', '.join(field.values or ())}"
    elif kind == "ref":
        target = model.registry.types.get(field.target or "")
        prefix = f', an id that starts with "{target.id_prefix}-"' if target else ""
        text = f"ref to {field.target}{prefix}"
    elif kind == "date":
        text = f"date, format {field.format}" if field.format else "date"
    elif kind == "amount":
        text = f"amount, {_AMOUNT_FORM}"
    elif kind == "boolean":
        text = "boolean, true or false"
    else:
        text = kind
    return f"list of {text}" if field.type == "list" else text


def _js_type(value: object) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "object"


def _shown(value: object) -> str:
    """The value in a message: texts in quotes, long ones cut."""
    text = js_text(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}…"
    return f'"{text}"' if isinstance(value, str) else text
