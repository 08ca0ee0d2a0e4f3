"""The size of an MCP result is measured before it is built (spec 04 §1.1, 05 §8.2)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maadd.protocol.size import encode_result, result_size

ERROR_SUFFIX = b',"isError":true}'


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


REQUEST_ID = "00000000-0000-4000-8000-000000000000"

# Envelope text (as JSON stands on the wire) and bytes of the whole result object.
VECTORS = [
    (r'{"ok":true,"data":{"text":"abc"}}', 80),
    (r'{"ok":true,"data":{"text":"a\"b\\c"}}', 88),
    (r'{"ok":true,"data":{"text":"ab\\\"😀\n"}}', 94),
    (r'{"ok":true,"data":{"text":"\n\t\u0001\u001f"}}', 97),
    ('{"ok":true,"data":{"text":"é€😀\u2028\u007f"}}', 90),
    (r'{"ok":true,"data":{"chunk":"\ud83d"}}', 85),
    (f'{{"ok":true,"data":{{"n":1}},"_meta":{{"request_id":"{REQUEST_ID}"}}}}', 139),
    ('{"ok":true,"data":[1,2],"_source":"maad_create_contract"}', 104),
    ('{"ok":false,"errors":[{"code":"RESPONSE_TOO_LARGE","message":"too big"}]}', 124),
]


@pytest.mark.parametrize(("text", "size"), VECTORS)
def test_vectors(text: str, size: int) -> None:
    envelope = text.encode()
    result = encode_result(envelope)

    assert result_size(envelope) == size
    assert len(result) == size
    assert json.loads(result) == {"content": [{"type": "text", "text": text}]}
    assert result == compact({"content": [{"type": "text", "text": text}]})


def test_a_failure_is_marked() -> None:
    envelope = b'{"ok":false,"errors":[]}'
    result = encode_result(envelope, is_error=True)
    assert result.endswith(ERROR_SUFFIX)
    assert result == compact(
        {"content": [{"type": "text", "text": envelope.decode()}], "isError": True}
    )


def test_structured_content_repeats_the_envelope() -> None:
    envelope = b'{"ok":true,"data":{"a":1}}'
    assert json.loads(encode_result(envelope, structured=True)) == {
        "content": [{"type": "text", "text": envelope.decode()}],
        "structuredContent": {"ok": True, "data": {"a": 1}},
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values, st.booleans(), st.booleans())
def test_size_is_the_length_of_the_result(value: object, is_error: bool, structured: bool) -> None:
    envelope = compact({"ok": not is_error, "data": value})
    result = encode_result(envelope, is_error=is_error, structured=structured)

    assert result_size(envelope, is_error=is_error, structured=structured) == len(result)
    assert json.loads(result)["content"][0]["text"].encode() == envelope
