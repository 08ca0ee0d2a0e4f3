"""One result of the doctor, and how groups of checks are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of

State = Literal["ok", "warning", "problem"]


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was looked at, what was found, and what to do about it."""

    name: str
    state: State
    text: str
    advice: str | None = None


class Group(msgspec.Struct, frozen=True):
    """The checks of one subject."""

    title: str
    checks: tuple[Check, ...]


def ok(name: str, text: str) -> Check:
    """Nothing to do."""
    return Check(name, "ok", text)


def warning(name: str, text: str, advice: str) -> Check:
    """It works, but not as well or not for long."""
    return Check(name, "warning", text, advice)


def problem(name: str, text: str, advice: str) -> Check:
    """Something does not work."""
    return Check(name, "problem", text, advice)


def of_errors(name: str, failure: MaadError | MaadErrors) -> Iterator[Check]:
    """A problem for each error; the message says what to do behind its first semicolon."""
    for error in errors_of(failure):
        text, _, advice = error.message.partition("; ")
        yield problem(name, f"{error.code}: {text}", advice or "correct it and look again")


def run_group(title: str, checks: Callable[[], Iterable[Check]]) -> Group:
    """The checks of a group; what stops one of them is a problem itself, and those before count."""
    found: list[Check] = []
    try:
        for one in checks():
            found.append(one)
    except (MaadError, MaadErrors) as failure:
        found.extend(of_errors(title, failure))
    except OSError as failure:
        where = f" {failure.filename}" if failure.filename else ""
        text = f"could not be looked at:{where} {failure.strerror or failure}"
        found.append(problem(title, text, "check the permissions and the disk"))
    return Group(title, tuple(found))


def some(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    every = list(names)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")
