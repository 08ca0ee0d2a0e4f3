"""The reads of the main measurement: what each call asks.

Answers are remembered until a record changes, so that most questions come with a bound, a text
or a page of their own; a row that asks again says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

HOT_RECORDS = 500
_KINDS = ("pump", "valve", "seal", "bearing", "gauge", "filter", "housing", "cable", "sensor")
_STATUS = ("open", "closed", "planned", "void")


@dataclass(frozen=True)
class Read:
    """A row of the table; `arguments` are those of the call with that number."""

    name: str
    title: str
    tool: str
    arguments: Callable[[int], dict[str, Any]]


def reads(cursors: Sequence[str]) -> tuple[Read, ...]:
    """The rows in their order; `cursors` stand at many places of the project's changes."""

    def changes(number: int) -> dict[str, Any]:
        return {"cursor": cursors[number % len(cursors)], "limit": 20}

    return (
        Read("get_hot", "`maad_get` hot", "maad_get", _get),
        Read("get_cold", "`maad_get` cold", "maad_get", lambda n: {**_get(n), "depth": "cold"}),
        Read("query", "`maad_query`, 2 filters, 20 rows", "maad_query", _query),
        Read("search", "`maad_search` contains, another text each time", "maad_search", _search),
        Read("aggregate", "`maad_aggregate` by enum", "maad_aggregate", _aggregate),
        Read(
            "aggregate_filtered",
            "the same, another filter each time",
            "maad_aggregate",
            lambda n: {**_aggregate(n), "filters": {"score": {"op": "gte", "value": _bound(n)}}},
        ),
        Read("join", "`maad_join`, 10 rows, another filter each time", "maad_join", _join),
        Read("changes", "`maad_changes_since`, 20 rows", "maad_changes_since", changes),
        Read("summary", "`maad_summary`", "maad_summary", lambda _: {}),
    )


def _bound(number: int) -> float:
    """A score; no other call of a measurement has the same."""
    return number * 0.0007 % 90


def _get(number: int) -> dict[str, Any]:
    return {"docId": f"ins-{number % HOT_RECORDS:06d}"}


def _query(number: int) -> dict[str, Any]:
    return {
        "docType": "inspection",
        "filters": {
            "status": _STATUS[number % 3],
            "score": {"op": "gte", "value": number % 90},
        },
        "fields": ["title", "station", "status", "score", "done_on"],
        "sortBy": "done_on",
        "limit": 20,
    }


def _search(number: int) -> dict[str, Any]:
    """Titles such as "Pump valve at sta-00012", by a part of them."""
    kind = _KINDS[number % len(_KINDS)]
    return {"primitive": "entity", "query": f"{kind} at sta-{number // 9 % 1000:05d}", "limit": 20}


def _aggregate(_: int) -> dict[str, Any]:
    return {
        "docType": "inspection",
        "groupBy": "status",
        "metric": {"field": "score", "op": "avg"},
    }


def _join(number: int) -> dict[str, Any]:
    return {
        "docType": "inspection",
        "refs": ["station", "technician"],
        "fields": ["title", "status", "station", "technician"],
        "filters": {
            "status": _STATUS[number % len(_STATUS)],
            "score": {"op": "gte", "value": _bound(number)},
        },
        "limit": 10,
    }
