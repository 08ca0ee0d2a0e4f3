"""What is known of records whose rows the index has lost (spec 01 §1)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class PastStamps(msgspec.Struct, frozen=True):
    """Version and times (ISO-8601 UTC with milliseconds) of a record as its file is now.

    `updated_at` is None when the file has changed since anybody noted a time. `whole` is False
    when the past reaches back to no beginning, so that the version says nothing.
    """

    version: int
    updated_at: str | None
    created_at: str
    whole: bool = True


PastLookup = Callable[[str, str], PastStamps | None]
"""From id and path of a record to what is known of it."""


def when_asked(load: Callable[[], PastLookup]) -> PastLookup:
    """A lookup that is made when it is asked for the first time."""
    made: list[PastLookup] = []

    def look_up(doc_id: str, path: str) -> PastStamps | None:
        if not made:
            made.append(load())
        return made[0](doc_id, path)

    return look_up
