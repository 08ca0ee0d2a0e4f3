"""The check of a call's arguments: step 0 of every call (spec 04 §1.2).

A good call costs one `msgspec.convert`. Only a call that it refuses, or that holds a null, is
walked member by member, to accept what JSON allows (3.0 for an integer) and else to name
everything that is wrong at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import inspect as mi

from maadd.protocol.arguments.base import Arguments, ConflictingArguments
from maadd.protocol.errors import MaadError
from maadd.protocol.json_schema import without_null
from maadd.protocol.suggestion import nearest
from maadd.protocol.tools import TOOLS, ToolSpec

MAX_ISSUES = 20
"""Problems described in one answer; the rest is counted."""

_MAX_ECHO = 100
"""Characters of a caller's own name that an error repeats."""


class Issue(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem: where (`records[2].docId`; empty for the whole), what, the likely name."""

    path: str
    message: str
    suggestion: str | None = None


def decode_arguments(tool: str, raw: object) -> Arguments:
    """The typed arguments of a call of `tool`; `INVALID_ARGS` when they do not fit.

    `raw` is the decoded JSON of `arguments`; None means none. Top-level names that begin with
    `_` reach nobody.
    """
    spec = TOOLS.get(tool)
    if spec is None or not spec.available:
        raise unknown_tool_error(tool)
    return check_arguments(spec, raw)


def check_arguments(spec: ToolSpec, raw: object) -> Arguments:
    """As `decode_arguments`, for a tool already looked up."""
    expected = spec.arguments
    if type(raw) is dict and not (
        _holds_null(raw) if _has_nested_members(expected) else None in raw.values()
    ):
        try:
            return msgspec.convert(raw, expected)
        except (msgspec.ValidationError, UnicodeEncodeError):
            pass  # The walk below finds out whether it is wrong, and all that is wrong.
    issues: list[Issue] = []
    fitted = _fit(_described(expected), _visible(raw), "", issues)
    if not issues:
        try:
            return msgspec.convert(fitted, expected)
        except msgspec.ValidationError as refusal:
            issues += _issues_of(refusal)
    raise _invalid_args(spec.name, issues)


def unknown_tool_error(name: str) -> MaadError:
    """`INVALID_ARGS` for a tool that is not there, with the nearest that is."""
    available = [spec.name for spec in TOOLS.values() if spec.available]
    if name in available:
        return _invalid_args(name, [Issue("", "not offered by this server to its one role")])
    return _invalid_args(_echo(name), [_unknown("tool", name, "", nearest(name, available))])


def _invalid_args(tool: str, issues: Sequence[Issue]) -> MaadError:
    described = issues[:MAX_ISSUES]
    texts = [": ".join(filter(None, (issue.path, issue.message))) for issue in described]
    if len(issues) > MAX_ISSUES:
        texts.append(f"and {len(issues) - MAX_ISSUES} more problems")
    return MaadError(
        "INVALID_ARGS",
        f"{tool}: {'; '.join(texts)}",
        {"tool": tool, "issues": msgspec.to_builtins(described)},
    )


def _unknown(what: str, name: str, path: str, suggestion: str | None) -> Issue:
    hint = f", did you mean {suggestion!r}?" if suggestion else ""
    return Issue(path, f"unknown {what} {_echo(name)!r}{hint}", suggestion)


def _echo(name: str) -> str:
    """A caller's name as it may stand in an answer: short, and always encodable."""
    return name[:_MAX_ECHO].encode("utf-8", "replace").decode()


def _visible(raw: object) -> object:
    """The arguments without the names that are nobody's business."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        return raw
    return {name: value for name, value in raw.items() if not name.startswith("_")}


def _issues_of(refusal: msgspec.ValidationError) -> list[Issue]:
    """What only the Struct as a whole could judge."""
    cause = refusal.__cause__
    if isinstance(cause, ConflictingArguments):
        return [Issue(path, message) for path, message in cause.problems]
    return [Issue("", str(refusal))]


@cache
def _described(expected: type[Arguments]) -> mi.StructType:
    return cast("mi.StructType", mi.type_info(expected))


@cache
def _has_nested_members(expected: type[Arguments]) -> bool:
    """Whether arguments hold Structs, inside which a null could hide."""
    return any(_holds_struct(member.type) for member in _described(expected).fields)


def _holds_null(value: object) -> bool:
    """Whether a null is anywhere in it."""
    if type(value) is dict:
        return any(map(_holds_null, value.values()))
    if type(value) is list:
        return any(map(_holds_null, value))
    return value is None


def _holds_struct(described: mi.Type) -> bool:
    kind = _bare(described)
    return isinstance(kind, mi.StructType) or (
        isinstance(kind, mi.VarTupleType) and _holds_struct(kind.item_type)
    )


def _bare(described: mi.Type) -> mi.Type:
    """The type without `| None` and annotations."""
    kind = without_null(described)
    while isinstance(kind, mi.Metadata):
        kind = without_null(kind.type)
    return kind


def _fit(described: mi.Type, value: Any, path: str, issues: list[Issue]) -> Any:
    """`value` as `msgspec.convert` wants it; what does not fit is added to `issues`."""
    kind = _bare(described)
    match kind:
        case mi.AnyType():
            return value
        case mi.StructType():
            return _fit_struct(kind, value, path, issues)
        case mi.VarTupleType():
            return _fit_list(kind, value, path, issues)
        case mi.DictType():
            return _fit_mapping(kind, value, path, issues)
        case mi.IntType() if isinstance(value, float) and value.is_integer():
            value = int(value)
    problem = _scalar_problem(kind, value)
    if problem:
        issues.append(Issue(path, problem))
    return value


def _fit_struct(kind: mi.StructType, value: Any, path: str, issues: list[Issue]) -> Any:
    if not isinstance(value, dict):
        issues.append(Issue(path, _mismatch("an object", value)))
        return value
    members = {member.encode_name: member for member in kind.fields}
    fitted = {}
    for name, given in value.items():
        member = members.get(name)
        if member is None:
            # Nobody reads suggestions beyond the described issues, and each costs a search.
            suggestion = nearest(name, members) if len(issues) < MAX_ISSUES else None
            issues.append(_unknown("argument", name, _join(path, name), suggestion))
        elif given is None and not member.required and not _takes_anything(member):
            issues.append(Issue(_join(path, name), "must not be null, leave it out instead"))
        else:
            fitted[name] = _fit(member.type, given, _join(path, name), issues)
    for name, member in members.items():
        if member.required and name not in value:
            issues.append(Issue(_join(path, name), "is required"))
    return fitted


def _takes_anything(member: mi.Field) -> bool:
    return isinstance(_bare(member.type), mi.AnyType)


def _fit_list(kind: mi.VarTupleType, value: Any, path: str, issues: list[Issue]) -> Any:
    if not isinstance(value, (list, tuple)):
        issues.append(Issue(path, _mismatch("a list", value)))
        return value
    problem = _size_problem(len(value), kind.min_length, kind.max_length, "items")
    if problem:
        issues.append(Issue(path, problem))
    return [
        _fit(kind.item_type, item, f"{path}[{index}]", issues) for index, item in enumerate(value)
    ]


def _fit_mapping(kind: mi.DictType, value: Any, path: str, issues: list[Issue]) -> Any:
    if not isinstance(value, dict):
        issues.append(Issue(path, _mismatch("an object", value)))
        return value
    return {
        name: _fit(kind.value_type, item, _join(path, name), issues) for name, item in value.items()
    }


def _scalar_problem(kind: mi.Type, value: Any) -> str | None:
    """What is wrong with a value that has no members, or None."""
    match kind:
        case mi.BoolType():
            return None if isinstance(value, bool) else _mismatch("true or false", value)
        case mi.IntType():
            if not isinstance(value, int) or isinstance(value, bool):
                return _mismatch("an integer", value)
            return _bound_problem(value, kind.ge, kind.le)
        case mi.UnionType():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return None if number else _mismatch("a number", value)
        case mi.LiteralType(values=choices):
            known = isinstance(value, str) and value in choices
            return None if known else f"must be {_choice(choices)}"
        case mi.StrType():
            if not isinstance(value, str):
                return _mismatch("a string", value)
            if kind.pattern and not re.search(kind.pattern, value):
                return f"must match {kind.pattern}"
            return _size_problem(len(value), kind.min_length, kind.max_length, "characters")
    raise TypeError(f"arguments of type {kind!r} are not checked here")


def _bound_problem(value: int, minimum: float | None, maximum: float | None) -> str | None:
    if minimum is not None and value < minimum:
        return f"must be at least {minimum}"
    if maximum is not None and value > maximum:
        return f"must be at most {maximum}"
    return None


def _size_problem(size: int, minimum: int | None, maximum: int | None, unit: str) -> str | None:
    if minimum is not None and size < minimum:
        return f"must have at least {minimum} {unit}, has {size}"
    if maximum is not None and size > maximum:
        return f"must have at most {maximum} {unit}, has {size}"
    return None


def _choice(choices: Iterable[object]) -> str:
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


def _join(path: str, name: str) -> str:
    return f"{path}.{_echo(name)}" if path else _echo(name)


_JSON_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _mismatch(expected: str, value: object) -> str:
    return f"must be {expected}, got {_JSON_NAMES.get(type(value), type(value).__name__)}"
