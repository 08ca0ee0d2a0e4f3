"""maad_relationship_paths: the walk of spec 02 §4.5 on its conformance graph."""

from __future__ import annotations

import json

import pytest

from maadd.protocol.arguments import RelationshipPathsArgs
from maadd.protocol.errors import MaadError
from maadd_worker.read.relationship_paths import relationship_paths

REGISTRY = """\
types:
  node: {path: nodes, id_prefix: nd, schema: node.v1}
"""
SCHEMA = """\
type: node
required: [doc_id]
fields:
  alpha: {type: ref, target: node}
  beta: {type: ref, target: node}
  next: {type: ref, target: node}
  cycle: {type: ref, target: node}
  broken: {type: ref, target: node}
"""
NODES = {
    "a": {"beta": "nd-b", "alpha": "nd-c", "broken": "nd-missing"},
    "b": {"next": "nd-d"},
    "c": {"next": "nd-d"},
    "d": {"cycle": "nd-a"},
    "e": {"next": "nd-d"},
    "m": {},
}


@pytest.fixture
def graph(project):
    project.write("_registry/object_types.yaml", REGISTRY)
    project.write("_schema/node.v1.yaml", SCHEMA)
    project.reload_model()
    for name, refs in NODES.items():
        lines = "".join(f"{field}: {target}\n" for field, target in refs.items())
        body = "## Seen\n\n[[mark:nd-m|m]]\n" if name == "a" else ""
        project.write(
            f"nodes/nd-{name}.md", f"---\ndoc_id: nd-{name}\ndoc_type: node\n{lines}---\n{body}"
        )
    project.reindex()
    return project


def walk(project, start, **arguments):
    return project.call("relationship_paths", startDocId=f"nd-{start}", **arguments).data


def nodes(data):
    return " ".join(node["docId"].removeprefix("nd-") for node in data["nodes"])


def paths(data):
    return [" ".join(one.removeprefix("nd-") for one in path["nodeIds"]) for path in data["paths"]]


def test_both_ways_to_the_target_are_found(graph):
    data = walk(graph, "a", targetDocId="nd-d", maxDepth=4)

    assert paths(data) == ["a b d", "a c d"]
    assert data["target"] == {
        "docId": "nd-d", "docType": "node", "state": "present", "reached": True,
    }  # fmt: skip
    assert data["targetReachable"] is True


def test_the_default_walk_follows_refs_and_shows_missing_ends(graph):
    data = walk(graph, "a")

    assert "nd-m" not in nodes(data)
    assert {"docId": "nd-missing", "docType": None, "distance": 1, "state": "missing"} in data[
        "nodes"
    ]
    broken = next(edge for edge in data["edges"] if edge["fieldLabel"] == "broken")
    assert broken["targetState"] == "missing"
    assert data["filters"] == {"fieldLabels": None, "extractionKinds": ["ref"]}
    assert data["limits"] == {"maxDepth": 2, "maxNodes": 50, "maxEdges": 100, "maxPaths": 25}
    assert data["contractVersion"] == 1


def test_incoming_edges_of_d(graph):
    assert nodes(walk(graph, "d", direction="incoming", maxDepth=1)) == "d b c e"


def test_both_directions_of_d(graph):
    data = walk(graph, "d", direction="both", maxDepth=1)

    assert nodes(data) == "d a b c e"
    ends = [(edge["sourceDocId"][3:], edge["targetDocId"][3:]) for edge in data["edges"]]
    assert ends == [("b", "d"), ("c", "d"), ("d", "a"), ("e", "d")]
    assert paths(data) == ["d b", "d c", "d a", "d e"]
    assert data["edges"][0]["edgeId"] == "edge-0001"
    assert data["paths"][3]["pathId"] == "path-0004"


@pytest.mark.parametrize("limit", ["maxDepth", "maxNodes", "maxEdges", "maxPaths"])
def test_each_limit_alone_is_reported(graph, limit):
    value = 2 if limit == "maxNodes" else 1
    generous = {"maxDepth": 4, limit: value}

    assert walk(graph, "a", **generous)["truncation"] == {
        "truncated": True,
        "limitsReached": [limit],
    }


def test_a_target_that_is_the_start_needs_no_hop(graph):
    data = walk(graph, "a", targetDocId="nd-a")

    assert data["paths"] == [
        {"pathId": "path-0001", "targetDocId": "nd-a", "nodeIds": ["nd-a"], "edgeIds": []}
    ]
    assert data["edges"] == []
    assert data["truncation"] == {"truncated": False, "limitsReached": []}


def test_a_target_out_of_reach_leaves_what_was_seen(graph):
    data = walk(graph, "a", targetDocId="nd-e", maxDepth=4)

    assert data["paths"] == []
    assert data["target"]["reached"] is False
    assert data["targetReachable"] is False
    assert nodes(data) == "a b c missing d"


