"""`maad import`, from a folder or table to records in a project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maadd.cli.importing import run
from maadd.cli.oneshot import OneShot
from maadd.protocol.errors import MaadError, MaadErrors

QUICK = {"MAADD_FSYNC": "0"}

RULES: dict[str, bytes] = {
    "rule-1.md": b"---\nrule: 1\ntitle: One  # kept\nstatus: Final\n---\n\n# One\n\n\n",
    "rule-2.md": b"---\nrule: 2\ntitle: 'Two'\nstatus: Final\nrequires: 1\n---\nno blank line",
    "rule-3.md": b"\xef\xbb\xbf---\r\nrule: 3\r\ntitle: Three\r\nstatus: Draft\r\n"
    b"requires: 1, 2\r\nextra: {a: 1}\r\n---\r\n\r\nCRLF\r\n\r\n",
    "rule-4.md": b"---\nrule: 4\ntitle: Four\nstatus: Draft\nrequires: 3\n---\nmixed\r\nends\n\r",
}
BROKEN = {"latin.md": b"caf\xe9", "open.md": b"---\na: 1\n"}

Source = Callable[[dict[str, bytes]], Path]


def body_of(data: bytes) -> bytes:
    """What stands behind the closing fence."""
    return data.split(b"\n---", 1)[1].partition(b"\n")[2]


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def project(maad_here: Any, tmp_path: Path) -> Path:
    """A new project: where the commands of these tests run."""
    assert maad_here("init", "p", env=QUICK).code == 0
    return tmp_path / "p"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    for name, data in RULES.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def here(maad_here: Any, project: Path) -> Any:
    return lambda *arguments: maad_here("--project", str(project), *arguments, env=QUICK)


def test_a_folder_becomes_records_with_their_bodies_byte_for_byte(
    here: Any, project: Path, rules: Path
) -> None:
    done = here("import", str(rules), "--json")
    assert (done.code, done.json["created"], done.json["leftOut"]) == (0, 4, [])
    for name, data in RULES.items():
        written = (project / "rules" / name).read_bytes()
        assert body_of(written) == body_of(data)
        assert written.startswith(b"\xef\xbb\xbf") == data.startswith(b"\xef\xbb\xbf")
        assert (rules / name).read_bytes() == data
    assert (project / "rules/rule-1.md").read_bytes().splitlines()[:7] == [
        b"---", b"doc_id: rule-1", b"doc_type: rule", b"schema: rule.v1",
        b"rule: 1", b"title: One  # kept", b"status: Final",
    ]  # fmt: skip
    assert here("validate", "--json").json["valid"] == 4
    found = here("query", "rule", "--filter", "requires=rule-1", "--json")
    assert sorted(row["docId"] for row in found.json) == ["rule-2", "rule-3"]
    assert here("get", "rule-3", "--json").json["frontmatter"]["extra"] == {"a": 1}


def test_types_and_records_are_one_commit_each_and_a_second_run_does_nothing(
    here: Any, project: Path, rules: Path
) -> None:
    assert here("import", str(rules)).code == 0
    subjects = git(project, "log", "--format=%s").splitlines()
    assert len(subjects) == 3
    assert subjects[0].endswith("4 records created")
    assert subjects[1] == "Types for the import of rules: rule"
    assert git(project, "status", "--porcelain") == ""
    before = {path: path.stat().st_mtime_ns for path in (project / "rules").iterdir()}
    again = here("import", str(rules), "--json")
    assert (again.code, again.json["created"], again.json["unchanged"]) == (0, 0, 4)
    assert {path: path.stat().st_mtime_ns for path in (project / "rules").iterdir()} == before
    assert len(git(project, "log", "--format=%s").splitlines()) == 3


def test_somebodys_staged_work_is_no_part_of_the_commits(
    here: Any, project: Path, rules: Path
) -> None:
    (project / "mine.txt").write_text("x")
    git(project, "add", "mine.txt")
    assert here("import", str(rules)).code == 0
    assert git(project, "diff", "--cached", "--name-only").split() == ["mine.txt"]


def test_a_plan_can_be_written_edited_and_followed(
    here: Any, project: Path, rules: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    assert here("import", str(rules), "--plan", str(plan)).code == 0
    assert not (project / "rules").exists()
    assert here("import", str(rules), "--plan", str(plan)).code == 1
    text = plan.read_text()
    assert "  rule:  # 4 items\n" in text
    plan.write_text(
        text.replace("path: rules", "path: law").replace(
            "rule: {type: number", "rule: {type: string"
        )
    )
    assert here("import", str(rules), "--with", str(plan)).code == 0
    assert (project / "law/rule-2.md").exists()
    assert b'rule: "2"' in (project / "law/rule-2.md").read_bytes()
    assert here("import", str(rules), "--json").json["unchanged"] == 4


def test_plan_alone_shows_it(here: Any, project: Path, rules: Path) -> None:
    shown = here("import", str(rules), "--plan")
    assert shown.out.startswith("# Plan of `maad import`")
    assert here("import", "--plan", str(rules)).out == shown.out
    data = here("import", str(rules), "--plan", "--json").json
    assert data["types"] == {"rule": 4}
    assert not (project / "_import/.state").exists()


def test_a_person_sees_the_plan_as_tables(terminal: Any, project: Path, rules: Path) -> None:
    shown = terminal("--project", str(project), "import", str(rules), "--plan")
    assert shown.code == 0
    assert "fields of rule" in shown.out
    assert "list of ref rule" in shown.out
    assert "enum: Draft, Final" in shown.out


def test_what_cannot_be_imported_stops_everything_unless_told(
    here: Any, project: Path, rules: Path, tmp_path: Path
) -> None:
    for name, data in BROKEN.items():
        (rules / name).write_bytes(data)
    refused = here("import", str(rules), "--json")
    assert (refused.code, refused.json["created"]) == (1, 0)
    assert [(one["source"], one["line"]) for one in refused.json["leftOut"]] == [
        ("latin.md", 1),
        ("open.md", 1),
    ]
    assert not (project / "rules").exists()
    assert (project / "_registry/object_types.yaml").read_text() == "types: {}\n"
    assert here("import", str(rules), "--keep-going").code == 1
    assert len(list((project / "rules").iterdir())) == 4
    (rules / "latin.md").write_bytes(b"---\nrule: 5\ntitle: x\nstatus: Final\n---\n")
    plan = tmp_path / "plan.yaml"
    assert here("import", str(rules), "--plan", str(plan)).code == 0
    plan.write_text(plan.read_text().replace("leave_out: []", "leave_out: [open.md]"))
    last = here("import", str(rules), "--with", str(plan), "--json")
    assert (last.code, last.json["created"], last.json["unchanged"]) == (0, 1, 4)


def test_a_source_that_changed_is_told_and_taken_over_when_asked(
    here: Any, project: Path, rules: Path
) -> None:
    assert here("import", str(rules)).code == 0
    (rules / "rule-1.md").write_bytes(RULES["rule-1.md"] + b"more\r\n")
    (rules / "rule-2.md").write_bytes(RULES["rule-2.md"] + b" more")
    (rules / "rule-4.md").unlink()
    record = project / "rules/rule-2.md"
    record.write_bytes(record.read_bytes() + b" edited here")
    told = here("import", str(rules), "--json").json
    assert told["changedAtSource"] == ["rule-1.md", "rule-2.md"]
    assert told["goneFromSource"] == ["rule-4.md"]
    done = here("import", str(rules), "--update", "--json")
    assert (done.code, done.json["updated"]) == (1, 1)
    [conflict] = done.json["leftOut"]
    assert conflict["source"] == "rule-2.md"
    assert conflict["reason"] == "rule-2 was edited here since it was imported"
    assert (project / "rules/rule-1.md").read_bytes().endswith(b"\n\n\nmore\r\n")
    assert record.read_bytes().endswith(b" edited here")
    assert here("get", "rule-1", "--json").json["version"] == 2


def test_without_its_state_an_import_recognizes_its_records(
    here: Any, project: Path, rules: Path
) -> None:
    assert here("import", str(rules)).code == 0
    for path in (project / "_import/.state").rglob("*.*"):
        path.unlink()
    assert here("import", str(rules), "--json").json["unchanged"] == 4
    for path in (project / "_import/.state").rglob("*.*"):
        path.unlink()
    record = project / "rules/rule-1.md"
    record.write_bytes(record.read_bytes() + b"edited")
    again = here("import", str(rules), "--keep-going", "--json")
    assert again.code == 1
    [misfit] = again.json["leftOut"]
    assert misfit["reason"] == "rules/rule-1.md is there already and says something else"


def test_an_import_that_was_stopped_goes_on(
    here: Any, project: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    call = OneShot.call

    def narrow(self: OneShot, tool: str, args: Any) -> Any:
        if tool == "maad_bulk_create":
            calls.append(len(args["records"]))
            if len(args["records"]) > 2:
                details = {"limit": 2}
                raise MaadErrors([MaadError("BULK_LIMIT_EXCEEDED", "too many", details)])
            if len(calls) == 3:
                raise KeyboardInterrupt
        return call(self, tool, args)

    with monkeypatch.context() as patch:
        patch.setattr(OneShot, "call", narrow)
        assert here("import", str(rules)).code == 130
    assert calls == [4, 2, 2]
    assert len(list((project / "rules").iterdir())) == 2
    state = next((project / "_import/.state").iterdir()) / "done.jsonl"
    state.write_bytes(state.read_bytes()[:-5])
    done = here("import", str(rules), "--json")
    assert (done.code, done.json["created"], done.json["unchanged"]) == (0, 2, 2)
    assert len(list((project / "rules").iterdir())) == 4
    assert here("import", str(rules), "--json").json["unchanged"] == 4


def test_large_imports_are_stored_in_parts(
    here: Any, project: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_CHUNK_RECORDS", 3)
    assert here("import", str(rules)).code == 0
    bulk = [one for one in git(project, "log", "--format=%s").splitlines() if "bulk:" in one]
    assert [one.rpartition("bulk:")[2].split()[0] for one in bulk] == ["1", "3"]


def test_tables_become_records_and_rows_may_move(here: Any, project: Path, tmp_path: Path) -> None:
    table = tmp_path / "items.csv"
    table.write_text("sku,name,made,body\nA-1,Bolt,2024-01-02,Text\nA-2,Nut,2024-02-03,\n")
    assert here("import", str(table)).code == 0
    assert (project / "items/item-A-1.md").read_text().endswith("\n---\nText")
    table.write_text("sku,name,made,body\nA-2,Nut,2024-02-03,\nA-1,Screw,,Text\nA-3,Gear,,\n")
    done = here("import", str(table), "--update", "--json").json
    assert (done["created"], done["updated"], done["unchanged"]) == (1, 1, 1)
    fields = here("get", "item-A-1", "--json").json["frontmatter"]
    assert fields["name"] == "Screw"
    assert "made" not in fields


def test_types_that_are_there_are_used_as_they_are(
    here: Any, project: Path, tmp_path: Path
) -> None:
    registry = project / "_registry/object_types.yaml"
    text = "# ours\r\ntypes:\r\n  note:   # of old\r\n    path: notes\r\n    id_prefix: nt\r\n"
    text += "    schema: note.v1\r\n\r\n# the end\r\nextraction: {}\r\n"
    registry.write_bytes(text.encode())
    schema = project / "_schema/note.v1.yaml"
    schema.write_text("type: note\nrequired: [doc_id]\nfields:\n  pages: {type: number}\n")
    source = tmp_path / "material"
    for name, data in {
        "Notes/a.md": "---\npages: '3'\n---\n",
        "Tasks/b.md": "---\nx: 1\n---\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(data)
    assert here("import", str(source)).code == 0
    assert b"pages: 3\n" in (project / "notes/nt-a.md").read_bytes()
    assert registry.read_bytes().decode() == text.replace(
        "note.v1\r\n\r\n",
        "note.v1\r\n  task:\r\n    path: tasks\r\n    id_prefix: task\r\n"
        "    schema: task.v1\r\n\r\n",
    )
    assert schema.read_text().startswith("type: note\nrequired")


def test_a_registry_that_lines_cannot_be_added_to_is_left_alone(
    here: Any, project: Path, rules: Path
) -> None:
    registry = project / "_registry/object_types.yaml"
    text = "types: {note: {path: notes, id_prefix: nt, schema: note.v1}}\n"
    registry.write_text(text)
    (project / "_schema/note.v1.yaml").write_text("type: note\nfields: {}\n")
    refused = here("import", str(rules))
    assert refused.code == 1
    assert "  rule:\n    path: rules\n    id_prefix: rule\n    schema: rule.v1" in refused.err
    assert registry.read_text() == text
    assert not (project / "_schema/rule.v1.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "PATH_NOT_FOUND"),
        (["p"], "part of the project itself"),
        (["one.md"], "give the folder that it is in"),
        (["rules", "--with", "none.yaml"], "FILE_READ_ERROR"),
    ],
)
def test_sources_that_are_none(
    here: Any, rules: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "one.md").write_text("x")
    done = here("import", *arguments)
    assert done.code == 1
    assert message in done.err


def test_an_import_without_a_source_or_a_project(maad_here: Any, tmp_path: Path) -> None:
    assert maad_here("import").code == 2
    os.mkdir(tmp_path / "x")
    done = maad_here("import", "x")
    assert done.code == 1
    assert "REGISTRY_NOT_FOUND" in done.err


def test_new_folders_of_a_source_need_a_new_plan_which_uses_the_types_there_are(
    here: Any, project: Path, tmp_path: Path
) -> None:
    source = tmp_path / "vault"
    for name in ("People/Ana.md", "Notes/one.md"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("See [[Ana]].")
    assert here("import", str(source), "--links", "refs").code == 0
    (source / "Ideas").mkdir()
    (source / "Ideas/x.md").write_text("text")
    (source / "Notes/two.md").write_text("[[Ana]] again")
    refused = here("import", str(source), "--json")
    assert refused.code == 1
    assert "--replan" in refused.json["leftOut"][0]["advice"]
    done = here("import", str(source), "--links", "refs", "--replan", "--json")
    assert (done.code, done.json["created"], done.json["unchanged"]) == (0, 2, 2)
    two = here("get", "note-two", "--json").json["frontmatter"]
    assert (two["title"], two["links_person"]) == ("two", ["prs-ana"])


def test_a_folder_without_anything_is_told(here: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = here("import", str(tmp_path / "empty"))
    assert done.code == 0
    assert "holds nothing that can be imported" in done.err
