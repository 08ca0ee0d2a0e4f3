"""YAML 1.2 core schema for the files of an operator: instance.yaml and tokens.yaml.

PyYAML resolves plain scalars by YAML 1.1 (`yes`, `12:30`, `2031-01-01` become something
else); here libyaml only scans, and the values are built by the core schema's own table
(spec 01 §4.2). Duplicate keys, foreign tags, self-containing aliases and alias bombs are
errors with a position.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

MAX_ALIASED_NODES = 65_536
"""How many nodes the aliases of one file may stand for, all expansions counted."""

MAX_DEPTH = 64
"""How deep lists and mappings may nest."""

_PLAIN = "!plain"
_CORE = "tag:yaml.org,2002:"
_KEYWORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?(0b[01]+|0x[0-9a-fA-F]+|0o[0-7]+|[0-9]+)", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.[0-9]+([eE][-+]?[0-9]+)?", re.ASCII
)
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_BASES = {"0b": 2, "0x": 16, "0o": 8}


class YamlError(Exception):
    """A text that is no valid document; `line` and `column` are 1-based."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(f"{problem} (line {line}, column {column})")
        self.problem = problem
        self.line = line
        self.column = column


class _Composer(yaml.CSafeLoader):
    """libyaml's composer; every untagged plain scalar gets the tag `!plain`."""

    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012


def load_yaml(text: str) -> Any:
    """The one document of `text` as dicts with string keys, lists and scalars.

    An empty document is None. Raises YamlError.
    """
    composer = None
    try:
        composer = _Composer(text)
        node = composer.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(problem, line, column) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise YamlError(str(error.reason), line, column) from None
    finally:
        if composer is not None:
            composer.dispose()
    return None if node is None else _Builder().build(node)


def core_scalar(text: str) -> Any:
    """The value of a plain scalar by the core schema."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if _INT.fullmatch(text):
        digits = text.lstrip("+-")
        base = _BASES.get(digits[:2], 10)
        if base == 10 and len(digits) > 4_000:
            return text
        value = int(digits if base == 10 else digits[2:], base)
        return -value if text[0] == "-" else value
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    special = _SPECIAL_FLOAT.fullmatch(text)
    if special is None:
        return text
    if special[2]:
        return -math.inf if special[1] == "-" else math.inf
    return math.nan


def dump_yaml(value: Any) -> str:
    """`value` as block YAML: strings in double quotes, no anchors, wrapped at 120 columns."""
    text: str = yaml.serialize(_node(value), Dumper=yaml.CSafeDumper, width=120, allow_unicode=True)
    return text


class _Builder:
    """Builds the values of one node graph; holds what is bounded over the whole of it."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._open: set[int] = set()
        self._aliased = 0

    def build(self, node: yaml.Node) -> Any:
        """The value of `node`."""
        key = id(node)
        if key in self._open:
            raise _error("an alias contains itself", node)
        # Below a repeated node everything is repeated too, so expansions are counted in full.
        if key in self._seen:
            self._aliased += 1
            if self._aliased > MAX_ALIASED_NODES:
                raise _error("the aliases expand to too many nodes", node)
        self._seen.add(key)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if len(self._open) == MAX_DEPTH:
            raise _error("nested too deep", node)
        self._open.add(key)
        try:
            return self._mapping(node) if isinstance(node, yaml.MappingNode) else self._list(node)
        finally:
            self._open.discard(key)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        if node.tag != f"{_CORE}map":
            raise _error(f"the tag {node.tag} is not allowed here", node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _error("a list or mapping cannot be a key", key_node)
            key = _key_text(key_node)
            if key in mapping:
                raise _error(f"the key {key!r} stands twice in one mapping", key_node)
            mapping[key] = self.build(value_node)
        return mapping

    def _list(self, node: yaml.Node) -> list[Any]:
        if node.tag != f"{_CORE}seq":
            raise _error(f"the tag {node.tag} is not allowed here", node)
        return [self.build(item) for item in node.value]


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if node.tag == _PLAIN:
        return core_scalar(text)
    kind = node.tag.removeprefix(_CORE)
    if kind == "str":
        return text
    value = core_scalar(text)
    fits = {
        "null": value is None,
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
    }.get(kind)
    if fits is None:
        raise _error(f"the tag {node.tag} is not allowed here", node)
    if not fits:
        raise _error(f"{text!r} is no {kind}", node)
    return float(value) if kind == "float" else value


def _key_text(node: yaml.ScalarNode) -> str:
    value = _scalar(node)
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(problem: str, node: yaml.Node) -> YamlError:
    return YamlError(problem, node.start_mark.line + 1, node.start_mark.column + 1)


def _node(value: Any) -> yaml.Node:
    if isinstance(value, dict):
        pairs = [(_key_node(key), _node(item)) for key, item in value.items()]
        return yaml.MappingNode(f"{_CORE}map", pairs, flow_style=not pairs)
    if isinstance(value, list):
        items = [_node(item) for item in value]
        return yaml.SequenceNode(f"{_CORE}seq", items, flow_style=not items)
    if isinstance(value, str):
        return yaml.ScalarNode(f"{_CORE}str", value, style='"')
    if value is None:
        return yaml.ScalarNode(f"{_CORE}null", "null")
    if isinstance(value, bool):
        return yaml.ScalarNode(f"{_CORE}bool", str(value).lower())
    if isinstance(value, int):
        return yaml.ScalarNode(f"{_CORE}int", str(value))
    if isinstance(value, float):
        return yaml.ScalarNode(f"{_CORE}float", _float_text(value))
    raise TypeError(f"{type(value).__name__} has no YAML form")


_PLAIN_KEY = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*", re.ASCII)
_KEYS_OF_YAML_1_1 = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def _key_node(key: str) -> yaml.ScalarNode:
    plain = _PLAIN_KEY.fullmatch(key) and key not in _KEYS_OF_YAML_1_1
    return yaml.ScalarNode(f"{_CORE}str", key, style=None if plain else '"')


def _float_text(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)
