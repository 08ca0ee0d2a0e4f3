"""The published values of the formats, and the generators that they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_VALUES = Path(__file__).parent / "values"

IDENTITY = "doc_id: n-1\ndoc_type: note\nschema: note.v1\n"


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], dict[str, Any]]:
    """Reads one file of values by its name."""
    return lambda name: json.loads((_VALUES / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def generate() -> Callable[[str, int], Any]:
    """Makes the value of a generator."""

    def nested(n: int, wrap: Callable[[Any], Any], innermost: Any) -> Any:
        value = innermost
        for _ in range(n - 1):
            value = wrap(value)
        return value

    def value_of(generator: str, n: int) -> Any:
        match generator:
            case "nested-arrays":
                return nested(n, lambda inner: [inner], [])
            case "nested-objects":
                return nested(n, lambda inner: {"a": inner}, {})
            case "zeros":
                return [0] * n
            case "null-members":
                return {f"k{i}": None for i in range(n)}
            case "ascii-string":
                return "x" * n
        raise ValueError(generator)

    return value_of


@pytest.fixture(scope="session")
def generate_document() -> Callable[[str], bytes]:
    """Makes the bytes of a document generator such as `list:5`."""

    def document_of(generator: str) -> bytes:
        kind, _, count = generator.partition(":")
        n = int(count)
        match kind:
            case "list":
                zeros = ",".join(["0"] * n)
                return f"---\n{IDENTITY}values: [{zeros}]\n---\n".encode()
            case "deep":
                return f"---\n{IDENTITY}v: {'[' * n}{']' * n}\n---\n".encode()
            case "pad":
                head = f"---\n{IDENTITY}title: t\n---\n"
                return (head + "x" * (n - len(head))).encode()
        raise ValueError(generator)

    return document_of
