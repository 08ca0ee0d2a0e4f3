"""What the argument Structs share: their configuration and the value types of several tools.

Python names are snake_case, wire names camelCase. Bounds and short descriptions stand in the
annotations, so that the advertised JSON Schema and the check of a call are one text. A value
typed `Any` is one that a later section judges with its own code or meaning (spec 04 §1.2): it
is advertised with a helpful schema and passed on as it came.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_SAFE_INTEGER = 2**53 - 1
"""Largest integer every JSON peer keeps exact; the implied upper bound of integer arguments."""

RoleName = Literal["reader", "writer", "admin"]
Direction = Literal["outgoing", "incoming", "both"]
SortOrder = Literal["asc", "desc"]
DeleteMode = Literal["soft", "hard"]

Limit = Annotated[int, Meta(ge=1, le=MAX_SAFE_INTEGER)]
Offset = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
Version = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]

IdempotencyKey = Annotated[str, Meta(max_length=128)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""A SHA-256 as 64 lower-case hex digits; the length bound refuses a trailing newline, which
`$` alone lets through."""

Filters = Annotated[Any, Meta(extra_json_schema={"type": "object"})]
"""Judged by the filter grammar (spec 02 §2.2); None means no filter."""

RecordFields = Annotated[Any, Meta(extra_json_schema={"type": "object"})]
"""Frontmatter members; also accepted as JSON text, anything else is `INVALID_FIELDS`
(spec 03 §3.1)."""

Confirm = Annotated[
    Any,
    Meta(
        description="true executes; anything else previews", extra_json_schema={"type": "boolean"}
    ),
]
"""Only the JSON value true confirms; nothing else is an error (spec 03 §5.2)."""

MaxRecords = Annotated[Any, Meta(extra_json_schema={"type": "integer"})]
"""Used when it is a finite number of at least 1, else the default applies (spec 03 §5.2)."""


class Arguments(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename="camel",
    omit_defaults=True,
):
    """The arguments of one tool call.

    `None` stands for an argument that was not given: JSON null is refused for every argument
    that is not typed `Any`. Encoding leaves out what equals its default, so that `{}` and an
    explicit default are the same text.
    """


class RoutedArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of a tool that a project's worker answers."""

    project: str | None = None


class ConflictingArguments(ValueError):
    """Arguments that are each well-formed but do not fit together.

    `problems` are pairs of argument path and message; raised by `__post_init__`.
    """

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in problems))
        self.problems = problems


def require(mode: str, given: dict[str, bool]) -> None:
    """Refuse a call whose `mode` needs arguments that are absent (`name -> is given`)."""
    problems = [
        (name, f"is required with mode {mode!r}") for name, present in given.items() if not present
    ]
    if problems:
        raise ConflictingArguments(*problems)
