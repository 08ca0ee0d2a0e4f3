"""`maad import` after a run that was killed: what it had written is known as its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from maadd.cli.importing import run
from maadd.cli.oneshot import OneShot

QUICK = {"MAADD_FSYNC": "0"}
POINTS = ("file.published=kill@2", "index.committed=kill", "git.moved=kill", "reply.ready=kill")


@pytest.fixture
def project(maad_here: Any, tmp_path: Path) -> Path:
    assert maad_here("init", "p", env=QUICK).code == 0
    return tmp_path / "p"


@pytest.fixture
def here(maad_here: Any, project: Path) -> Any:
    return lambda *arguments: maad_here("--project", str(project), *arguments, env=QUICK)


def revise(folder: Path, revision: int) -> Path:
    folder.mkdir(exist_ok=True)
    for number in (1, 2, 3, 4):
        text = f"---\nrule: {number}\nrev: {revision}  # noted\n---\n# Head {revision}\n"
        (folder / f"rule-{number}.md").write_text(text)
    return folder


def revisions(project: Path) -> str:
    texts = [(project / f"rules/rule-{n}.md").read_text() for n in (1, 2, 3, 4)]
    return "".join(text.partition("rev: ")[2][0] for text in texts)


def dirty(project: Path) -> str:
    command = ["git", "status", "--porcelain", "rules"]
    return subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("changed_again", [False, True])
def test_a_killed_update_goes_on(
    maad: Any, here: Any, project: Path, tmp_path: Path, point: str, changed_again: bool
) -> None:
    rules = revise(tmp_path / "rules", 1)
    assert here("import", str(rules)).code == 0
    revise(rules, 2)
    arguments = ("--project", str(project), "import", str(rules), "--update")
    killed = maad(*arguments, env=QUICK | {"MAADD_FAILPOINTS": point})
    assert killed.code == -9
    assert "2" in revisions(project)
    revision = "3" if changed_again else "2"
    revise(rules, int(revision))
    assert here("query", "rule").code == 0, "any command finishes what the journal has"
    done = here("import", str(rules), "--update", "--json")
    assert (done.code, done.json["leftOut"]) == (0, [])
    assert done.json["unchanged"] + done.json["updated"] == 4
    assert revisions(project) == revision * 4
    assert dirty(project) == ""
    assert here("import", str(rules), "--json").json["unchanged"] == 4


def test_a_killed_import_knows_its_records_when_the_source_has_changed(
    maad: Any, here: Any, project: Path, tmp_path: Path
) -> None:
    rules = revise(tmp_path / "rules", 1)
    arguments = ("--project", str(project), "import", str(rules))
    killed = maad(*arguments, env=QUICK | {"MAADD_FAILPOINTS": "file.published=kill@2"})
    assert killed.code == -9
    revise(rules, 2)
    done = here("import", str(rules), "--update", "--json")
    assert (done.code, done.json["leftOut"]) == (0, [])
    assert revisions(project) == "2222"
    assert dirty(project) == ""


def test_what_was_edited_after_the_kill_is_still_nobody_elses(
    maad: Any, here: Any, project: Path, tmp_path: Path
) -> None:
    rules = revise(tmp_path / "rules", 1)
    assert here("import", str(rules)).code == 0
    revise(rules, 2)
    arguments = ("--project", str(project), "import", str(rules), "--update")
    maad(*arguments, env=QUICK | {"MAADD_FAILPOINTS": "index.committed=kill"})
    record = project / "rules/rule-1.md"
    record.write_text(record.read_text().replace("# noted", "# my note"))
    revise(rules, 3)
    done = here("import", str(rules), "--update", "--json")
    [misfit] = done.json["leftOut"]
    assert misfit["reason"] == "rule-1 was edited here since it was imported"
    assert "my note" in record.read_text()


def test_a_record_that_was_made_the_same_by_hand_counts_as_taken_over(
    here: Any, project: Path, tmp_path: Path
) -> None:
    rules = revise(tmp_path / "rules", 1)
    assert here("import", str(rules)).code == 0
    for path in (project / "rules").iterdir():
        path.write_text(path.read_text().replace("rev: 1", "rev: 2").replace("Head 1", "Head 2"))
    revise(rules, 2)
    for _ in range(2):
        told = here("import", str(rules), "--json").json
        assert (told["unchanged"], told["changedAtSource"]) == (4, [])


@pytest.mark.parametrize("head", ["sku,name,made\n", "sku,name,made,body\n"])
def test_a_table_goes_on_between_and_within_portions(
    here: Any, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    table = tmp_path / "items.csv"
    tail = ",Text\n" if "body" in head else "\n"

    def fill(name: str, made: str) -> None:
        rows = [f"A-{n},{name},{made}{tail}" for n in (1, 2, 3)]
        table.write_text(head + "".join([*rows, f"A-4,Washer,{tail}"]))

    fill("Bolt", "2024-01-02")
    assert here("import", str(table)).code == 0
    fill("Nut", "")
    calls: list[str] = []
    call = OneShot.call

    def stopped(self: OneShot, tool: str, args: Any) -> Any:
        answer = call(self, tool, args)
        calls.append(tool)
        if calls.count("maad_bulk_update") == 2:
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(run, "_CHUNK_RECORDS", 1)
        patch.setattr(OneShot, "call", stopped)
        assert here("import", str(table), "--update").code == 130
    fill("Gear", "2024-05-06")
    done = here("import", str(table), "--update", "--json")
    assert (done.code, done.json["updated"], done.json["leftOut"]) == (0, 3, [])
    assert here("get", "item-A-2", "--json").json["frontmatter"]["name"] == "Gear"
