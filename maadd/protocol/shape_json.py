"""`shape-json-v1`: a lossless packing that writes the keys of equal objects once (spec 05 §9.5)."""

from __future__ import annotations

from typing import Any, NoReturn

from maadd.protocol.canonical_json import (
    DELIVERY,
    Limits,
    canonical_json,
    scalar_json,
    sorted_members,
    utf8_size,
    whole_characters,
)
from maadd.protocol.errors import MaadError
from maadd.protocol.strict_json import DuplicateMemberError, NotJsonError, parse_json

ENCODING = "shape-json-v1"
SHAPE_TABLE = Limits(nodes=263_168, depth=5, scalar_bytes=2_097_152)
_MEMBERS = {"encoding", "shapes", "value"}
_NULL_BYTES = 4

_Shape = tuple[tuple[str, ...], tuple[str, ...]]


def pack(value: Any) -> str:
    """The packed text of a value.

    Raises what `canonical_json` raises for a value beyond the delivery bounds.
    """
    return pack_canonical(canonical_json(value, DELIVERY))


def pack_canonical(text: str) -> str:
    """As `pack`, for a value whose canonical text is at hand."""
    packer = _Packer()
    packer.write(parse_json(text))
    shapes = ",".join(f"[{_keys(value)},{_keys(null)}]" for value, null in packer.shapes)
    return f'{{"encoding":"{ENCODING}","shapes":[{shapes}],"value":{"".join(packer.parts)}}}'


def unpack(text: str) -> Any:
    """The value of a packed text.

    RECEIPT_CONTENT_INVALID or RESPONSE_TOO_LARGE for a text that breaks a rule or would grow
    beyond the delivery bounds; the budget is charged before anything is built.
    """
    try:
        packed = parse_json(text, refuse_duplicates=True)
    except (NotJsonError, DuplicateMemberError) as error:
        raise _malformed(str(error)) from None
    if not isinstance(packed, dict) or set(packed) != _MEMBERS:
        _refuse("it must be an object of encoding, shapes and value")
    if packed["encoding"] != ENCODING:
        _refuse(f"its encoding is not {ENCODING}")
    canonical_json({"encoding": packed["encoding"], "shapes": packed["shapes"]}, SHAPE_TABLE)
    unpacker = _Unpacker(_read_shapes(packed["shapes"]))
    value = unpacker.read(packed["value"], 0)
    canonical_json(value, DELIVERY)
    return value


class _Packer:
    """Writes the nodes and numbers the shapes in the order they are first met."""

    __slots__ = ("parts", "shapes")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.shapes: dict[_Shape, int] = {}

    def write(self, value: Any) -> None:
        parts = self.parts
        if isinstance(value, list):
            parts.append("[0")
            for item in value:
                parts.append(",")
                self.write(item)
            parts.append("]")
        elif isinstance(value, dict):
            members = sorted_members(value)
            shape = (
                tuple(key for key, member in members if member is not None),
                tuple(key for key, member in members if member is None),
            )
            parts.append(f"[1,{self.shapes.setdefault(shape, len(self.shapes))}")
            for _, member in members:
                if member is not None:
                    parts.append(",")
                    self.write(member)
            parts.append("]")
        else:
            parts.append(scalar_json(value))


class _KnownShape:
    """A shape with what one object of it costs."""

    __slots__ = ("key_bytes", "nodes", "null_keys", "value_keys")

    def __init__(self, value_keys: list[str], null_keys: list[str]) -> None:
        self.value_keys = value_keys
        self.null_keys = null_keys
        self.nodes = len(value_keys) + 2 * len(null_keys)
        keys = value_keys + null_keys
        self.key_bytes = sum(utf8_size(scalar_json(key)) for key in keys)
        self.key_bytes += _NULL_BYTES * len(null_keys)


class _Unpacker:
    """Builds the value, counting what it grows to."""

    __slots__ = ("_bytes", "_nodes", "_shapes")

    def __init__(self, shapes: list[_KnownShape]) -> None:
        self._shapes = shapes
        self._nodes = 0
        self._bytes = 0

    def read(self, node: Any, depth: int) -> Any:
        if depth > DELIVERY.depth:
            _refuse("it is nested too deep")
        if not isinstance(node, list):
            if isinstance(node, dict):
                _refuse("a node is an object")
            self._charge(1, utf8_size(scalar_json(node)))
            return node
        tag = node[0] if node else None
        if _is_number(tag) and tag == 0:
            self._charge(1, 0)
            return [self.read(item, depth + 1) for item in node[1:]]
        if not (_is_number(tag) and tag == 1 and len(node) > 1):
            _refuse("a node starts with neither 0 nor 1")
        shape = self._shape(node[1])
        if len(node) != 2 + len(shape.value_keys):
            _refuse("an object has another number of values than its shape")
        self._charge(1 + shape.nodes, shape.key_bytes)
        if shape.nodes and depth + 1 > DELIVERY.depth:
            _refuse("it is nested too deep")
        result = {
            key: self.read(item, depth + 1)
            for key, item in zip(shape.value_keys, node[2:], strict=True)
        }
        result.update(dict.fromkeys(shape.null_keys))
        return result

    def _shape(self, index: Any) -> _KnownShape:
        if not (_is_number(index) and 0 <= index < len(self._shapes) and index == int(index)):
            _refuse("an object names a shape that there is not")
        return self._shapes[int(index)]

    def _charge(self, nodes: int, scalar_bytes: int) -> None:
        self._nodes += nodes
        self._bytes += scalar_bytes
        if self._nodes > DELIVERY.nodes:
            _refuse(f"it holds more than {DELIVERY.nodes} values and keys")
        if self._bytes > DELIVERY.scalar_bytes:
            raise MaadError(
                "RESPONSE_TOO_LARGE",
                f"its texts and numbers take more than {DELIVERY.scalar_bytes} bytes",
                {"capBytes": DELIVERY.scalar_bytes},
            )


def _read_shapes(shapes: Any) -> list[_KnownShape]:
    if not isinstance(shapes, list):
        _refuse("shapes is no list")
    return [_read_shape(shape) for shape in shapes]


def _read_shape(shape: Any) -> _KnownShape:
    if not (isinstance(shape, list) and len(shape) == 2):
        _refuse("a shape is not a pair of lists")
    for keys in shape:
        if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
            _refuse("a shape holds something else than names")
    value_keys, null_keys = ([whole_characters(key) for key in keys] for keys in shape)
    if len({*value_keys, *null_keys}) != len(value_keys) + len(null_keys):
        _refuse("a shape names a member twice")
    return _KnownShape(value_keys, null_keys)


def _keys(keys: tuple[str, ...]) -> str:
    return f"[{','.join(map(scalar_json, keys))}]"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refuse(problem: str) -> NoReturn:
    raise _malformed(problem)


def _malformed(problem: str) -> MaadError:
    return MaadError(
        "RECEIPT_CONTENT_INVALID", f"this is no {ENCODING} text: {problem}", {"cause": "packing"}
    )
