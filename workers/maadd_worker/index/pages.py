"""Pages of a scope in a given order, with the total (spec 02 §4.2).

Three ways lead to the same page. *Walking* reads the sort index in order, tests each record
against the scope and stops at the end of the page: best when many records match. When few do,
all of them are *listed* in order once and kept until a record of the type changes. *Gathering*
lists the records of the most selective filter and sorts them, for what no index holds in order.
The total, kept in the same way, decides; where each filter matches many records, columns in
memory tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from maadd_worker.index.counters import TypeState, read_type_state
from maadd_worker.index.cursors import decode_cursor, encode_cursor, scope_digest
from maadd_worker.index.known_texts import with_known_texts
from maadd_worker.index.layout import ALONE
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.scope import ONE_OF, PRESENT, Scope, candidates, record_tests
from maadd_worker.index.selections import Selection
from maadd_worker.index.sorting import Sort

_SAMPLE = 1000
"""Index entries looked at to compare the selectivity of filters."""

_FEW = 300
"""So many records at most are tested one by one, by their own rows."""

_SPARSE = 25
"""With less than one match in so many records no walk is short: matches are listed at once."""

_LISTED = 1000
"""So many matches at most are kept as a list."""

_SHORT_WALK = 500
"""A walk of so many expected steps is cheaper than making a list."""

Position = tuple[Any, ...]
"""Sort values of a record, then its id."""


class PageRow(msgspec.Struct, frozen=True):
    """One record of a page."""

    doc_id: str
    doc_type: str
    file_path: str


class Page(msgspec.Struct, frozen=True):
    """`total` counts all matches; `next_cursor` continues behind the last row, None at the end."""

    total: int
    rows: tuple[PageRow, ...]
    next_cursor: str | None


class _Matches(msgspec.Struct, frozen=True):
    """How many records match, the place of the filter that narrows best (None: unknown), and
    whether it alone leaves few. `doc_ids` or `selection` are all matches, where they are known."""

    total: int
    driver: int | None
    few: bool = False
    doc_ids: tuple[str, ...] | None = None
    selection: Selection | None = None

    def ids(self) -> Sequence[str] | None:
        """The ids of all matches, in no particular order, where they are known."""
        return self.doc_ids if self.selection is None else self.selection.ids()

    @property
    def cost(self) -> int:
        """What it takes to remember this; a short tuple has as many bytes as 512 bits."""
        bits = 0 if self.selection is None else self.selection.bits.bit_length()
        return 1 + len(self.doc_ids or ()) + bits // 512


def count_matches(reader: IndexReader, scope: Scope, fingerprint: str) -> int:
    """How many live records are in the scope; `fingerprint` is that of its type."""
    with reader.snapshot():
        state = _state(reader, scope, fingerprint)
        scope = with_known_texts(reader, scope, state.documents)
        return _matches(reader, scope, state, fingerprint).total


def list_matches(
    reader: IndexReader, scope: Scope, fingerprint: str, most: int
) -> list[str] | None:
    """The ids of the live records in the scope, in no particular order; None for more than
    `most`. `fingerprint` is that of the scope's type."""
    with reader.snapshot():
        state = read_type_state(reader.connection, scope.doc_type, fingerprint)
        scope = with_known_texts(reader, scope, state.documents)
        matches = _matches(reader, scope, state, fingerprint)
        if matches.total > most:
            return None
        if (known_ids := matches.ids()) is not None:
            return list(known_ids)
        key = ("ids", scope.sql, scope.params)
        known = reader.recall(key, state.generation)
        if isinstance(known, list):
            return known
        if matches.driver is None:
            sql = f"SELECT d.doc_id FROM documents d WHERE {scope.sql}"
            found = [doc_id for (doc_id,) in reader.connection.execute(sql, scope.params)]
        else:
            found = _ids(reader, scope, matches.driver, few=matches.few)
        if len(found) <= _LISTED:
            reader.remember(key, state.generation, found, cost=1 + len(found))
    return found


