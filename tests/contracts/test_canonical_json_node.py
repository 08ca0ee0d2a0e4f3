"""Canonical JSON beside the `JSON.stringify` of Node; collected only where there is one."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from typing import Any

import pytest

from maadd.client import canonical_json
from maadd.protocol.strict_json import parse_json

_PROGRAM = r"""
const write = (v) => Array.isArray(v) ? '[' + v.map(write).join(',') + ']'
  : v !== null && typeof v === 'object'
    ? '{' + Object.keys(v).sort().map((k) => JSON.stringify(k) + ':' + write(v[k])).join(',') + '}'
    : JSON.stringify(v);
const ascii = (t) => t.replace(/[\u007f-\uffff]/g,
  (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
const lines = require('fs').readFileSync(0, 'latin1').split('\n');
process.stdout.write(lines.map((l) => ascii(write(JSON.parse(l)))).join('\n'));
"""


def _node(texts: list[str]) -> list[str]:
    """What Node makes of JSON texts in ASCII; the results are ASCII too."""
    done = subprocess.run(
        ["node", "-e", _PROGRAM],
        input="\n".join(texts),
        capture_output=True,
        text=True,
        encoding="ascii",
        check=True,
    )
    return done.stdout.split("\n")


def _ascii(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = struct.unpack(f">{len(units) // 2}H", units)
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)


@pytest.mark.parametrize("count", [15_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_random_doubles(count: int) -> None:
    rng = random.Random(5)
    texts = []
    while len(texts) < count:
        (number,) = struct.unpack(">d", rng.randbytes(8))
        if number == number and abs(number) != float("inf"):
            texts.append(repr(number))
    ours = [canonical_json(float(text)) for text in texts]
    assert _node(texts) == ours


def test_values_of_every_kind() -> None:
    rng = random.Random(7)

    def text() -> str:
        ranges = ((0, 0x7F), (0x80, 0xFFFF), (0xD800, 0xDFFF), (0x10000, 0x10FFFF))
        return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(0, 6)))

    def value(depth: int) -> Any:
        match rng.randint(0, 7 if depth < 4 else 4):
            case 0:
                return rng.choice([None, True, False])
            case 1:
                return rng.randint(-(2**70), 2**70)
            case 2:
                return rng.uniform(-1e25, 1e25)
            case 3 | 4:
                return text()
            case 5:
                return [value(depth + 1) for _ in range(rng.randint(0, 4))]
            case _:
                return {text(): value(depth + 1) for _ in range(rng.randint(0, 4))}

    # `__proto__` is a setter in what Node parses into, so its members are compared without it.
    texts = [json.dumps(value(0)) for _ in range(1_000)]
    assert _node(texts) == [_ascii(canonical_json(parse_json(one))) for one in texts]