def test_a_target_that_only_a_limit_hides_is_reachable(graph):
    data = walk(graph, "a", targetDocId="nd-d", maxPaths=1, maxDepth=4)

    assert data["target"]["reached"] is False
    assert data["targetReachable"] is True


def test_an_unknown_target_is_missing(graph):
    assert walk(graph, "a", targetDocId="nd-x")["target"] == {
        "docId": "nd-x", "docType": None, "state": "missing", "reached": False,
    }  # fmt: skip


def test_labels_and_kinds_filter_edges(graph):
    assert nodes(walk(graph, "a", fieldLabels=["beta", "next", "beta"])) == "a b d"
    assert nodes(walk(graph, "a", fieldLabels=[])) == "a"
    assert nodes(walk(graph, "a", extractionKinds=[])) == "a"
    data = walk(graph, "a", extractionKinds=["mention"], fieldLabels=["mark"])
    assert nodes(data) == "a m"
    assert data["filters"] == {"fieldLabels": ["mark"], "extractionKinds": ["mention"]}


def test_edges_carry_their_evidence(graph):
    mention = walk(graph, "a", extractionKinds=["mention"])["edges"][0]
    ref = walk(graph, "b")["edges"][0]

    assert mention["evidence"] == {
        "sourceLine": 10,
        "sourceBlockId": "seen",
        "origin": {"kind": "annotation", "name": "mark"},
    }
    assert ref["evidence"] == {
        "sourceLine": 4,
        "sourceBlockId": None,
        "origin": {"kind": "field", "name": "next"},
    }


def test_a_tombstone_is_a_leaf(graph):
    graph.soft_delete("nd-b")

    data = walk(graph, "a", maxDepth=4)

    assert paths(data) == ["a b", "a c", "a missing", "a c d"]
    assert next(node for node in data["nodes"] if node["docId"] == "nd-b")["state"] == "missing"


def test_several_edges_between_two_records_give_several_paths(graph):
    graph.write(
        "nodes/nd-m.md", "---\ndoc_id: nd-m\ndoc_type: node\nalpha: nd-b\nbeta: nd-b\n---\n"
    )
    graph.reindex()

    data = walk(graph, "m", maxDepth=1)

    assert paths(data) == ["m b", "m b"]
    assert [path["edgeIds"] for path in data["paths"]] == [["edge-0001"], ["edge-0002"]]


def test_neighbours_are_ordered_by_code_units_and_equal_edges_count_once(graph):
    schema = SCHEMA.replace(
        "  beta:", "  many: {type: list, item_type: ref, target: node}\n  beta:"
    )
    graph.write("_schema/node.v1.yaml", schema)
    graph.reload_model()
    # As a code point the first is smaller, as UTF-16 the second.
    targets = ["nd-\uff5e", "nd-\U0001f600", "nd-b", "nd-b"]
    lines = f"many: {json.dumps(targets, ensure_ascii=False)}\n"
    graph.write("nodes/nd-m.md", f"---\ndoc_id: nd-m\ndoc_type: node\n{lines}---\n")
    graph.reindex()

    data = walk(graph, "m", maxDepth=1)

    assert paths(data) == ["m b", "m \U0001f600", "m \uff5e"]
    assert len(data["edges"]) == 3
    assert data["start"] == {"docId": "nd-m", "docType": "node", "state": "present"}
    assert data["direction"] == "outgoing"
    assert graph.call("related", docId="nd-m").data["outgoing"][0]["docId"] == "nd-b"
    assert len(graph.call("related", docId="nd-m").data["outgoing"]) == 4


@pytest.mark.parametrize("start", ["x", "missing"])
def test_the_start_must_be_live(graph, start):
    with pytest.raises(MaadError, match="FILE_NOT_FOUND"):
        walk(graph, start)


@pytest.mark.parametrize(
    ("argument", "wire", "value", "maximum"),
    [
        ("max_depth", "maxDepth", 5, 4),
        ("max_nodes", "maxNodes", 0, 100),
        ("max_edges", "maxEdges", 201, 200),
        ("max_paths", "maxPaths", True, 50),
    ],
)
def test_limits_are_checked_for_callers_inside_the_process(graph, argument, wire, value, maximum):
    arguments = RelationshipPathsArgs(start_doc_id="nd-a", **{argument: value})

    with pytest.raises(MaadError) as refusal, graph.reader.snapshot():
        relationship_paths(graph.context(), arguments)

    assert refusal.value.code == "INVALID_FIELDS"
    assert refusal.value.details == {
        "field": wire, "provided": value, "minimum": 1, "maximum": maximum,
    }  # fmt: skip
