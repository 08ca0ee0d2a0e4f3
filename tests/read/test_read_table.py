"""What all reading tools have in common (spec 02 §1, §8)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.tools import TOOLS, ToolKind
from maadd_worker.read.tools import READ_TOOLS, SHORT_READS, is_quick, is_short

CALLS = {
    "scan": {"path": "assets"},
    "summary": {},
    "describe": {},
    "schema": {"docType": "asset"},
    "get": {"docId": "ast-1", "depth": "full"},
    "query": {"docType": "asset", "fields": ["name"], "depth": "cold"},
    "search": {"primitive": "entity"},
    "related": {"docId": "ast-1"},
    "relationship_paths": {"startDocId": "ast-1", "direction": "both"},
    "aggregate": {"docType": "asset", "groupBy": "parent->name"},
    "join": {"docType": "asset", "refs": ["parent"], "refFields": {"parent": ["name"]}},
    "verify": {"mode": "count", "docType": "asset", "expectedCount": 3},
    "changes_since": {},
    "validate": {},
    "health": {},
}
NOT_OF_THE_INDEX = {"scan", "health"}


@pytest.fixture
def yard(project):
    for number in range(3):
        project.record("asset", f"ast-{number}", "text", name=f"N{number}", parent="ast-1")
    project.reindex()
    return project


def test_every_tool_that_only_reads_is_answered():
    reads = {
        name for name, spec in TOOLS.items()
        if spec.kind is ToolKind.READ and spec.available and not spec.write_action
    }  # fmt: skip
    assert reads <= READ_TOOLS.keys() | {
        "maad_document_receipt", "maad_create_contract", "maad_semantic_search",
    }  # fmt: skip
    assert READ_TOOLS.keys() <= TOOLS.keys()
    assert READ_TOOLS.keys() >= SHORT_READS


@pytest.mark.parametrize(
    ("tool", "arguments", "short"),
    [
        ("maad_get", {"docId": "x"}, True),
        ("maad_get", {"docId": "x", "depth": "cold"}, True),
        ("maad_get", {"docId": "x", "depth": "full"}, False),
        ("maad_query", {"docType": "x"}, True),
        ("maad_query", {"docType": "x", "depth": "cold"}, False),
        ("maad_history", {"docId": "x"}, False),
        ("maad_verify", {"mode": "integrity"}, False),
    ],
)
def test_only_what_is_quick_runs_between_messages(tool, arguments, short):
    assert is_short(tool, arguments) is short


@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        ("aggregate", {"docType": "asset", "groupBy": "site"}),
        ("search", {"primitive": "entity", "contains": "no"}),
    ],
)
def test_what_was_asked_before_is_quick_until_something_changes(yard, tool, asked):
    def quick() -> bool:
        return is_quick(yard.reader, yard.context().model, f"maad_{tool}", asked)

    assert not quick()
    yard.call(tool, **asked)
    assert quick()
    yard.record("asset", "ast-new", name="N")
    yard.reindex()
    assert not quick()
    yard.call(tool, **asked)
    assert quick()
    yard.reload_model()
    assert not quick()


@pytest.mark.parametrize("tool", CALLS)
def test_the_same_question_gets_the_same_bytes(yard, tool):
    answers = [yard.call(tool, **CALLS[tool]).raw for _ in range(2)]
    yard.reader = yard.index.reader()
    answers.append(yard.call(tool, **CALLS[tool]).raw)

    assert len(set(answers)) == 1


@pytest.mark.parametrize("tool", CALLS)
def test_an_index_that_is_behind_is_announced(yard, tool):
    yard.index_behind = True
    codes = yard.call(tool, **CALLS[tool]).codes
    assert ("INDEX_BEHIND" in codes) is (tool not in NOT_OF_THE_INDEX)


def test_health_tells_what_the_index_remembers(yard):
    writer = yard.index.writer()
    with writer.transaction():
        writer.meta_set("last_integrity_sweep_at", "2031-02-03T04:05:06.789Z")
        writer.meta_set("last_integrity_findings", '{"hash_drift":1}')
        writer.meta_set("last_backup_tag", "not json")

    data = yard.call("health").data

    assert data["initialized"] is True
    assert (data["totalDocuments"], data["indexExists"]) == (3, True)
    assert data["lastIntegritySweepAt"] == "2031-02-03T04:05:06.789Z"
    assert data["lastIntegrityFindings"] == {"hash_drift": 1}
    assert data["lastBackupTag"] is None


def test_more_ids_than_sqlite_binds_are_no_problem(yard):
    values = [f"N{number}" for number in range(40_000)]

    filters = {"name": {"op": "in", "value": values}}

    assert yard.call("query", docType="asset", filters=filters).data["total"] == 3
    grouped = yard.call("aggregate", docType="asset", groupBy="name", filters=filters)
    assert grouped.data["total"] == 3
    types = {"docTypes": ["asset", *values]}
    assert len(yard.call("changes_since", **types).data["changes"]) == 3


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("scan", {"path": "assets"}),
        ("verify", {"mode": "integrity"}),
        ("validate", {}),
        ("query", {"docType": "asset", "depth": "cold"}),
    ],
)
def test_a_read_ends_when_its_time_is_over(yard, tool, arguments):
    with yard.reader.deadline(-1.0), pytest.raises(MaadError, match="REQUEST_TIMEOUT"):
        yard.call(tool, **arguments)
