"""JSON-RPC messages as bytes: decoded once, answered without an intermediate object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from maadd.protocol.encodable import is_broken
from maadd.protocol.strict_json import parse_json
from maadd.protocol.tools import TOOLS

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
"""The code for HTTP requests that do not fit their session (spec 04 §9.2)."""
UNSUPPORTED_REVISION = -32022
"""MCP's code for a revision that a connection does not speak."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""The member of `params._meta` that only requests of the stateless revisions have."""

_LONGEST_METHOD = 200

MessageId = int | str

_EXACT_TOOLS = frozenset(name for name, spec in TOOLS.items() if spec.exact_arguments)


class CallParams(msgspec.Struct, frozen=True):
    """The params of `tools/call`; `arguments` is for the pipeline to judge."""

    name: str
    arguments: Any = None
    meta: Any = None
    source: bytes | None = None
    """The arguments as they were written, for the tools that judge their text."""


class Request(msgspec.Struct, frozen=True):
    """A message that wants an answer. `call` is set for `tools/call` with usable params."""

    id: MessageId
    method: str
    params: dict[str, Any] | None
    call: CallParams | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """`params._meta`; empty when there is none."""
        meta = self.call.meta if self.call else (self.params or {}).get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> MessageId | None:
        """What the client wants progress reported under."""
        token = self.meta.get("progressToken")
        if isinstance(token, bool) or not isinstance(token, (int, str)):
            return None
        return None if isinstance(token, str) and is_broken(token) else token

    @property
    def is_stateless(self) -> bool:
        """Whether it carries the envelope of the stateless revisions."""
        return VERSION_KEY in self.meta


class Notification(msgspec.Struct, frozen=True):
    """A message without an answer. A response counts as one: nothing of ours awaits it."""

    method: str | None
    params: dict[str, Any] | None


class _WireCall(msgspec.Struct, frozen=True):
    name: str
    arguments: Raw | UnsetType = UNSET
    meta: Any = msgspec.field(name="_meta", default=None)


class NotAMessage(ValueError):
    """The bytes are not JSON, or not JSON-RPC."""


class _Wire(msgspec.Struct, frozen=True):
    jsonrpc: Literal["2.0"]
    id: MessageId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _DecodedCall(msgspec.Struct, frozen=True):
    """As `_WireCall`, with a value in the place of JSON text."""

    name: str
    arguments: Any = None
    meta: Any = msgspec.field(name="_meta", default=None)


class _DecodedWire(msgspec.Struct, frozen=True):
    """As `_Wire`, with values in the place of JSON texts."""

    jsonrpc: Literal["2.0"]
    id: MessageId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Any = UNSET
    result: Any = UNSET
    error: Any = UNSET


_wire = msgspec.json.Decoder(_Wire)
_wire_batch = msgspec.json.Decoder(list[_Wire])
_call_params = msgspec.json.Decoder(_WireCall)
_arguments = msgspec.json.Decoder()
_params = msgspec.json.Decoder(dict[str, Any] | None)
_encode = msgspec.json.encode


def decode_message(text: bytes) -> Request | Notification:
    """The one message in `text`; NotAMessage when there is none.

    Texts that hold half of a surrogate pair are left in the params: whoever judges those can
    answer the request and name the member, which nobody can once it counts as unreadable.
    """
    try:
        return _message(_wire.decode(text))
    except (ValueError, RecursionError) as error:
        return _broken_message(_broken_json(text, error))


def decode_messages(text: bytes) -> list[Request | Notification]:
    """The message or the batch in `text`, never empty; NotAMessage when any of it is none."""
    if not text.lstrip().startswith(b"["):
        return [decode_message(text)]
    try:
        messages = [_message(wire) for wire in _wire_batch.decode(text)]
    except (ValueError, RecursionError) as error:
        messages = [_broken_message(one) for one in _broken_json(text, error)]
    if not messages:
        raise NotAMessage("the batch is empty")
    return messages


def request_params(request: Request) -> dict[str, Any] | None:
    """The params of a request in one piece, as the SDK wants them."""
    call = request.call
    if call is None:
        return request.params
    params = {"name": call.name, "arguments": call.arguments, "_meta": call.meta}
    return {name: value for name, value in params.items() if value is not None}


def response(request_id: MessageId, result: bytes) -> bytes:
    """The answer to a request; `result` is finished JSON."""
    return b"".join((b'{"jsonrpc":"2.0","id":', _encode(request_id), b',"result":', result, b"}"))


def error_response(
    request_id: MessageId | None, code: int, message: str, data: object = None
) -> bytes:
    """The refusal of a request, or with None of something that could not be read."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encode({"jsonrpc": "2.0", "error": error, "id": request_id})


def notification(method: str, params: object = None) -> bytes:
    """A message to the client that wants no answer."""
    body: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        body["params"] = params
    return _encode(body)


def _call(params: Raw) -> CallParams:
    call = _call_params.decode(params)
    if call.arguments is UNSET:
        return CallParams(call.name, None, call.meta)
    if call.name not in _EXACT_TOOLS:
        return CallParams(call.name, _arguments.decode(call.arguments), call.meta)
    source = bytes(call.arguments)
    # Whatever the numbers are: it is for the tool to say so.
    return CallParams(call.name, parse_json(source, exact_integers=True), call.meta, source)


def _decoded_call(params: Any) -> CallParams:
    call = msgspec.convert(params, _DecodedCall)
    return CallParams(call.name, call.arguments, call.meta)


def _message(
    wire: _Wire | _DecodedWire,
    as_call: Callable[[Any], CallParams] = _call,
    as_params: Callable[[Any], dict[str, Any] | None] = _params.decode,
) -> Request | Notification:
    if wire.method == "tools/call" and wire.id is not UNSET and wire.params is not UNSET:
        try:
            return Request(wire.id, wire.method, None, as_call(wire.params))
        except msgspec.ValidationError:
            pass  # Params of another shape are refused like those of any method.
    params = None if wire.params is UNSET else as_params(wire.params)
    if wire.method is UNSET:
        if wire.id is UNSET or (wire.result is UNSET and wire.error is UNSET):
            raise NotAMessage("a message needs a method, or an id and a result or error")
        return Notification(None, None)
    method = wire.method
    if len(method) > _LONGEST_METHOD:
        method = method[: _LONGEST_METHOD - 1] + "…"  # no method of anybody, and repeated as such
    if wire.id is UNSET:
        return Notification(method, params)
    return Request(wire.id, method, params)


def _broken_message(document: Any) -> Request | Notification:
    try:
        wire = msgspec.convert(document, _DecodedWire)
        if any(isinstance(text, str) and is_broken(text) for text in (wire.id, wire.method)):
            raise NotAMessage("id and method must be valid Unicode")
        return _message(
            wire,
            _decoded_call,
            lambda params: msgspec.convert(params, dict[str, Any] | None),
        )
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise NotAMessage(str(error)) from None


def _broken_json(text: bytes, fault: Exception) -> Any:
    """The value of a JSON text in which only halves of surrogate pairs are wrong.

    `fault` is why it cannot be decoded; raises NotAMessage with it for any other text.
    """
    if b"\\u" in text:
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
            if is_broken(json.dumps(document, ensure_ascii=False)):
                return document
        except (ValueError, RecursionError):
            pass  # The first fault tells more.
    raise NotAMessage(str(fault)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
