"""Values that no encoding has are named, wherever in the arguments they are."""

from __future__ import annotations

from typing import Any

import pytest

from maadd.protocol.encodable import check_encodable
from maadd.protocol.errors import MaadError


def refused_paths(arguments: Any) -> list[str]:
    with pytest.raises(MaadError) as caught:
        check_encodable("maad_get", arguments)
    assert caught.value.code == "INVALID_ARGS"
    assert caught.value.details is not None
    assert caught.value.message.encode()
    return [issue["path"] for issue in caught.value.details["issues"]]


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"docId": "\ud800"}, ["docId"]),
        ({"docId": "a", "fields": {"x": ["ok", "\udcff"]}}, ["fields.x[1]"]),
        ({"\udcff": 1}, ["?"]),
        ({"a": 2**64, "b": -(2**63) - 1, "c": True}, ["a", "b"]),
        ({"b": "\ud800", "a": ["\ud800", {"c": 10**30}]}, ["b", "a[0]", "a[1].c"]),
        ("\ud800", [""]),
        ({"a": ["\ud800"] * 50}, [f"a[{index}]" for index in range(20)]),
    ],
)
def test_every_such_value_is_named(arguments: Any, paths: list[str]) -> None:
    assert refused_paths(arguments) == paths


@pytest.mark.parametrize(
    "arguments", [None, {}, {"a": "😀", "b": [2**64 - 1, -(2**63), 1.5, None]}]
)
def test_all_else_passes(arguments: Any) -> None:
    check_encodable("maad_get", arguments)