def query_page(
    reader: IndexReader,
    scope: Scope,
    sort: Sort,
    plans: TypePlans,
    *,
    limit: int,
    offset: int = 0,
    cursor: str | None = None,
) -> Page:
    """The records of the scope from `offset`, or behind `cursor`, at most `limit` of them.

    Total and rows are of one snapshot. Raises INVALID_FIELDS for a cursor of another query.
    """
    digest = scope_digest(scope)
    after = None if cursor is None else decode_cursor(cursor, sort, digest)
    with reader.snapshot():
        fingerprint = plans.fingerprint(scope.doc_type)
        state = _state(reader, scope, fingerprint)
        key = (scope.sql, scope.params, sort, limit, offset, after)
        known = reader.recall(key, state.generation)
        if isinstance(known, Page):
            return known
        scope = with_known_texts(reader, scope, state.documents)
        matches = _matches(reader, scope, state, fingerprint)
        found: list[Position] = []
        if matches.total > offset:
            found = _positions(reader, scope, sort, state, matches, after, limit, offset)
        rows = _rows(reader, [position[-1] for position in found[:limit]])
        more = encode_cursor(sort, digest, found[limit - 1]) if len(found) > limit else None
        page = Page(matches.total, rows, more)
        reader.remember(key, state.generation, page, cost=1 + 3 * len(rows))
    return page


def _positions(
    reader: IndexReader,
    scope: Scope,
    sort: Sort,
    state: TypeState,
    matches: _Matches,
    after: Position | None,
    limit: int,
    offset: int,
) -> list[Position]:
    """The positions of a page and the one behind it, found in the cheapest way."""
    # Every record has its row in a sort index only under the schema of today.
    in_order = scope.doc_type is not None and (
        not sort.is_field or state.current == state.documents
    )
    on_path = _condition_on_path(reader, scope, sort) if in_order else None
    steps = float(offset + limit + 1)
    if on_path is None or len(scope.conditions) > 1:
        steps *= state.documents / matches.total
    if in_order and (not scope.conditions or steps <= _SHORT_WALK):
        return _page(reader, *_walk(scope, sort, on_path, after), limit, offset)
    if matches.total <= _LISTED:
        listed = _listed(reader, scope, sort, matches, state.generation)
        start = offset if after is None else offset + _place_behind(listed, sort, after)
        return listed[start : start + limit + 1]
    if in_order:
        return _page(reader, *_walk(scope, sort, on_path, after), limit, offset)
    return _page(reader, *_gather(scope, sort, matches, after), limit, offset)


def _state(reader: IndexReader, scope: Scope, fingerprint: str) -> TypeState:
    """What answers about the scope depend on: behind refs, on every record."""
    state = read_type_state(reader.connection, scope.doc_type, fingerprint)
    if not scope.reaches_out:
        return state
    everything = read_type_state(reader.connection, None, "")
    return msgspec.structs.replace(state, generation=everything.generation)


def _matches(reader: IndexReader, scope: Scope, state: TypeState, fingerprint: str) -> _Matches:
    if not scope.conditions:
        return _Matches(state.documents, None)
    key = (scope.sql, scope.params)
    known = reader.recall(key, state.generation)
    if isinstance(known, _Matches):
        return known
    selections, connection = reader.selections, reader.connection
    if len(scope.conditions) > 1:
        selection = selections.select(connection, scope, state, fingerprint, ready=True)
        if selection is not None:
            found = _Matches(selection.total, None, selection=selection)
            reader.remember(key, state.generation, found, cost=found.cost)
            return found
    driver, rows = _most_selective(reader, scope)
    few, selection = rows <= _FEW, None
    if not few:
        selection = selections.select(connection, scope, state, fingerprint)
    if selection is None and rows < _SAMPLE and rows * _SPARSE <= state.documents:
        doc_ids = tuple(_ids(reader, scope, driver, few=few))
        found = _Matches(len(doc_ids), driver, few, doc_ids)
    elif selection is None:
        found = _Matches(_count(reader, scope, driver, few=few), driver, few)
    elif selection.total <= _LISTED:
        found = _Matches(selection.total, driver, selection=selection)
    else:
        found = _Matches(selection.total, driver)
    reader.remember(key, state.generation, found, cost=found.cost)
    return found


