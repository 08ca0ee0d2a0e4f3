"""Every reading command over one project, as programs and as people see it (spec 04 §19)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def ask(maad_here: Any, yard: Path) -> Any:
    return lambda *arguments: maad_here("--project", str(yard), *arguments)


@pytest.fixture
def shown(terminal: Any, yard: Path) -> Any:
    """What a person sees, as lines without the blanks between columns."""

    def show(*arguments: str, code: int = 0) -> list[str]:
        done = terminal("--project", str(yard), *arguments)
        assert done.code == code, done.err
        assert max(map(len, done.out.split("\n"))) <= 110 or "cursor" in done.out
        return [re.sub(r" {2,}", " | ", line.rstrip()) for line in done.out.split("\n")]

    return show


@pytest.mark.parametrize(
    ("arguments", "members"),
    [
        (("summary",), {"types", "totalDocuments", "warnings"}),
        (("describe",), {"registryTypes", "subtypeInventory"}),
        (("schema", "asset"), {"type", "fields", "templateHeadings"}),
        (("get", "ast-1"), {"docId", "depth", "frontmatter"}),
        (("get", "ast-1", "full"), {"resolvedRefs", "objects", "related"}),
        (("related", "ast-2"), {"docId", "outgoing", "incoming"}),
        (("relationship-paths", "ast-3"), {"start", "nodes", "edges", "paths", "truncation"}),
        (("aggregate", "site"), {"groups", "total"}),
        (("join", "asset", "vendor"), {"results", "total"}),
        (("verify", "count", "asset", "3"), {"grounded", "actual", "source"}),
        (("changes",), {"changes", "nextCursor", "hasMore", "resumeCursor"}),
    ],
)
def test_programs_get_the_data_of_the_tool(
    ask: Any, arguments: tuple[str, ...], members: set[str]
) -> None:
    done = ask(*arguments)
    assert done.code == 0, done.err
    assert members <= done.json.keys()
    assert done.out.startswith('{\n  "')


@pytest.mark.parametrize(
    "arguments", [("query", "asset"), ("search", "entity"), ("history", "ast-1"), ("audit",)]
)
def test_lists_are_printed_as_lists(ask: Any, arguments: tuple[str, ...]) -> None:
    done = ask(*arguments)
    assert done.code == 0, done.err
    assert done.json
    assert isinstance(done.json, list)


def test_json_also_on_a_terminal(terminal: Any, yard: Path) -> None:
    for command in ("summary", "changes"):
        assert terminal("--project", str(yard), command, "--json").json


def test_a_walk_through_the_changes(ask: Any, shown: Any) -> None:
    first = ask("changes", "--limit", "3").json
    rest = ask("changes", "--cursor", first["nextCursor"]).json
    assert [len(first["changes"]), len(rest["changes"]), rest["hasMore"]] == [3, 2, False]
    assert {one["docType"] for one in ask("changes", "--type=vendor").json["changes"]} == {"vendor"}
    assert ask("changes", "--deletes").json["changes"] == ask("changes").json["changes"]
    assert shown("changes", "--limit=3")[-2] == f"next page: --cursor {first['nextCursor']}"
    last = shown("changes", "--cursor", rest["resumeCursor"])
    assert last[0] == "none"
    assert last[-2] == f"no more; what changes later: --cursor {rest['resumeCursor']}"
    refused = ask("changes", "--cursor", "x")
    assert refused.code == 1
    assert "  INVALID_FIELDS: " in refused.err


def test_paths_with_their_limits_and_filters(ask: Any, shown: Any) -> None:
    assert shown("relationship-paths", "ast-3", "--max-depth", "3")[:5] == [
        "ast-3 -parent-> ast-2",
        "ast-3 -vendor-> ven-none (no such record)",
        "ast-3 -parent-> ast-2 -parent-> ast-1",
        "ast-3 -parent-> ast-2 -vendor-> ven-pump",
        "ast-3 -parent-> ast-2 -parent-> ast-1 -vendor-> ven-seal",
    ]
    way = ("relationship-paths", "ast-1", "--direction=incoming", "--field=parent")
    assert shown(*way)[:2] == ["ast-1 <-parent- ast-2", "ast-1 <-parent- ast-2 <-parent- ast-3"]
    assert shown(*way, "--max-depth=1")[-2] == "there may be more; raise --max-depth"
    found = ask("relationship-paths", "ast-3", "ven-seal", "--max-depth=3").json
    assert [path["nodeIds"] for path in found["paths"]] == [["ast-3", "ast-2", "ast-1", "ven-seal"]]
    both = ask("relationship-paths", "ast-1", "--mentions", "--max-paths=1").json
    assert both["filters"]["extractionKinds"] == ["mention", "ref"]
    assert shown("relationship-paths", "ven-seal")[0] == "none"
    assert ask("relationship-paths", "nope").code == 1
    assert ask("relationship-paths", "ast-1", "--max-depth=5").code == 2


def test_groups_by_one_or_several_fields(ask: Any, shown: Any) -> None:
    assert shown("aggregate", "site")[:6] == [
        "site | count", "south | 2", "north | 1", "", "3 records in 2 groups",
        "2 records without a value to group by",
    ]  # fmt: skip
    grouped = ("aggregate", "site", "vendor", "--type=asset", "--metric=sum:weight")
    assert shown(*grouped)[:5] == [
        "site | vendor | count | sum:weight", "north | ven-seal | 1 | 12.5",
        "south | ven-pump | 1 | 3", "", "2 records in 2 groups; sum:weight: 15.5",
    ]  # fmt: skip
    assert ask("aggregate", "vendor->name", "--type=asset").json["groups"][0]["count"] == 1
    narrow = ask(
        "aggregate", "site", "--type", "asset", "--filter", "site=south", "--metric", "count",
        "--having", "gte:2", "--by", "value", "--order", "asc",
    ).json  # fmt: skip
    assert [(one["value"], one["count"]) for one in narrow["groups"]] == [("south", 2)]
    assert shown("aggregate", "vendor", "--limit=1")[-2] == "of 3 groups; more: --limit 3"
    assert shown("aggregate", "nothing")[0] == "none"
    broken = ask("aggregate", "vendor->", "--type=asset")
    assert (broken.code, "SCHEMA_REF_CHAIN_INVALID" in broken.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("aggregate",),
        ("aggregate", "site", "--metric=total:weight"),
        ("aggregate", "site", "--metric=sum"),
        ("aggregate", "site", "--having=gte"),
        ("aggregate", "site", "--having=above:3"),
        ("aggregate", "site", "--having=gt:inf"),
        ("join", "asset"),
        ("join", "asset", "vendor", "--ref-fields=parent=name"),
        ("join", "asset", "vendor", "--ref-fields=vendor"),
        ("verify", "field", "ast-1", "weight"),
        ("verify", "field", "ast-1", "weight", "1", "--json-value=1"),
        ("verify", "field", "ast-1", "weight", "--json-value={"),
        ("verify", "count", "asset", "many"),
        ("verify", "integrity", "--category=lost"),
        ("verify", "everything"),
        ("changes", "--limit=0"),
        ("get", "ast-1", "cold", "found"),
        ("related", "ast-1", "sideways"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_opened(
    maad_here: Any, arguments: tuple[str, ...]
) -> None:
    done = maad_here(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err


def test_joined_records_side_by_side(ask: Any, shown: Any) -> None:
    asked = (
        "join", "asset", "vendor", "parent", "--fields=name", "--ref-fields=vendor=name",
        "--sort=name", "--order=desc",
    )  # fmt: skip
    lines = shown(*asked)
    assert lines[0] == "id | name | vendor | vendor.name | parent"
    assert lines[1].startswith("ast-2 | Valve that goes on")
    assert lines[1].endswith("… | ven-pump | South Pumps | ast-1")
    assert lines[2] == "ast-1 | Pump | ven-seal | Northern Seals"
    assert lines[3] == "ast-3 | Lost | ven-none (no such record) | ast-2"
    assert lines[-2] == "1 to 3 of 3"
    assert shown(*asked, "--limit=1", "--offset=1")[-2] == "2 to 2 of 3; next page: --offset 2"
    assert shown(*asked, "--filter", "name=Nobody")[0] == "none of 0"
    assert ask("join", "asset", "vendor", "--filter", "name=Pump").json["total"] == 1


@pytest.mark.parametrize(
    ("claim", "code", "said"),
    [
        (("field", "ast-1", "weight", "12.5"), 0, "grounded: weight of ast-1 is 12.5 (assets/"),
        (("field", "ast-1", "weight", "--json-value=12.50"), 0, "grounded: weight"),
        (("field", "ast-1", "tags", "[a,b]"), 0, "grounded: tags of ast-1 is a, b"),
        (("field", "ast-1", "parent", "--json-value=null"), 0, "grounded: parent of ast-1 is emp"),
        (("field", "ast-1", "weight", "13"), 1, "not grounded: weight of ast-1 is 12.5, not 13"),
        (("field", "nope", "weight", "13"), 1, "not grounded: there is no record with the id"),
        (("count", "asset", "3"), 0, "grounded: the number of asset records is 3"),
        (("count", "asset", "2", "--filter=site=south"), 0, "grounded: "),
        (("count", "asset", "4"), 1, "not grounded: the number of asset records is 3, not 4"),
    ],
)
def test_a_claim_that_does_not_hold_is_exit_code_1(
    ask: Any, shown: Any, claim: tuple[str, ...], code: int, said: str
) -> None:
    done = ask("verify", *claim)
    assert done.code == code
    assert done.json["grounded"] is (code == 0)
    assert shown("verify", *claim, code=code)[0].startswith(said)


def test_a_sweep_counts_and_names_what_is_wrong(ask: Any, shown: Any) -> None:
    swept = ask("verify", "integrity")
    assert (swept.code, swept.json["findings"]["broken_refs"]) == (1, 1)
    assert "details" not in swept.json
    assert ask("verify", "integrity", "--verbose").json["details"][0]["docId"] == "ast-3"
    assert ask("verify", "integrity", "--type=vendor").code == 0
    assert ask("verify", "integrity", "--category=hash_drift", "--category=schema_drift").code == 0
    assert ask("verify", "integrity", "--doc=ast-1", "--filter=site=north").code == 0
    assert shown("verify", "integrity", code=1)[:6] == [
        "files | 5", "healthy | 4", "broken_refs | 1", "",
        "id | type | finding | expected | actual",
        'ast-3 | asset | broken_refs | {"vendor": ["ven-none"]}',
    ]  # fmt: skip
    assert ask("verify").code == 0


def test_orphans_are_named_with_what_they_miss(ask: Any, shown: Any) -> None:
    found = ask("orphans")
    assert (found.code, [one["docId"] for one in found.json["details"]]) == (1, ["ast-3"])
    assert shown("orphans", code=1)[:4] == [
        "id | type | field | refers to | of these deleted", "ast-3 | asset | vendor | ven-none",
        "", "1 record of 5 files",
    ]  # fmt: skip
    assert shown("orphans", "--type=vendor")[0] == "none"
    assert ask("orphans", "--doc=ast-1").code == 0


def test_an_id_that_no_record_has_is_no_quiet_empty_list(ask: Any) -> None:
    unknown = ask("related", "nope")
    assert (unknown.code, unknown.json["outgoing"]) == (0, [])
    assert unknown.err == "warning: there is no record with the id 'nope'\n"
    assert ask("related", "ven-seal", "outgoing").err == ""
    absent = ask("get", "nope")
    assert (absent.code, "  FILE_NOT_FOUND: " in absent.err) == (1, True)


def test_a_page_ends_with_the_way_to_the_next(shown: Any) -> None:
    assert shown("query", "asset", "--limit=2")[-2] == "1 to 2 of 3; next page: --offset 2"
    assert shown("query", "asset", "--limit=2", "--offset=2")[-2] == "3 to 3 of 3"
    assert shown("query", "asset", "--offset=9")[0] == "none of 3"
    assert shown("search", "entity", "--limit=1")[-2].endswith("; next page: --offset 1")
    assert shown("audit", "--limit=1")[-2] == "1 to 1; next page: --offset 1"


def test_long_cells_are_cut_and_ids_are_not(shown: Any) -> None:
    row = next(line for line in shown("query", "asset") if line.startswith("ast-2"))
    assert "…" in row
    assert row.endswith("ven-pump | ast-1")


def test_the_overview_of_a_project(shown: Any) -> None:
    lines = shown("summary")
    assert lines[0] == "type | records | newest"
    assert lines[2] == "asset | 3 | ast-3, ast-2, ast-1"
    assert "broken references | 1" in lines
    assert any(re.fullmatch(r"indexed \| \d{4}-\d\d-\d\d \d\d:\d\d", line) for line in lines)
    assert "asset | 3 | ast | assets | asset.v1" in shown("describe")
    fields = shown("schema", "asset")
    assert "site | enum | yes | north | south" in [line.replace("| | ", "| ") for line in fields]
    assert fields[-2] == "## Findings"


def test_a_record_at_every_depth(shown: Any) -> None:
    lines = shown("get", "ast-1")
    assert lines[:3] == ["id | ast-1", "type | asset", "version | 1"]
    assert "tags | a, b" in lines
    assert "doc_type | asset" not in lines
    assert shown("get", "ast-1", "warm", "found")[-4:-1] == ["", "Findings", "Seal worn."]
    assert "Seen by [[person:Ada|A]]." in shown("get", "ast-1", "cold")
    full = shown("get", "ast-1", "full")
    assert "vendor | ven-seal (Northern Seals)" in full
    assert "incoming | parent | ast-2 | asset" in full


def test_commits_of_a_record_and_activity(shown: Any, ask: Any) -> None:
    lines = shown("history", "ast-1", "--since", "2 weeks ago")
    assert lines[0] == "when | action | author | summary | commit"
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d \| create \| Ada \| Pump \| [0-9a-f]{10}", lines[1]
    )
    assert shown("history", "ast-1", "--limit=1")[-2] == "the newest 1; more: --limit 2"
    assert shown("audit")[0] == "id | type | when | action | author | commits"
    for command in (("history", "ast-1", "--since"), ("audit", "--since"), ("audit", "--until")):
        refused = ask(*command, "2026-13-45")
        assert refused.code == 1
        assert f"{command[-1][2:]}: is no date" in refused.err
        assert "'2 weeks ago'" in refused.err


def test_without_a_project_there_is_a_next_step(maad_here: Any, tmp_path: Path) -> None:
    for command in (("changes",), ("orphans",), ("aggregate", "x"), ("verify", "integrity")):
        done = maad_here("--project", str(tmp_path), *command)
        assert (done.code, done.out) == (1, "")
        assert "  REGISTRY_NOT_FOUND: " in done.err
        assert "init" in done.err


def test_answers_by_a_schema_that_is_not_indexed_yet_say_so(maad_here: Any, project: Path) -> None:
    def run(*words: str) -> Any:
        return maad_here(*words, f"--project={project}")

    assert run("reindex").code == 0
    schema = project / "_schema/note.v1.yaml"
    schema.write_text(schema.read_text() + "  place: {type: string, index: true}\n")
    for words in (
        ("query", "note", "--filter=place=x"),
        ("aggregate", "place", "--type=note"),
        ("verify", "count", "note", "3", "--filter=place=x"),
        ("search", "entity"),
    ):
        done = run(*words)
        assert "INDEX_BEHIND: 3 records are indexed as an earlier schema says" in done.err, words
    assert run("reindex").code == 0
    assert "INDEX_BEHIND" not in run("query", "note", "--filter=place=x").err
