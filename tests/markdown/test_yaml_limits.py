"""Hostile YAML ends in a positioned error, before anything large is built (spec 01 §4.2)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.document import parse_document
from maadd_worker.markdown.yaml_profile import load_yaml_document


def alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


HOSTILE = {
    "alias bomb": alias_bomb(),
    "flat list": "a: [" + "1," * 70_000 + "]",
    "many fields": "".join(f"f{n}:\n" for n in range(33_000)),
    "deep lists": "a: " + "[" * 100_000,
    "deep maps": "a: " + "{a: " * 60_000,
    "deep block lists": "a:\n" + "- " * 100_000,
    "deep lists after a surrogate escape": 'b: "\\uD83D\\uDE00"\na: ' + "[" * 100_000,
    "explicit keys": "? " * 100_000,
    "large block": "a: " + "x" * 50_000_000,
    "large block in bytes": "a: " + "é" * 140_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(10)
def test_hostile_blocks(name: str) -> None:
    with pytest.raises(MaadError) as caught:
        parse_document(f"---\nt: 1\n{HOSTILE[name]}\n---\n".encode(), "n.md")
    assert caught.value.code == "YAML_PROFILE_VIOLATION"
    assert caught.value.location is not None
    assert caught.value.location.line >= 2


def test_every_alias_use_is_charged_in_full() -> None:
    base = f"a: &a [{', '.join(['x'] * 999)}]\n"  # 1,000 nodes
    fits = base + "b: [" + ", ".join(["*a"] * 64) + "]"
    assert len(load_yaml_document(fits, "n.yaml")["b"]) == 64
    with pytest.raises(MaadError, match="65536"):
        load_yaml_document(base + "b: [" + ", ".join(["*a"] * 65) + "]", "n.yaml")


def test_a_block_just_within_the_limits_is_read() -> None:
    text = "a: [" + "1," * 65_000 + "]\nb: " + "x" * 100_000
    assert len(load_yaml_document(text, "n.yaml")["a"]) == 65_000


def test_numbers_of_any_length_end_quickly() -> None:
    text = "a: " + "9" * 100_000 + "\nb: 0x" + "f" * 100_000
    read = load_yaml_document(text, "n.yaml")
    assert isinstance(read["a"], str)
    assert isinstance(read["b"], str)
