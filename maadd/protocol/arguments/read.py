"""Arguments of the discover and read tools (spec 02)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from maadd.protocol.arguments.base import (
    ConflictingArguments,
    Direction,
    Filters,
    Limit,
    Offset,
    RoutedArguments,
    SortOrder,
    require,
)
from maadd.protocol.git_dates import FORMS, git_date_fault

PRIMITIVES = (
    "entity",
    "date",
    "duration",
    "amount",
    "measure",
    "quantity",
    "percentage",
    "location",
    "identifier",
    "contact",
    "media",
)
"""The extraction primitives, in the order of spec 02 §3.3."""

MAX_GROUP_KEYS = 3
"""Fields an aggregation groups by at once."""

GitLimit = Annotated[int, Meta(ge=1, le=1000)]
GitDate = Annotated[str, Meta(description="ISO or any Git date")]
IntegrityCategory = Literal[
    "missing_in_index", "missing_on_disk", "hash_drift", "schema_drift", "broken_refs"
]


MetricOp = Literal["count", "sum", "avg", "min", "max", "countDistinct"]
BoundOp = Literal["eq", "neq", "gt", "gte", "lt", "lte"]


class ScanArgs(RoutedArguments, frozen=True):
    """`maad_scan` (§3.1)."""

    path: Annotated[str, Meta(description="relative to the project root")]


class SummaryArgs(RoutedArguments, frozen=True):
    """`maad_summary` (§3.2)."""


class DescribeArgs(RoutedArguments, frozen=True):
    """`maad_describe` (§3.3)."""


class SchemaArgs(RoutedArguments, frozen=True):
    """`maad_schema` (§3.4)."""

    doc_type: str


class GetArgs(RoutedArguments, frozen=True):
    """`maad_get` (§4.1). `block` counts at depth warm only."""

    doc_id: str
    depth: Literal["hot", "warm", "cold", "full"] = "hot"
    block: Annotated[str, Meta(description="block id or heading, depth warm")] | None = None


class QueryArgs(RoutedArguments, frozen=True):
    """`maad_query` (§4.2, §9). `response_mode` is spelled so on the wire too."""

    doc_type: str
    filters: Filters = None
    fields: Annotated[tuple[str, ...], Meta(description="indexed fields to return")] = ()
    sort_by: Annotated[str, Meta(description="indexed field or e.g. updatedAt")] | None = None
    sort_order: SortOrder = "desc"
    limit: Annotated[Limit, Meta(description="at most 500")] = 50
    offset: Offset = 0
    cursor: Annotated[str, Meta(description="nextCursor of the page before")] | None = None
    depth: Literal["hot", "cold", "full"] = "hot"
    depth_max_results: Annotated[Limit, Meta(description="rows hydrated, at most 100")] = 50
    include_file_path: bool = False
    response_mode: Annotated[
        Literal["rows", "columns"], Meta(description="columns: compact table")
    ] = msgspec.field(default="rows", name="response_mode")


class SearchArgs(RoutedArguments, frozen=True):
    """`maad_search` (§4.3). An unknown primitive has its own code, `INVALID_PRIMITIVE`."""

    primitive: Annotated[str, Meta(extra_json_schema={"enum": list(PRIMITIVES)})]
    subtype: Annotated[str, Meta(description="annotation type or field name")] | None = None
    query: Annotated[str, Meta(description="substring of the value")] | None = None
    contains: Annotated[str, Meta(description="same as query")] | None = None
    value: Annotated[str, Meta(description="exact value")] | None = None
    doc_id: str | None = None
    limit: Limit = 50
    offset: Offset = 0


class RelatedArgs(RoutedArguments, frozen=True):
    """`maad_related` (§4.4)."""

    doc_id: str
    direction: Direction = "both"


class RelationshipPathsArgs(RoutedArguments, frozen=True):
    """`maad_relationship_paths` (§4.5). An empty list of labels or kinds lets no edge pass;
    `field_labels` None means all."""

    start_doc_id: str
    target_doc_id: str | None = None
    direction: Direction = "outgoing"
    max_depth: Annotated[int, Meta(ge=1, le=4)] = 2
    max_nodes: Annotated[int, Meta(ge=1, le=100)] = 50
    max_edges: Annotated[int, Meta(ge=1, le=200)] = 100
    max_paths: Annotated[int, Meta(ge=1, le=50)] = 25
    field_labels: tuple[Annotated[str, Meta(min_length=1)], ...] | None = None
    extraction_kinds: tuple[Literal["ref", "mention"], ...] = ("ref",)


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measured field of an aggregation; `count` ignores the field."""

    field: str
    op: MetricOp


