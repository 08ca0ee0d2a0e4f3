"""Whether arguments can travel at all: as MessagePack to a worker, as UTF-8 to a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from maadd.protocol.errors import MaadError

_MOST_ISSUES = 20
_MAX_ECHO = 100
_HALF = "a text holds half of a surrogate pair, which is no character; send valid Unicode"
_TOO_LARGE = "integers beyond 64 bits cannot be sent; send such a number as text"


def check_encodable(tool: str, arguments: object, *, as_text: bool = False) -> None:
    """INVALID_ARGS that names each value which no encoding has; a good call costs one encoding.

    Arguments that travel `as_text` may hold integers of any length.
    """
    try:
        (msgspec.json.encode if as_text else msgspec.msgpack.encode)(arguments)
    except (OverflowError, UnicodeEncodeError):
        issues = [
            {"path": path, "message": message}
            for path, message in itertools.islice(_faults(arguments, as_text), _MOST_ISSUES)
        ]
        texts = "; ".join(
            ": ".join(filter(None, (issue["path"], issue["message"]))) for issue in issues
        )
        raise MaadError(
            "INVALID_ARGS", f"{tool}: {texts}", {"tool": tool, "issues": issues}
        ) from None


def is_broken(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, as undecodable bytes of a command line do."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _faults(arguments: object, as_text: bool) -> Iterator[tuple[str, str]]:
    """Paths and faults, in the order of the arguments."""
    pending: list[tuple[str, object]] = [("", arguments)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str):
            if is_broken(value):
                yield path, _HALF
        elif isinstance(value, int):
            if not as_text and not -(2**63) <= value < 2**64:
                yield path, _TOO_LARGE
        elif isinstance(value, dict):
            inner = [(f"{path}.{_shown(name)}" if path else _shown(name), name) for name in value]
            for place, name in inner:
                if is_broken(name):
                    yield place, _HALF
            pending += [(place, value[name]) for place, name in reversed(inner)]
        elif isinstance(value, (list, tuple)):
            items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
            pending += reversed(items)


def _shown(name: str) -> str:
    return name[:_MAX_ECHO].encode("utf-8", "replace").decode()
