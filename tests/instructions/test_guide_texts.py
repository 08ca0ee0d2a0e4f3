"""The guides tell the truth: their tools exist, their examples work, they fit every project."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.extract.primitives import PRIMITIVES
from maadd_worker.instructions.manifest import load_templates
from maadd_worker.markdown.document import parse_document
from maadd_worker.schema.model import Model, load_model
from maadd_worker.schema.validation import validate

GUIDES = {template.path: template.body.decode() for template in load_templates()}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([A-Z][A-Z_]+[A-Z])`")


def blocks(path: str, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(GUIDES[path]) if found == language]


def model_files(path: str) -> dict[str, str]:
    """The YAML examples by the file that their first line names."""
    files: dict[str, str] = {}
    for text in blocks(path, "yaml"):
        named = re.match(r"# (\S+)\n", text)
        assert named is not None, text
        assert named[1] not in files
        files[named[1]] = text
    return files


def write_model(path: str, folder: Path) -> None:
    for name, text in model_files(path).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def model_of(path: str, folder: Path) -> Model:
    write_model(path, folder)
    root = ProjectRoot.open(str(folder))
    try:
        return load_model(root)
    finally:
        root.close()


def calls(path: str) -> list[tuple[str, dict[str, Any]]]:
    """The tool calls of the JSON examples."""
    decoded = [json.loads(text) for text in blocks(path, "json")]
    return [(call["tool"], call["arguments"]) for call in decoded]


def test_names_and_places_are_those_that_were_released() -> None:
    assert [(one.name, one.path) for one in load_templates()] == [
        ("maad-md", "MAAD.md"),
        ("architect-core", "_skills/architect-core.md"),
        ("schema-guide", "_skills/schema-guide.md"),
        ("import-guide", "_skills/import-guide.md"),
        ("graph-ontology", "_skills/graph-ontology.md"),
        ("corpus-explorer", "_skills/corpus-explorer.md"),
    ]


@pytest.mark.parametrize("path", GUIDES)
class TestEveryGuide:
    def test_it_names_real_tools_only(self, path: str) -> None:
        assert set(re.findall(r"maad_[a-z_]+", GUIDES[path])) <= set(TOOLS)

    def test_it_names_real_guides_only(self, path: str) -> None:
        named = set(re.findall(r"_skills/[a-z-]+\.md", GUIDES[path]))
        assert named <= set(GUIDES)

    def test_it_says_that_it_is_managed(self, path: str) -> None:
        head = " ".join(GUIDES[path].split()[:70])
        assert "Managed file" in head
        assert "blocks later refreshes" in head.replace("> ", "")
        assert "`_skills/local/`" in head

    def test_it_can_be_read_in_one_sitting(self, path: str) -> None:
        lines = GUIDES[path].splitlines()
        assert 60 <= len(lines) <= 200
        prose = [line for line in lines if not line.startswith(("|", "{", "  {"))]
        assert max(map(len, prose)) <= 105
        assert len(GUIDES[path].encode()) < 12_000

    def test_it_is_the_same_for_every_project_and_machine(self, path: str) -> None:
        assert re.findall(r"/(?:home|usr|etc|tmp|var|srv|opt)/|[A-Z]:\\|~/", GUIDES[path]) == []
        assert re.findall(r"localhost|127\.0\.0\.1|\.venv|\bpip\b", GUIDES[path]) == []
        assert re.findall(r"\b\d+\.\d+\.\d+\b", GUIDES[path]) == []

    def test_its_yaml_loads_as_a_project(self, path: str, tmp_path: Path) -> None:
        if model_files(path):
            model = model_of(path, tmp_path)
            assert model.advisories == ()
            assert {entry.schema_ref for entry in model.registry.types.values()} == {
                Path(name).stem for name in model_files(path) if name.startswith("_schema/")
            }

    def test_its_calls_are_good_calls(self, path: str) -> None:
        for tool, arguments in calls(path):
            check_arguments(TOOLS[tool], arguments)

    def test_its_example_records_are_valid(self, path: str, tmp_path: Path) -> None:
        records = [text for text in blocks(path, "markdown") if text.startswith("---\n")]
        if records:
            model = model_of(path, tmp_path)
        for text in records:
            parsed = parse_document(text.encode(), "example.md")
            schema = model.schema(parsed.frontmatter["doc_type"])
            report = validate(schema, model, parsed.frontmatter, "write")
            assert (report.errors, report.warnings) == ((), ())
            assert parsed.frontmatter["schema"] == schema.ref

    def test_lines_end_as_the_stamp_expects(self, path: str) -> None:
        assert "\r" not in GUIDES[path]
        assert GUIDES[path].endswith("\n")
        assert not any(line != line.rstrip() for line in GUIDES[path].splitlines())


def test_the_main_file_lists_every_guide() -> None:
    listed = set(re.findall(r"^\| `(_skills/[^`]+)` \|", GUIDES["MAAD.md"], re.MULTILINE))
    assert listed == {path for path in GUIDES if path.startswith("_skills/")} | {"_skills/local/"}


def test_no_managed_file_lies_in_the_projects_own_folder() -> None:
    assert not any(path.startswith("_skills/local/") for path in GUIDES)


def test_the_main_file_names_the_eleven_primitives_in_their_order() -> None:
    listed = re.search(r"eleven primitives: ([a-z,\s]+)\.", GUIDES["MAAD.md"])
    assert listed is not None
    assert tuple(re.split(r",\s+", listed[1])) == PRIMITIVES


def test_the_guides_teach_every_tool_that_an_agent_of_a_project_may_want() -> None:
    of_the_instance = {name for name, spec in TOOLS.items() if spec.admin_everywhere}
    optional = {"maad_current_session", "maad_unsubscribe"}
    taught = set(re.findall(r"maad_[a-z_]+", " ".join(GUIDES.values())))
    assert set(TOOLS) - of_the_instance - optional <= taught


def test_field_types_and_keys_of_the_schema_guide_are_those_of_the_loader() -> None:
    from maadd_worker.schema.schema import FIELD_TYPES
    from maadd_worker.schema.schema_file import FIELD_KEYS

    text = GUIDES["_skills/schema-guide.md"]
    for word in (*FIELD_TYPES, *FIELD_KEYS):
        assert re.search(rf"`{word}\b", text) or f"{word}:" in text, word


def test_the_bounds_of_path_walks_are_those_of_the_tool() -> None:
    from maadd.protocol.json_schema import input_schema

    members = input_schema(TOOLS["maad_relationship_paths"])["properties"]
    text = " ".join(GUIDES["_skills/graph-ontology.md"].split())
    for name, word in (
        ("maxDepth", "depth"),
        ("maxNodes", "nodes"),
        ("maxEdges", "edges"),
        ("maxPaths", "paths"),
    ):
        assert f"{word} {members[name]['default']} and {members[name]['maximum']}" in text


@pytest.mark.parametrize("path", GUIDES)
def test_codes_are_real(path: str) -> None:
    from maadd.protocol.errors import ERROR_CODES

    warnings = {
        "FILTER_FIELD_NOT_INDEXED",
        "UNKNOWN_TYPE",
        "INDEX_BEHIND",
        "MIXED_CURRENCY",
        "SCHEMA_DRIFT",
        "PRECISION_COARSER_THAN_DECLARED",
        "FIELD_MAX_LENGTH_EXCEEDED",
        "FIELD_SOFT_MAX_LENGTH_EXCEEDED",
        "FIELD_MULTILINE_NOT_ALLOWED",
        "DATE",
        "COUNT",
    }
    assert set(CODE.findall(GUIDES[path])) - {"EUR"} <= set(ERROR_CODES) | warnings


def test_the_examples_of_the_import_guide_work_one_after_the_other(
    project: Path, served: Any
) -> None:
    path = "_skills/import-guide.md"
    write_model(path, project)
    engine = served("feed")
    for tool, arguments in calls(path):
        data = engine.ok(tool, **arguments)
        assert not data.get("failed")
        assert data.get("verification", {}).get("mismatches", []) == []
    for doc_type, count in (("company", 3), ("meeting", 2)):
        assert engine.ok("maad_query", docType=doc_type)["total"] == count
    assert engine.ok("maad_find_orphans")["details"] == []
    assert engine.ok("maad_validate")["invalid"] == 0


def test_the_model_of_the_architect_answers_questions(project: Path, served: Any) -> None:
    path = "_skills/architect-core.md"
    write_model(path, project)
    engine = served("feed")
    for doc_type, fields in (
        ("customer", {"name": "Harbour School"}),
        ("bike", {"name": "Red cargo", "owner": "cus-harbour-school", "kind": "cargo"}),
        (
            "job",
            {
                "title": "Squeaking brake",
                "bike": "bik-red-cargo",
                "state": "done",
                "received_on": "2031-02-03",
                "price": "45.00 EUR",
            },
        ),
    ):
        engine.ok("maad_create", docType=doc_type, fields=fields)
    groups = engine.ok(
        "maad_aggregate",
        docType="job",
        groupBy="bike->owner->name",
        metric={"field": "price", "op": "sum"},
    )["groups"]
    assert groups == [{"value": "Harbour School", "count": 1, "metric": 45}]
    [example] = blocks(path, "markdown")
    assert engine.ok("maad_get", docId="job-squeaking-brake", depth="cold")["body"] == (
        "# Squeaking brake {#top}\n\n## Findings {#findings}\n\n## Work done {#work}"
    )
    assert all(f"{{#{anchor}}}" in example for anchor in ("top", "findings", "work"))
