"""The paths that hand moves of a record have to do with, for the commit that writes it."""

from __future__ import annotations

from collections.abc import Sequence

from maadd_worker.index.former_paths import former_paths, who_left
from maadd_worker.index.writer import IndexWriter


def moves_of(writer: IndexWriter, doc_id: str, paths: Sequence[str]) -> dict[str, str]:
    """Each path where the record, or one that took or left a place of these paths, stands or
    stood, with the id of the record that the index has there now, "" for none.

    Names may have been swapped, or passed on along a chain: all of its records are followed.
    """
    moves: dict[str, str] = {}
    followed = {doc_id}
    waiting = [doc_id]
    asked = list(paths)
    while waiting or asked:
        if waiting:
            record = waiting.pop()
            asked += former_paths(writer.connection, record)
            if (row := writer.find(record, include_deleted=True)) is not None:
                asked.append(row.file_path)
        fresh = [path for path in dict.fromkeys(asked) if path not in moves]
        asked = []
        found = [left.doc_id for left in who_left(writer.connection, fresh)] if fresh else []
        for path in fresh:
            owner = writer.find_by_path(path, include_deleted=True)
            moves[path] = "" if owner is None else owner.doc_id
            if owner is not None:
                found.append(owner.doc_id)
        for record in found:
            if record not in followed:
                followed.add(record)
                waiting.append(record)
    return moves
