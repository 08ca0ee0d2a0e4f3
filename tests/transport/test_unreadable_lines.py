"""Requests that cannot be read are answered under their id, where that can be read."""

from __future__ import annotations

import pytest

from maadd.transport.messages import NotAMessage, decode_messages
from maadd.transport.unreadable import readable_id, reason_of

DEEP = "[" * 100_000 + "]" * 100_000


def line(arguments: str, *, request_id: str = "7") -> bytes:
    return (
        f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call","params":'
        f'{{"name":"maad_get","arguments":{{"id":1,"docId":{arguments}}}}}}}'
    ).encode()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("1e400", "Number out of range"),
        ("-1e999", "Number out of range"),
        ("NaN", "invalid character"),
        ("Infinity", "invalid character"),
        (DEEP, "it is nested too deep"),
        (r'"\ud800"x', "truncated"),
        ('"cut off', "truncated"),
    ],
)
def test_a_request_that_cannot_be_read_has_an_id_and_a_reason(arguments: str, reason: str) -> None:
    text = line(arguments)
    with pytest.raises(NotAMessage) as caught:
        decode_messages(text)
    assert reason in reason_of(caught.value)
    assert readable_id(text) == 7
    assert readable_id(line(arguments, request_id=r'"a\"\u00e9"')) == 'a"é'


@pytest.mark.parametrize(
    "text",
    [
        b"no JSON",
        b'"id": 3, "method": "x"',
        b'[{"id": 3, "method": "x", "params": NaN}]',
        b'{"method": "id", "params": NaN, "x": "id"}',
        b'{"method": "x", "params": {"id": 3}, "y": NaN}',
        b'{"method": "x", "id": 3.5, "params": NaN}',
        b'{"method": "x", "id": {"id": 3}, "params": NaN}',
        b'{"method": "x", "id": true, "params": NaN}',
        # A cut may go through the id, and a response is no request.
        b'{"method": "x", "id": 12',
        b'{"method": "x", "id": "12',
        b'{"id": 3, "result": NaN}',
    ],
)
def test_what_is_no_request_has_none(text: bytes) -> None:
    with pytest.raises(NotAMessage):
        decode_messages(text)
    assert readable_id(text) is None
