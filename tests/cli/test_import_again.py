"""`maad import` once more: plans that were edited, records that were deleted, and faults that are
none of the items."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

QUICK = {"MAADD_FSYNC": "0"}
LAW = "  law: {path: laws, id_prefix: law, schema: law.v1, doc_type: law}\n"
FULL = "journal.begin=error:ENOSPC"


@pytest.fixture
def project(maad_here: Any, tmp_path: Path) -> Path:
    assert maad_here("init", "p", env=QUICK | {"MAAD_HISTORY_MODE_DEFAULT": "feed"}).code == 0
    return tmp_path / "p"


@pytest.fixture
def here(maad_here: Any, project: Path) -> Any:
    env = QUICK | {"MAAD_HISTORY_MODE_DEFAULT": "feed"}
    return lambda *arguments, **more: maad_here(
        "--project", str(project), *arguments, env=env | more
    )


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    for number in (1, 2, 3, 4):
        text = f"---\nrule: {number}\ntitle: T{number}\n---\n# Head {number}\n"
        (folder / f"rule-{number}.md").write_text(text)
    return folder


@pytest.fixture
def plan(here: Any, rules: Path, tmp_path: Path) -> Any:
    """Writes the proposed plan with texts replaced, and gives its path."""
    proposed = here("import", str(rules), "--plan").out

    def edited(*pairs: tuple[str, str]) -> str:
        text = proposed
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        return str(path)

    return edited


def left_out(done: Any) -> list[tuple[str, str]]:
    return [(one["source"], one["reason"]) for one in done.json["leftOut"]]


def test_two_items_with_one_id_are_found_before_anything_is_written(
    here: Any, project: Path, rules: Path, plan: Any
) -> None:
    doubled = plan(("ids: {}", "ids: {rule-1.md: rule-x, rule-2.md: rule-X}"))
    refused = here("import", str(rules), "--with", doubled, "--json")
    assert refused.code == 1
    assert left_out(refused) == [("rule-1.md", "'rule-x' is the id of rule-2.md, too")]
    assert not (project / "rules").exists()
    done = here("import", str(rules), "--with", doubled, "--keep-going", "--json")
    assert (done.code, done.json["created"]) == (1, 3)


def test_ids_that_the_project_has_elsewhere_are_found_before_anything_is_written(
    here: Any, project: Path, rules: Path, plan: Any
) -> None:
    assert here("import", str(rules), "--json").json["created"] == 4
    (project / "rules/sub").mkdir()
    (project / "rules/rule-1.md").rename(project / "rules/sub/one.md")
    assert here("reindex").code == 0
    assert here("call", "maad_delete", '{"docId": "rule-2"}').code == 0
    (project / "rules/rule-3.md").unlink()
    for path in (project / "_import/.state").rglob("*.*"):
        path.unlink()
    assert left_out(here("import", str(rules), "--json")) == [
        ("rule-1.md", "rules/sub/one.md has the id rule-1 already"),
        ("rule-2.md", "a deleted record holds the id rule-2"),
        ("rule-3.md", "the index holds rule-3, whose file is gone"),
    ]


def test_entries_that_cannot_do_what_they_say_are_refused(
    here: Any, project: Path, rules: Path, plan: Any
) -> None:
    wrong = plan(
        ("id_from: rule", "id_from: nofield\n    body: text\n    links: {thing: x, rule: y}"),
        ("    required:", "    derive: {title: nonsense, no: heading}\n    required:"),
    )
    refused = here("import", str(rules), "--with", wrong)
    assert refused.code == 1
    for text in (
        "types.rule.id_from: none of its items has the field 'nofield'",
        "types.rule.derive.title: 'nonsense' is nothing to make a field from",
        "types.rule.derive.no: the schema has no such field",
        "types.rule.body: it names a column of a table",
        "types.rule.links.thing: there is no such type",
        "types.rule.links.rule: the schema has no field 'y'",
    ):
        assert text in refused.err
    assert not (project / "_import/.state").exists()
    assert here("import", str(rules)).code == 0
    own = plan(("    path: rules", "    existing: true\n    path: laws"))
    refused = here("import", str(rules), "--with", own).err
    assert "types.rule.path: the project's rule has 'rules'" in refused
    assert "types.rule.fields: an existing type keeps its own schema" in refused


def test_entries_that_do_nothing_are_noted(here: Any, rules: Path, plan: Any) -> None:
    idle = plan(
        (f"source: {rules}", "source: /etc"),
        ("leave_out: []", "leave_out: ['[']"),
        ("ids: {}", "ids: {nope.md: d1-a, rule-1.md: one}"),
        ("types:\n", "types:\n  empty: {path: e, id_prefix: em, schema: empty.v1, folders: [x]}\n"),
        ("    required:", "    derive: {title: section Status}\n    required:"),
        ("    required:", "    links: {rule: title}\n    required:"),
    )
    done = here("import", str(rules), "--with", idle, "--plan", "--json")
    assert done.code == 0
    notes = [one["reason"] for one in done.json["notes"]]
    assert notes == [
        "source: it was made for /etc",
        "leave_out: nothing matches '['",
        "ids: the source has no item 'nope.md'",
        "ids: 'one' lacks the prefix of its type",
        "types.empty: it takes no item",
        "types.empty.folders: no item lies in 'x'",
        "types.rule.derive.title: no item has a section 'Status'",
        "types.rule.links: links is 'keep'",
    ]


def test_an_edited_plan_is_carried_out_with_update(
    here: Any, project: Path, rules: Path, plan: Any
) -> None:
    assert here("import", str(rules)).code == 0
    other = plan(
        ("    required:", "    derive: {about: heading}\n    required:"),
        ("    fields:\n", "    fields:\n      about: {type: string}\n"),
    )
    refused = here("import", str(rules), "--with", other)
    assert refused.code == 1
    assert "_schema/rule.v1.yaml is there and says something else than the plan" in refused.err
    schema = project / "_schema/rule.v1.yaml"
    schema.write_text(schema.read_text().replace("fields:\n", "fields:\n  about: {type: string}\n"))
    edited = project / "rules/rule-4.md"
    edited.write_text(edited.read_text() + "more\n")
    told = here("import", str(rules), "--with", other, "--json")
    assert (told.code, told.json["unchanged"], told.json["updated"]) == (0, 0, 0)
    assert told.json["madeOtherwise"] == [f"rule-{number}.md" for number in (1, 2, 3, 4)]
    # The plan is the one that counts from now on.
    done = here("import", str(rules), "--update", "--json")
    assert (done.code, done.json["updated"]) == (1, 3)
    assert left_out(done) == [("rule-4.md", "rule-4 was edited here since it was imported")]
    assert here("get", "rule-1", "--json").json["frontmatter"]["about"] == "Head 1"
    again = here("import", str(rules), "--json").json
    assert (again["unchanged"], again["madeOtherwise"]) == (3, ["rule-4.md"])


def test_an_imported_record_keeps_its_id_and_its_type(here: Any, rules: Path, plan: Any) -> None:
    assert here("import", str(rules)).code == 0
    other = plan(
        ("ids: {}", "ids: {rule-1.md: rule-one}"),
        ("leave_out: []", "leave_out: [rule-3.md]"),
        ("types:\n", f"types:\n{LAW}"),
    )
    (rules / "rule-2.md").write_text("---\ndoc_type: law\nrule: 2\ntitle: T2\n---\n# Head\n")
    refused = here("import", str(rules), "--with", other, "--json")
    assert refused.code == 1
    assert left_out(refused) == [
        ("rule-1.md", "it was imported as rule-1, and the plan gives it the id rule-one"),
        ("rule-2.md", "it was imported as a rule, and the plan makes it a law"),
    ]
    assert refused.json["goneFromSource"] == []


def test_a_type_of_an_import_moves_only_with_its_folder(
    here: Any, project: Path, rules: Path, plan: Any
) -> None:
    assert here("import", str(rules)).code == 0
    refused = here("import", str(rules), "--with", plan(("path: rules", "path: laws")))
    assert refused.code == 1
    assert "with other values than the plan" in refused.err


@pytest.mark.parametrize("reindexed", [False, True])
def test_records_that_were_deleted_here_are_listed(
    here: Any, project: Path, rules: Path, reindexed: bool
) -> None:
    assert here("import", str(rules)).code == 0
    assert here("call", "maad_delete", '{"docId": "rule-1"}').code == 0
    (project / "rules/rule-2.md").unlink()
    (project / "rules/kept").mkdir()
    (project / "rules/rule-3.md").rename(project / "rules/kept/rule-3.md")
    if reindexed:
        assert here("reindex").code == 0
    for flags in ((), ("--update",)):
        done = here("import", str(rules), "--json", *flags)
        assert (done.code, done.json["unchanged"]) == (0, 2)
        assert done.json["deletedHere"] == ["rule-1.md", "rule-2.md"]


def test_a_full_disk_stops_the_import_with_one_line(here: Any, project: Path, rules: Path) -> None:
    done = here("import", str(rules), MAADD_FAILPOINTS=FULL)
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert "warning: the import stopped: 0 of 4 stored" in lines
    [line] = [one for one in lines if "WRITE_ERROR" in one]
    assert line.endswith(
        "device; free some space, then run the import again: it goes on where it was"
    )
    assert "another id" not in done.err
    assert here("import", str(rules), "--json").json["created"] == 4


def test_a_fault_of_the_disk_in_the_middle_keeps_what_was_stored(
    here: Any, project: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maadd.cli.importing import run

    monkeypatch.setattr(run, "_CHUNK_RECORDS", 2)
    for number, step in (("EROFS", "make the project writable"), ("EACCES", "give the project")):
        failing = f"file.stage=error:{number}@3"
        done = here("import", str(rules), "--keep-going", MAADD_FAILPOINTS=failing)
        assert done.code == 1
        [line] = [one for one in done.err.splitlines() if "WRITE_ERROR" in one]
        assert step in line
    assert here("import", str(rules), "--json").json["unchanged"] >= 3


def test_bodies_of_rows_keep_their_bytes(here: Any, project: Path, tmp_path: Path) -> None:
    bodies = {"a": "    code\n\n\n", "b": "no end", "c": "---\nx: 1\n---\r\ny\n", "d": "\n\n# D\n"}
    rows = [{"id": key, "n": "x", "body": body} for key, body in bodies.items()]
    rows += [{"id": "e", "n": "x", "body": ["list", 1]}]
    table = tmp_path / "items.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert here("import", str(table)).code == 0
    for key, body in {**bodies, "e": '["list",1]'}.items():
        [path] = (project / "items").glob(f"*-{key}.md")
        with path.open(newline="") as file:
            assert file.read().split("n: x\n---\n", 1)[1] == body
    assert here("import", str(table), "--json").json["unchanged"] == 5
    table.write_text("".join(json.dumps({"id": row["id"], "n": "y"}) + "\n" for row in rows[:1]))
    emptied = json.dumps({"id": "b", "n": "y", "body": None}) + "\n"
    table.write_text(json.dumps(rows[0]) + "\n" + emptied)
    assert here("import", str(table), "--update", "--json").json["updated"] == 1
    [path] = (project / "items").glob("*-b.md")
    assert path.read_text().endswith("n: y\n---\n")


def test_toml_frontmatter_becomes_yaml_and_what_is_passed_over_is_told(
    here: Any, terminal: Any, project: Path, tmp_path: Path
) -> None:
    source = tmp_path / "posts"
    source.mkdir()
    (source / "a.md").write_text("+++\ntitle = 'A'\nmade = 1990\n+++\n\nBody\n\n")
    (source / "b.md").write_text("+++\ntitle = 'B'\nmade = 1980-05-01\n+++\n\nBody\n")
    (source / ".hidden.md").write_text("x")
    (source / "p.png").write_text("x")
    done = here("import", str(source), "--json").json
    assert (done["notMarkdown"], done["notLookedInto"]) == ({".png": 1}, [".hidden.md"])
    text = (project / "posts/post-a.md").read_text()
    assert text.endswith('title: A\nmade: "1990"\n---\n\nBody\n\n')
    told = terminal("--project", str(project), "import", str(source)).out
    assert "not Markdown: 1 .png" in told
    assert "not looked into: .hidden.md" in told


def test_a_project_without_writes_gets_no_types_either(
    here: Any, project: Path, rules: Path
) -> None:
    assert here("reindex").code == 0
    registry = (project / "_registry/object_types.yaml").read_text()
    refused = here("import", str(rules), MAAD_HISTORY_MODE_DEFAULT="read")
    assert refused.code == 1
    assert "PROJECT_READ_ONLY" in refused.err
    assert (project / "_registry/object_types.yaml").read_text() == registry
    assert not (project / "_import/.state").exists()


def test_a_state_that_cannot_be_written_says_what_to_do(
    here: Any, project: Path, rules: Path
) -> None:
    (project / "_import/.state").write_text("x")
    refused = here("import", str(rules))
    assert refused.code == 1
    assert ": Not a directory; mend that, then run the import again" in refused.err


def test_the_plan_of_before_may_name_what_is_gone(here: Any, rules: Path, plan: Any) -> None:
    given = plan(
        ("ids: {}", "ids: {rule-1.md: rule-one}"), ("leave_out: []", "leave_out: [rule-2.md]")
    )
    assert here("import", str(rules), "--with", given).code == 0
    (rules / "rule-1.md").unlink()
    (rules / "rule-2.md").unlink()
    done = here("import", str(rules), "--json")
    assert (done.code, done.json["goneFromSource"]) == (0, ["rule-1.md"])
    assert [one["reason"] for one in done.json["notes"]] == [
        "leave_out: nothing matches 'rule-2.md'",
        "ids: the source has no item 'rule-1.md'",
    ]


def test_records_that_the_engine_would_refuse_are_found_before_anything_is_written(
    here: Any, project: Path, tmp_path: Path
) -> None:
    table = tmp_path / "items.jsonl"
    rows = [{"id": 1, "d": {"a": {"b": {"c": 1}}}}, {"id": 2, "body": "x" * 900}, {"id": 3}]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = here("import", str(table), "--plan").out.splitlines(keepends=True)
    (tmp_path / "plan.yaml").write_text("".join(one for one in plan if "      d: " not in one))
    done = here(
        "import", str(table), "--with", str(tmp_path / "plan.yaml"), "--json",
        MAAD_MAX_DOC_BYTES="900",
    )  # fmt: skip
    assert (done.code, done.json["created"]) == (1, 0)
    found = [(one["line"], one["reason"]) for one in done.json["leftOut"]]
    assert found[0] == (1, "d.a.b is nested too deep")
    assert (found[1][0], "the limit is 900" in found[1][1]) == (2, True)
    assert all("another id" not in one["advice"] for one in done.json["leftOut"])
    assert not (project / "items").exists()
