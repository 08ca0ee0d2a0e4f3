"""Schema contracts: sources to effective rules to digest, and every refusal (spec 05 §5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.contracts.observation import Observation, Preparations, observe
from maadd_worker.disk.root import ProjectRoot

Vectors = Callable[[str], dict[str, Any]]


def _write(folder: Path, sources: Mapping[str, str]) -> None:
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _observe(folder: Path, doc_type: str, version: str = "0.0.0") -> Observation:
    root = ProjectRoot.open(str(folder))
    try:
        return observe(root, doc_type, Preparations(version), lambda: None)
    finally:
        root.close()


def test_the_contract_of_sources_and_its_digest(vectors: Vectors, tmp_path: Path) -> None:
    values = vectors("create-schema-v1")
    for row in values["vectors"]:
        folder = tmp_path / row["name"]
        _write(folder, row["sources"])
        seen = _observe(folder, row["docType"], row["engineVersion"])
        contract = json.loads(seen.contract_text)
        assert contract["effective"] == row["effective"], row["name"]
        assert contract["sources"] == row["sources"]
        assert contract["contentProjection"] == values["contentProjection"]
        assert len(seen.contract_text.encode()) == row["canonicalBytes"], row["name"]
        assert seen.schema_digest == row["schemaDigest"], row["name"]


def test_the_built_in_subtypes_are_the_published_ones(vectors: Vectors, tmp_path: Path) -> None:
    values = vectors("create-schema-v1")
    _write(tmp_path, values["vectors"][0]["sources"])
    contract = json.loads(_observe(tmp_path, "memo").contract_text)
    assert contract["effective"]["subtypeMap"] == values["defaultSubtypeMap"]


def test_a_field_with_a_later_option_has_it_as_a_member(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "_registry/object_types.yaml": (
                "types:\n  memo: {path: memos, id_prefix: me, schema: memo.v1}\n"
            ),
            "_schema/memo.v1.yaml": (
                "type: memo\nfields:\n"
                "  day: {type: date, store_precision: day, on_finer: error}\n"
                "  name: {type: string}\n"
            ),
        },
    )
    contract = json.loads(_observe(tmp_path, "memo").contract_text)
    (_, schema) = contract["effective"]["schemas"][0]
    (_, day), (_, name) = schema["fields"]
    assert day["onFiner"] == "error"
    assert len(day) == 16
    assert len(name) == 15


def _append(folder: Path, name: str, count: int) -> None:
    with (folder / name).open("ab") as file:
        file.write(b"#" + b"x" * count)


def test_sources_that_break_a_rule_have_no_contract(vectors: Vectors, tmp_path: Path) -> None:
    for row in vectors("create-schema-reject")["cases"]:
        folder = tmp_path / row["name"]
        folder.mkdir()
        _write(folder, row["sources"])
        generator = row.get("generator") or {}
        for name in generator.get("appendCommentToEach", [generator.get("appendCommentTo")]):
            if name is not None:
                _append(folder, name, generator["bytes"])
        with pytest.raises(MaadError) as refused:
            _observe(folder, row["docType"])
            pytest.fail(row["name"])
        assert refused.value.code == row["code"], row["name"]
        if row["code"] not in ("UNKNOWN_TYPE",):
            assert (refused.value.details or {}).keys() >= {"dependency"}, row["name"]


def test_the_number_of_types_is_bounded(vectors: Vectors, tmp_path: Path) -> None:
    for row in vectors("create-schema-reject")["generatedTypes"]:
        folder = tmp_path / str(row["types"])
        numbers = range(row["types"])
        registry = "types:\n" + "".join(
            f"  t{i}: {{path: d{i}, id_prefix: p{i:02}, schema: t{i}.v1}}\n" for i in numbers
        )
        _write(
            folder,
            {
                "_registry/object_types.yaml": registry,
                **{
                    f"_schema/t{i}.v1.yaml": f"type: t{i}\nfields:\n  title: {{type: string}}\n"
                    for i in numbers
                },
            },
        )
        if row["code"] is None:
            _observe(folder, "t0")
            continue
        with pytest.raises(MaadError) as refused:
            _observe(folder, "t0")
        assert refused.value.code == row["code"]
