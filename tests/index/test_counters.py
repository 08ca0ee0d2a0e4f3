"""Stored counts equal a count from scratch, whatever happened before (spec 02 §3.2)."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maadd_worker.index import short_texts
from maadd_worker.index.counters import (
    Counters,
    SubtypeCount,
    read_counters,
    read_inventory,
    read_type_state,
)

TASKS = ["tsk-a", "tsk-b", "tsk-c"]
MEMBERS = ["mbr-x", "mbr-y"]


def recount(connection) -> Counters:
    def number(sql: str) -> int:
        return connection.execute(sql).get

    live_edges = """
        SELECT count(*) FROM relationships r
        JOIN documents s ON s.doc_id = r.source_doc_id AND s.deleted = 0
        LEFT JOIN documents t ON t.doc_id = r.target_doc_id
        WHERE
    """
    live = "documents WHERE deleted = 0"
    return Counters(
        dict(
            connection.execute(
                f"SELECT doc_type, count(*) FROM {live} GROUP BY doc_type ORDER BY doc_type"
            )
        ),
        number(f"SELECT count(*) FROM {live}"),
        number("SELECT count(*) FROM objects JOIN documents USING (doc_id) WHERE deleted = 0"),
        number(live_edges + "t.doc_id IS NULL OR t.deleted = 0"),
        number(live_edges + "r.relation_type = 'ref' AND (t.doc_id IS NULL OR t.deleted = 1)"),
        number(f"SELECT count(*) FROM {live} AND valid = 0"),
        number(f"SELECT count(*) FROM {live} AND partial = 1"),
        number(f"SELECT max(indexed_at) FROM {live}"),
    )


def recount_inventory(connection) -> list[SubtypeCount]:
    rows = connection.execute("""
        SELECT primitive, subtype, count(*) AS n FROM objects
        JOIN documents USING (doc_id) WHERE deleted = 0
        GROUP BY primitive, subtype ORDER BY n DESC, primitive, subtype
    """)
    return [SubtypeCount(*row) for row in rows]


def recount_values(connection) -> list[tuple[str, str, str, int]]:
    return connection.execute("""
        SELECT primitive, subtype, value, count(*) FROM objects
        JOIN documents USING (doc_id) WHERE deleted = 0
        GROUP BY primitive, subtype, value ORDER BY primitive, subtype, value
    """).fetchall()


def short_texts_of(values) -> dict[tuple[str, str, str], int]:
    """Objects by text of one and two characters and kind."""
    found: Counter[tuple[str, str, str]] = Counter()
    for primitive, subtype, value, number in values:
        pieces = {value[at : at + length] for at in range(len(value)) for length in (1, 2)}
        for text in {piece.lower() for piece in pieces}:
            found[text, primitive, subtype] += number
    return {key: number for key, number in found.items() if number}


def counted_short_texts(connection) -> dict[tuple[str, str, str], int]:
    """What the table has, and the changes that are not in it yet."""
    total: Counter[tuple[str, str, str]] = Counter()
    for *key, number in connection.execute("SELECT * FROM short_texts"):
        total[tuple(key)] += number
    changes = connection.execute("SELECT primitive, subtype, value, objects FROM value_changes")
    for key, number in short_texts_of(changes).items():
        total[key] += number
    return {key: number for key, number in total.items() if number}


def check(project) -> None:
    connection = project.writer.connection
    assert read_counters(connection) == recount(connection)
    assert read_inventory(connection, 1000) == recount_inventory(connection)
    values = connection.execute(
        "SELECT primitive, subtype, value, objects FROM object_values ORDER BY 1, 2, 3"
    )
    assert values.fetchall() == recount_values(connection)
    assert counted_short_texts(connection) == short_texts_of(recount_values(connection))
    # Compares the text index with the values it is about; an error if they differ.
    connection.execute("INSERT INTO object_text (object_text, rank) VALUES ('integrity-check', 1)")
    for doc_type, plan_type in (("task", "task"), ("member", "member")):
        fingerprint = project.plans.fingerprint(plan_type)
        current = connection.execute(
            "SELECT count(*) FROM documents WHERE deleted = 0 AND doc_type = ? "
            "AND model_fingerprint = ?",
            (doc_type, fingerprint),
        ).get
        assert read_type_state(connection, doc_type, fingerprint).current == current


targets = st.sampled_from([*MEMBERS, *TASKS, "mbr-never"])
operations = st.one_of(
    st.tuples(
        st.just("task"),
        st.sampled_from(TASKS),
        targets,
        st.lists(targets, max_size=3),
        st.sampled_from(["todo", "wrong"]),
        st.integers(0, 22),
    ),
    st.tuples(st.just("member"), st.sampled_from([*MEMBERS, "tsk-a"])),
    st.tuples(st.just("remove"), st.sampled_from([*TASKS, *MEMBERS])),
    st.tuples(st.just("tombstone"), st.sampled_from([*TASKS, *MEMBERS])),
    st.tuples(st.just("unread"), st.sampled_from(TASKS)),
    st.tuples(st.just("undone"), st.sampled_from([*TASKS, *MEMBERS])),
    st.tuples(st.just("pass"), st.booleans()),
)


class Undo(Exception):
    pass


def perform(project, operation) -> None:
    kind, *arguments = operation
    writer = project.writer
    if kind == "task":
        doc_id, owner, reviewers, state, mentions = arguments
        body = "".join(f"[[person:{reviewers[0] if reviewers else 'Ana'}|p]]\n" * mentions)
        path = project.task(
            doc_id, owner=owner, reviewers=f"[{', '.join(reviewers)}]", state=state, body=body
        )
        index_where_it_is(project, doc_id, path)
    elif kind == "member":
        index_where_it_is(project, arguments[0], project.member(arguments[0]))
    elif kind == "pass":
        project.run(force=arguments[0])
    else:
        doc_id = arguments[0]
        row = writer.find(doc_id)
        with writer.transaction():
            if kind == "remove":
                writer.remove_document(doc_id)
            elif row is not None and kind == "tombstone":
                writer.tombstone(doc_id, f"people/_deleted_{doc_id}.md")
            elif row is not None and kind == "unread":
                writer.mark_unread(row)
            elif kind == "undone":
                with pytest.raises(Undo), writer.savepoint():
                    writer.remove_document(doc_id)
                    raise Undo


def index_where_it_is(project, doc_id: str, path: str) -> None:
    """Index the file; another file of the same id goes first, as in a move."""
    row = project.writer.find(doc_id)
    if row is not None and row.file_path != path:
        (project.path / row.file_path).unlink(missing_ok=True)
    project.index_file(path)


@settings(max_examples=40, deadline=None)
@given(st.lists(operations, min_size=1, max_size=12), st.sampled_from([0, 20, 1000]))
def test_counts_are_exact_after_any_history(make_project, history, changes_until_fold):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(short_texts, "_MOST_CHANGES", changes_until_fold)
        project = make_project(Path(folder))
        try:
            for operation in history:
                perform(project, operation)
                check(project)
        finally:
            project.index.close()
            project.root.close()


def test_a_ref_is_broken_until_its_target_appears_and_again_when_it_goes(project, reader):
    def counts() -> tuple[int, int]:
        found = reader.counters()
        return found.relationships, found.broken_refs

    project.index_file(project.task("tsk-a", owner="mbr-x", reviewers="[mbr-x, mbr-y]"))
    assert counts() == (3, 3)
    project.index_file(project.member("mbr-x"))
    assert counts() == (3, 1)
    with project.writer.transaction():
        project.writer.tombstone("mbr-x", "people/_deleted_mbr-x.md")
    assert counts() == (1, 3)
    with project.writer.transaction():
        project.writer.remove_document("mbr-x")
    assert counts() == (3, 3)


def test_mentions_are_edges_but_never_broken(project, reader):
    project.index_file(project.task("tsk-a", body="[[person:mbr-none|nobody]]\n"))
    assert (reader.counters().relationships, reader.counters().broken_refs) == (1, 0)


def test_generation_changes_with_every_change_of_the_type_alone(project, reader):
    def generations() -> tuple[int, int]:
        return tuple(
            read_type_state(reader.connection, name, "").generation for name in ("task", "member")
        )

    project.index_file(project.task("tsk-a"))
    first = generations()
    project.index_file(project.member("mbr-x"))
    second = generations()
    assert second[0] == first[0]
    assert second[1] > first[1]
    project.index_file("work/tasks/tsk-a.md", force=True)
    assert generations()[0] > second[0]


def test_last_indexed_at_is_the_newest_live_stamp(project, reader, clock):
    assert reader.counters().last_indexed_at is None
    project.index_file(project.task("tsk-a"))
    clock.advance()
    project.index_file(project.member("mbr-x"))
    assert reader.counters().last_indexed_at == "2031-02-03T04:05:07.789Z"