class Having(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bound on the metric of a group, without one on its count."""

    op: BoundOp
    value: int | float


class AggregateArgs(RoutedArguments, frozen=True):
    """`maad_aggregate` (§4.6, §9). `group_by` is a text or a list of up to three; `order` None
    means descending, for values ascending."""

    group_by: Annotated[
        Any,
        Meta(
            description="field or ref->field; dates also field::month (year, quarter, week, day)",
            extra_json_schema={
                "type": ["string", "array"],
                "items": {"type": "string"},
                "maxItems": MAX_GROUP_KEYS,
            },
        ),
    ]
    doc_type: str | None = None
    metric: Metric | None = None
    filters: Filters = None
    having: Having | None = None
    order_by: Literal["metric", "count", "value"] | None = None
    order: Literal["asc", "desc"] | None = None
    limit: Annotated[Limit, Meta(description="groups, at most 2000")] = 50

    def __post_init__(self) -> None:
        keys = [self.group_by] if isinstance(self.group_by, str) else self.group_by
        if not isinstance(keys, list | tuple) or not 1 <= len(keys) <= MAX_GROUP_KEYS:
            raise ConflictingArguments(
                ("groupBy", f"expected a text or a list of 1 to {MAX_GROUP_KEYS} texts")
            )
        wrong = [place for place, key in enumerate(keys) if not isinstance(key, str)]
        if wrong:
            raise ConflictingArguments(
                *((f"groupBy[{place}]", "expected a text") for place in wrong)
            )
        if self.order_by == "metric" and self.metric is None:
            raise ConflictingArguments(("orderBy", "'metric' needs a metric"))


class JoinArgs(RoutedArguments, frozen=True):
    """`maad_join` (§4.7)."""

    doc_type: str
    refs: Annotated[tuple[str, ...], Meta(description="ref fields to follow")]
    fields: tuple[str, ...] = ()
    ref_fields: (
        Annotated[dict[str, tuple[str, ...]], Meta(description="ref field: target fields")] | None
    ) = None
    filters: Filters = None
    sort_by: str | None = None
    sort_order: SortOrder = "desc"
    limit: Annotated[Limit, Meta(description="at most 500")] = 50
    offset: Offset = 0


class VerifyArgs(RoutedArguments, frozen=True):
    """`maad_verify` (§4.8). `expected` may be null, so its absence is UNSET; no categories
    means all."""

    mode: Literal["field", "count", "integrity"]
    doc_id: str | None = None
    field: str | None = None
    expected: Annotated[Any, Meta(description="value, mode field")] = UNSET
    doc_type: str | None = None
    expected_count: int | float | None = None
    filters: Filters = None
    categories: tuple[IntegrityCategory, ...] | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.mode == "field":
            require(
                "field",
                {
                    "docId": self.doc_id is not None,
                    "field": self.field is not None,
                    "expected": self.expected is not UNSET,
                },
            )
        elif self.mode == "count":
            require(
                "count",
                {
                    "docType": self.doc_type is not None,
                    "expectedCount": self.expected_count is not None,
                },
            )


class FindOrphansArgs(RoutedArguments, frozen=True):
    """`maad_find_orphans` (§4.9)."""

    doc_type: str | None = None
    doc_id: str | None = None
    filters: Filters = None


class ChangesSinceArgs(RoutedArguments, frozen=True):
    """`maad_changes_since` (§4.10). No types means all; an empty cursor means the beginning."""

    cursor: str | None = None
    limit: Annotated[Limit, Meta(description="at most 1000")] = 100
    doc_types: tuple[str, ...] = ()
    include_deletes: bool = False


class SemanticSearchArgs(RoutedArguments, frozen=True):
    """`maad_semantic_search` (§5)."""

    query: str
    mode: Literal["exact", "hybrid", "semantic"] = "exact"
    k: Annotated[Limit, Meta(description="hits, at most 500")] = 10
    filters: Filters = None
    doc_type: str | None = None
    snippet: bool = True


class HistoryArgs(RoutedArguments, frozen=True):
    """`maad_history` (§7.1)."""

    doc_id: str
    limit: GitLimit = 100
    since: GitDate | None = None

    def __post_init__(self) -> None:
        _require_dates(since=self.since)


class AuditArgs(RoutedArguments, frozen=True):
    """`maad_audit` (§7.2)."""

    since: GitDate | None = None
    until: GitDate | None = None
    doc_type: str | None = None
    limit: GitLimit = 200
    offset: Offset = 0

    def __post_init__(self) -> None:
        _require_dates(since=self.since, until=self.until)


def _require_dates(**given: str | None) -> None:
    """Refuse what Git would silently take for another time."""
    problems = [
        (name, f"{fault}; write for example {FORMS}")
        for name, text in given.items()
        if text is not None and (fault := git_date_fault(text)) is not None
    ]
    if problems:
        raise ConflictingArguments(*problems)