def _most_selective(reader: IndexReader, scope: Scope) -> tuple[int, int]:
    """The place of the condition that leaves the fewest rows, and how many, up to `_SAMPLE`."""
    order = sorted(range(len(scope.conditions)), key=lambda place: scope.conditions[place].access)
    best, fewest = order[0], _SAMPLE
    if len(order) == 1 and scope.conditions[best].access > ONE_OF:
        return best, fewest
    for place in order:
        condition = scope.conditions[place]
        if condition.access >= PRESENT:
            break
        sql, params = candidates(condition, scope.doc_type)
        number = reader.connection.execute(
            f"SELECT count(*) FROM (SELECT 1 {sql} LIMIT {_SAMPLE})", params
        ).get
        if number < fewest:
            best, fewest = place, number
    return best, fewest


def _count(reader: IndexReader, scope: Scope, driver: int, *, few: bool) -> int:
    """Count over the rows of one condition; child rows exist for live records only."""
    sql, params = candidates(scope.conditions[driver], scope.doc_type)
    tests, values = record_tests(
        scope.conditions, "o.doc_id", scope.doc_type, known=driver, few=few
    )
    total = reader.connection.execute(
        f"""
        SELECT count(*) FILTER (WHERE o.extreme & {ALONE})
               + count(DISTINCT iif(o.extreme & {ALONE}, NULL, o.doc_id))
        FROM (SELECT v.doc_id, v.extreme {sql}) o WHERE 1{tests}
        """,
        (*params, *values),
    ).get
    return int(total)


def _ids(reader: IndexReader, scope: Scope, driver: int, *, few: bool) -> list[str]:
    """The ids of all records over the rows of one condition, each once."""
    listed, params = candidates(scope.conditions[driver], scope.doc_type)
    tests, values = record_tests(
        scope.conditions, "o.doc_id", scope.doc_type, known=driver, few=few
    )
    sql = f"SELECT o.doc_id FROM (SELECT DISTINCT v.doc_id {listed}) o WHERE 1{tests}"
    return [doc_id for (doc_id,) in reader.connection.execute(sql, (*params, *values))]


def _condition_on_path(reader: IndexReader, scope: Scope, sort: Sort) -> int | None:
    """The place of a condition on the sort field that the walked rows can answer themselves.

    That is so when no record of the type has several values in the field.
    """
    for place, condition in enumerate(scope.conditions):
        if sort.is_field and condition.field == sort.key:
            several = reader.connection.execute(_HAS_LISTS, (scope.doc_type, sort.key))
            return place if several.fetchone() is None else None
    return None


_HAS_LISTS = f"""
SELECT 1 FROM field_values INDEXED BY field_values_of_lists
WHERE doc_type = ? AND field_name = ? AND extreme < {ALONE} LIMIT 1
"""


def _walk(
    scope: Scope, sort: Sort, on_path: int | None, after: Position | None
) -> tuple[str, list[Any]]:
    """The scope of one type in the order of the sort's index."""
    columns = [f"o.{column}" for column in (*sort.key_columns, "doc_id")]
    tests, values = record_tests(scope.conditions, "o.doc_id", scope.doc_type, known=on_path)
    behind, bound = _behind(sort, columns, after)
    names, order = ", ".join(columns), _order(sort, columns)
    if not sort.is_field:
        sql = (
            f"SELECT {names} FROM documents o INDEXED BY {sort.index} "
            f"WHERE o.deleted = 0 AND o.doc_type = ?{tests}{behind} ORDER BY {order}"
        )
        return sql, [scope.doc_type, *values, *bound]
    own, own_params = "", list[Any]()
    if on_path is not None:
        test, own_params = scope.conditions[on_path].passing("o")
        own = f" AND {test}"
    # The partial index of numbers serves only statements that repeat its condition.
    partial = " AND o.numeric_rank IS NOT NULL" if sort.numeric else ""
    sql = (
        f"SELECT {names} FROM field_values o INDEXED BY {sort.index} "
        f"WHERE o.doc_type = ? AND o.field_name = ? AND o.extreme & {sort.extreme}"
        f"{partial}{own}{tests}{behind} ORDER BY {order}"
    )
    return sql, [scope.doc_type, sort.key, *own_params, *values, *bound]


