"""`maad_search`: extracted objects by kind and value (spec 02 §4.3)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.arguments import SearchArgs
from maadd.protocol.errors import MaadError
from maadd_worker.extract.primitives import PRIMITIVES
from maadd_worker.index.object_search import ObjectQuery, object_page
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.limits import clamp
from maadd_worker.read.objects import OBJECT_COLUMNS, object_views

_LIMIT_CAP = 500

_ONE = f"SELECT {OBJECT_COLUMNS} FROM objects WHERE doc_id = ? AND id = ?"


def search(context: ReadContext, args: SearchArgs) -> Outcome:
    """The objects of a primitive that match every given condition; INVALID_PRIMITIVE.

    In the order of records and, as ids count along the file, of lines. Empty texts count as not
    given.
    """
    if args.primitive not in PRIMITIVES:
        raise MaadError(
            "INVALID_PRIMITIVE",
            f'"{args.primitive}" is no primitive; use one of {", ".join(PRIMITIVES)}',
            {"provided": args.primitive, "valid": list(PRIMITIVES)},
        )
    wanted = ObjectQuery(
        args.primitive,
        args.subtype or None,
        args.value or None,
        args.query or args.contains or None,
        args.doc_id,
    )
    limit = clamp(args.limit, _LIMIT_CAP)
    page = object_page(context.reader, wanted, limit=limit.applied, offset=args.offset)
    rows = object_views(context.reader.connection.executemany(_ONE, page.keys))
    data: dict[str, Any] = {"total": page.total, "results": rows}
    return Outcome(data, meta=limit.report(data), rows=len(rows))
