"""Parse rules of settings: which texts a variable accepts (spec 07 §1).

A rule turns a non-empty text into a value and raises ValueError for a text it does not
accept, with a message only where it knows more than `expected` says.
"""

from __future__ import annotations

import enum
import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from maadd.config.origin import canonical_origin
from maadd.protocol.messages import PROVIDER_GROUP
from maadd.protocol.roles import ROLE_NAMES, Role, parse_role
from maadd.protocol.suggestion import nearest

MAX_SAFE_INTEGER = 2**53 - 1

EXTERNAL_EDITS = ("index", "commit")
HISTORY_MODES = ("audit", "feed", "read", "batch", "snapshot")
"""The history modes a project or the environment may name (spec 03 §7)."""

_INTEGER = re.compile(r"-?[0-9]{1,16}", re.ASCII)
_LEADING_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,16})(?![0-9])", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_OCTAL = re.compile(r"(0o)?[0-7]{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """`parse(text)` gives the value or raises ValueError; `expected` describes the texts."""

    expected: str
    parse: Callable[[str], Any]


class OnBad(enum.Enum):
    """What a text does that its rule does not accept."""

    REFUSE_UNLESS_LENIENT = "refuse_unless_lenient"
    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Variable:
    """One row of the table of spec 07 §2.

    `readers`: F the front, W a worker, C a one-shot command. `flag` is the name of the
    `serve` flag with underscores, as command line parsers hand it over.
    """

    name: str
    rule: Rule
    readers: str
    flag: str | None = None
    on_bad: OnBad = OnBad.REFUSE_UNLESS_LENIENT


class TrustProxy(msgspec.Struct, frozen=True):
    """Whose `X-Forwarded-For` is believed: the nearest `hops`, or peers inside `networks`.

    The default trusts nobody. `networks` are CIDR blocks in canonical text (spec 04 §9.7).
    """

    hops: int = 0
    networks: tuple[str, ...] = ()


def _text(text: str) -> str:
    return text


def _present(_text: str) -> bool:
    return True


TEXT = Rule("a text", _text)
PRESENT = Rule("a text", _present)
"""Only whether the variable is set matters."""


def _is_one(text: str) -> bool:
    return text == "1"


def _is_one_or_true(text: str) -> bool:
    return text in ("1", "true")


FLAG_1 = Rule("1", _is_one)
FLAG_1_TRUE = Rule("1 or true", _is_one_or_true)


def _metrics_address(text: str) -> int | str:
    if text.startswith("/"):
        return text
    if _INTEGER.fullmatch(text) is None or not 1 <= int(text) <= 65_535:
        raise ValueError
    return int(text)


METRICS_ADDRESS = Rule("a port from 1 to 65535, or the absolute path of a socket", _metrics_address)
"""A port of 127.0.0.1, or a unix socket."""


def on_for(word: str) -> Rule:
    """On for exactly `word`, off for any other text."""
    return Rule(word, lambda text: text == word)


def off_for(word: str) -> Rule:
    """Off for exactly `word`, on for any other text."""
    return Rule(word, lambda text: text != word)


def integer(least: int | None, most: int = MAX_SAFE_INTEGER, *, clamp: int | None = None) -> Rule:
    """A whole decimal integer from `least` (None: any) to `most`; above `clamp` it is cut."""

    def parse(text: str) -> int:
        if _INTEGER.fullmatch(text) is None:
            raise ValueError
        value = int(text)
        if value > most or (least is not None and value < least):
            raise ValueError
        return value if clamp is None else min(value, clamp)

    if least is None:
        expected = "a whole number"
    elif most == MAX_SAFE_INTEGER:
        expected = f"a whole number of at least {least}"
    else:
        expected = f"a whole number from {least} to {most}"
    return Rule(expected, parse)


def _off_when_not_positive(text: str) -> int:
    value: int = integer(None).parse(text)
    return max(0, value)


INTERVAL_OR_OFF = Rule("a whole number; 0 or less is off", _off_when_not_positive)


def leading_integer(least: int) -> Rule:
    """The decimal integer at the start of the text, what follows it is ignored."""

    def parse(text: str) -> int:
        match = _LEADING_INTEGER.match(text)
        if match is None or not least <= int(match[1]) <= MAX_SAFE_INTEGER:
            raise ValueError
        return int(match[1])

    return Rule(f"a number of at least {least}", parse)


def _number(text: str) -> float:
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def positive_safe_integer(clamp: int) -> Rule:
    """A number in any decimal notation that is a positive safe integer; above `clamp` it is cut."""

    def parse(text: str) -> int:
        value = _number(text)
        if not value.is_integer() or not 1 <= value <= MAX_SAFE_INTEGER:
            raise ValueError
        return min(int(value), clamp)

    return Rule("a positive whole number", parse)


def _ratio(text: str) -> float:
    return min(1.0, max(0.0, _number(text)))


RATIO = Rule("a number; it is clamped to 0-1", _ratio)


def one_of(*words: str) -> Rule:
    """Exactly one of `words`."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Rule(f"one of {', '.join(words)}", parse)


def word_or(words: tuple[str, ...], other: str) -> Rule:
    """One of `words`; any other text means `other`."""
    return Rule(f"one of {', '.join(words)}", lambda text: text if text in words else other)


def _embedding_provider(text: str) -> str:
    name = text.lower()
    if name in ("openai", "local", "fake"):
        return name
    # Looks through all installed packages, which only this rare case is worth.
    from importlib.metadata import entry_points

    if not entry_points(group=PROVIDER_GROUP, name=name):
        raise ValueError
    return name


EMBEDDING_PROVIDER = Rule(
    "openai, local, fake, or a provider of an installed package", _embedding_provider
)


def _role(text: str) -> Role:
    role = parse_role(text)
    if role is None:
        raise ValueError
    return role


ROLE = Rule(f"one of {', '.join(ROLE_NAMES)}", _role)


def _mode_bits(text: str) -> int:
    if _OCTAL.fullmatch(text) is None:
        raise ValueError
    value = int(text, 8)
    if value > 0o777:
        raise ValueError
    return value


FILE_MODE = Rule("octal permission bits such as 660", _mode_bits)


def _base_url(text: str) -> str:
    return text.rstrip("/")


BASE_URL = Rule("a URL", _base_url)


def _trust_proxy(text: str) -> TrustProxy:
    if text in ("1", "true"):
        return TrustProxy(hops=1)
    blocks = [block.strip() for block in text.split(",")]
    return TrustProxy(
        networks=tuple(str(ipaddress.ip_network(block, strict=False)) for block in blocks)
    )


TRUST_PROXY = Rule("1, true or a comma list of CIDR blocks", _trust_proxy)


def _origins(text: str) -> frozenset[str]:
    if not text.strip():
        raise ValueError("an empty entry")
    return frozenset(_origin(entry.strip()) for entry in text.split(",") if entry.strip())


def _origin(text: str) -> str:
    origin = canonical_origin(text)
    if origin is None:
        raise ValueError(f"{text!r} is no origin")
    return origin


ORIGINS = Rule(
    "origins such as https://app.example.com, without patterns, credentials, path or query",
    _origins,
)


def _tool_names(text: str) -> frozenset[str]:
    from maadd.protocol.tools import TOOLS  # only whoever sets an allowlist pays for the table

    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("it names no tool")
    unknown = sorted(names - TOOLS.keys())
    if unknown:
        near = nearest(unknown[0], TOOLS)
        hint = f", did you mean {near}?" if near else ""
        raise ValueError(f"unknown tool {', '.join(unknown)}{hint}")
    return names


TOOL_NAMES = Rule("a comma list of tool names", _tool_names)