def _gather(
    scope: Scope, sort: Sort, matches: _Matches, after: Position | None
) -> tuple[str, list[Any]]:
    """The records that the driving condition lists, tested and sorted."""
    source, where = "documents d", "d.deleted = 0"
    columns = [f"d.{column}" for column in sort.key_columns]
    source_params: list[Any] = []
    params: list[Any] = []
    driver = matches.driver
    listed, values = "", list[Any]()
    doc_ids = matches.ids()
    if doc_ids is not None:
        listed, values = "FROM (SELECT value AS doc_id FROM json_each(?)) v", [_json(doc_ids)]
    elif driver is not None:
        listed, values = candidates(scope.conditions[driver], scope.doc_type)
    if listed and (sort.is_field or not columns):
        # Rows of values exist for live records of the type only.
        source, where = f"(SELECT DISTINCT v.doc_id {listed}) d", "1"
        source_params.extend(values)
    else:
        if scope.doc_type is not None:
            where += " AND d.doc_type = ?"
            params.append(scope.doc_type)
        if listed:
            where += f" AND d.doc_id IN (SELECT v.doc_id {listed})"
            params.extend(values)
    if sort.is_field:
        source += (
            " LEFT JOIN field_values s ON s.doc_id = d.doc_id AND s.field_name = ? "
            f"AND s.extreme & {sort.extreme}"
        )
        source_params.append(sort.key)
        # A record that was indexed under another schema may have no row that fits.
        rank, value = sort.key_columns
        empty = "0.0" if sort.numeric else "''"
        columns = [f"ifnull(s.{rank}, 0)", f"ifnull(s.{value}, {empty})"]
    columns.append("d.doc_id")
    tests, tested = "", list[Any]()
    if doc_ids is None:
        tests, tested = record_tests(
            scope.conditions, "d.doc_id", scope.doc_type, known=driver, few=matches.few
        )
    behind, bound = _behind(sort, columns, after)
    sql = (
        f"SELECT {', '.join(columns)} FROM {source} "
        f"WHERE {where}{tests}{behind} ORDER BY {_order(sort, columns)}"
    )
    return sql, [*source_params, *params, *tested, *bound]


def _listed(
    reader: IndexReader, scope: Scope, sort: Sort, matches: _Matches, generation: int
) -> list[Position]:
    """All positions of a scope with few records, in order."""
    key = (scope.sql, scope.params, sort)
    known = reader.recall(key, generation)
    if isinstance(known, list):
        return known
    sql, params = _gather(scope, sort, matches, None)
    found = reader.connection.execute(sql, params).fetchall()
    reader.remember(key, generation, found, cost=1 + len(found))
    return found


def _page(
    reader: IndexReader, sql: str, params: Sequence[Any], limit: int, offset: int
) -> list[Position]:
    """The positions of one page, and one more to tell whether it is the last."""
    return reader.connection.execute(
        f"{sql} LIMIT ? OFFSET ?", (*params, limit + 1, offset)
    ).fetchall()


def _rows(reader: IndexReader, doc_ids: list[str]) -> tuple[PageRow, ...]:
    rows = reader.connection.execute(_ROWS, (_json(doc_ids),))
    return tuple(PageRow(*row) for row in rows)


def _json(doc_ids: Sequence[str]) -> str:
    return msgspec.json.encode(doc_ids).decode()


_ROWS = """
SELECT d.doc_id, d.doc_type, d.file_path
FROM json_each(?) i CROSS JOIN documents d ON d.doc_id = i.value ORDER BY i.id
"""


def _order(sort: Sort, columns: Sequence[str]) -> str:
    direction = " DESC" if sort.descending else ""
    return ", ".join(f"{column}{direction}" for column in columns)


def _behind(sort: Sort, columns: Sequence[str], after: Position | None) -> tuple[str, Position]:
    """The test for the rows behind a cursor."""
    if after is None:
        return "", ()
    sign = "<" if sort.descending else ">"
    return f" AND ({', '.join(columns)}) {sign} ({', '.join('?' * len(after))})", after


def _place_behind(listed: list[Position], sort: Sort, after: Position) -> int:
    for place, position in enumerate(listed):
        if (position < after) if sort.descending else (position > after):
            return place
    return len(listed)
