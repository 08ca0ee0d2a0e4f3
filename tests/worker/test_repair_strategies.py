"""The repairs as functions of frontmatter, step by step (spec 03 §5.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.schema.model import Model, load_model
from maadd_worker.write.bulk.strategies import fix_schema_drift, prune_orphan_refs

SCHEMA = """\
type: thing
version: 2
required: [doc_id, name]
fields:
  name: {type: string, default: nameless}
  kind: {type: enum, values: [a, b]}
  made: {type: date}
  other: {type: ref, target: thing}
  size: {type: number, default: 3}
  sound: {type: boolean, default: false}
  parts: {type: list, item_type: ref, target: thing}
  price: {type: amount}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("model")
    (path / "_registry").mkdir()
    (path / "_schema").mkdir()
    (path / "_registry/object_types.yaml").write_text(
        "types:\n  thing: {path: things, id_prefix: thg, schema: thing.v2}\n"
    )
    (path / "_schema/thing.v2.yaml").write_text(SCHEMA)
    root = ProjectRoot.open(str(path))
    yield load_model(root)
    root.close()


def live(doc_id: str) -> bool:
    return doc_id in {"thg-1", "thg-2"}


def old(**fields: Any) -> dict[str, Any]:
    return {"doc_id": "thg-9", "doc_type": "thing", "schema": "thing.v1", "name": "N", **fields}


def test_a_record_of_the_present_schema_is_left_alone(model: Model) -> None:
    record = {**old(colour="red", size="big"), "schema": "thing.v2"}
    done = fix_schema_drift(record, "thing", model, live)
    assert (done.frontmatter, done.changed) == (record, ())


def test_undeclared_keys_go_and_optional_defaults_come(model: Model) -> None:
    done = fix_schema_drift(old(colour="red", kind="a"), "thing", model, live)
    assert done.frontmatter == {
        **old(kind="a"), "schema": "thing.v2", "size": 3, "sound": False,
    }  # fmt: skip
    assert done.changed == ("colour", "size", "sound", "schema")


def test_what_is_required_is_not_invented_and_null_is_a_value(model: Model) -> None:
    record = old(size=None)
    del record["name"]
    done = fix_schema_drift(record, "thing", model, live)
    assert "name" not in done.frontmatter
    assert done.frontmatter["size"] is None


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("name", ["x", ""], [1, True, ["x"], {"a": 1}]),
        ("kind", ["a", "elsewhere"], [1, False]),
        ("made", ["2031-02-03", "someday"], [2031, ["2031-02-03"]]),
        ("other", ["thg-1"], [7, ["thg-1"]]),
        ("size", [1, 2.5], ["1", True]),
        ("sound", [True, False], ["true", 1, 0]),
        ("parts", [[], ["thg-1"], [7]], ["thg-1", 7, {"a": 1}]),
        ("price", ["1 EUR", 5, 2.5], [True, ["1 EUR"]]),
    ],
)
def test_only_the_declared_shape_is_taken_over(
    model: Model, field: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        done = fix_schema_drift(old(**{field: value}), "thing", model, live)
        assert done.frontmatter[field] == value
    for value in bad:
        with pytest.raises(MaadError) as failure:
            fix_schema_drift(old(**{field: value}), "thing", model, live)
        assert failure.value.code == "REPAIR_REQUIRES_MIGRATION"
        assert failure.value.message.startswith(f"{field} is no ")


def test_a_type_without_a_schema_cannot_be_brought_up_to_it(model: Model) -> None:
    with pytest.raises(MaadError) as failure:
        fix_schema_drift(old(), "unknown", model, live)
    assert failure.value.code == "REPAIR_REQUIRES_MIGRATION"
    done = prune_orphan_refs(old(other="thg-none"), "unknown", model, live)
    assert (done.frontmatter, done.changed) == (old(other="thg-none"), ())


def test_dangling_refs_become_null_and_leave_lists(model: Model) -> None:
    record = old(other="thg-none", parts=["thg-1", "thg-none", 7, "thg-2"], kind="thg-none")
    done = prune_orphan_refs(record, "thing", model, live)
    assert done.frontmatter == old(other=None, parts=["thg-1", 7, "thg-2"], kind="thg-none")
    assert (done.changed, done.kept) == (("other", "parts"), ("parts",))


@pytest.mark.parametrize("value", [None, 7, "thg-1"])
def test_other_values_of_a_ref_are_no_orphans(model: Model, value: object) -> None:
    done = prune_orphan_refs(old(other=value), "thing", model, live)
    assert (done.frontmatter, done.changed) == (old(other=value), ())
