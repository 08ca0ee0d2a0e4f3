"""`maad summary`, `describe`, `schema`, `search`, `related`, `history`, `audit`, `call`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from maadd.cli import lookups
from maadd.cli.main import root as command_group


@pytest.fixture
def run(maad: Any, project: Path) -> Any:
    """`maad` on the indexed project, from inside it."""
    schema = project / "_schema/note.v1.yaml"
    schema.write_text(schema.read_text() + "  see: {type: ref, target: note, index: true}\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    created = maad(
        "create", "note", "--id", "nt-sea", "--field", "title=Sea", "--field", "see=nt-fog",
        cwd=project,
    )  # fmt: skip
    assert created.code == 0, created.err

    def inside(*arguments: str) -> Any:
        return maad(*arguments, cwd=project)

    return inside


def test_what_the_project_holds(run: Any) -> None:
    assert run("summary").json["totalDocuments"] == 4
    assert [one["type"] for one in run("describe").json["registryTypes"]] == ["note"]
    fields = {one["name"]: one for one in run("schema", "note").json["fields"]}
    assert fields["stage"]["values"] == ["draft", "done"]
    unknown = run("schema", "nothing")
    assert unknown.code == 1
    assert "  UNKNOWN_TYPE: " in unknown.err


def test_search_prints_the_results_list(run: Any) -> None:
    found = run("search", "entity", "--subtype", "title", "--contains", "wind").json
    assert [one["docId"] for one in found] == ["nt-wind"]
    found = run("search", "entity", "--value", "sea", "--doc", "nt-tide").json
    assert {one["docId"] for one in found} == {"nt-tide"}
    assert run("search", "entity", "--subtype", "title", "--query=nowhere").json == []
    page = run("search", "entity", "--subtype", "title", "--limit=1", "--offset", "1").json
    assert len(page) == 1
    unknown = run("search", "colour")
    assert unknown.code == 1
    assert "  INVALID_PRIMITIVE: " in unknown.err


def test_related_records_in_either_direction(run: Any) -> None:
    assert [one["docId"] for one in run("related", "nt-sea").json["outgoing"]] == ["nt-fog"]
    incoming = run("related", "nt-fog", "incoming").json
    assert [one["docId"] for one in incoming["incoming"]] == ["nt-sea"]
    assert run("related", "nt-sea", "sideways").code == 2


def test_history_and_activity_come_from_git(run: Any) -> None:
    [commit] = run("history", "nt-sea").json
    assert (commit["action"], commit["docId"]) == ("create", "nt-sea")
    assert run("history", "nt-sea", "--since", "2090-01-01").json == []
    [record] = run("audit", "--type", "note").json
    assert (record["docId"], record["actions"]) == ("nt-sea", 1)
    assert run("audit", "--until", "2001-01-01").json == []


def test_any_tool_of_the_project_can_be_called(run: Any) -> None:
    counted = run("call", "maad_aggregate", '{"docType": "note", "groupBy": "stage"}')
    assert counted.code == 0
    groups = {one["value"]: one["count"] for one in counted.json["groups"]}
    assert groups["draft"] == 2
    assert run("call", "maad_changes_since").json["hasMore"] is False
    renamed = run("call", "maad_update", '{"docId": "nt-sea", "fields": {"title": "Ocean"}}')
    assert renamed.json["version"] == 2
    refused = run("call", "maad_get", '{"docID": "nt-sea"}')
    assert refused.code == 1
    assert "  INVALID_ARGS: " in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("maad_gett",), "did you mean 'maad_get'?"),
        (("maad_list_tokens",), "no tool of a project"),
        (("maad_get", "{docId"), "the arguments are not JSON"),
        (("maad_get", '["nt-sea"]'), "the arguments are an object"),
    ],
)
def test_a_call_that_cannot_be_made_is_wrong_usage(
    maad_here: Any, arguments: tuple[str, ...], said: str
) -> None:
    ended = maad_here("call", *arguments)
    assert ended.code == 2
    assert said in ended.err


def test_people_get_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: dict[str, Any] = {
        "maad_search": {"results": [{"docId": "nt-a", "value": "[sea]", "sourceLine": 7}]},
        "maad_related": {"incoming": [{"docId": "nt-b", "docType": "note", "field": "see"}]},
        "maad_history": [],
    }
    monkeypatch.setattr(lookups, "call_tool", lambda tool, _args: answers[tool])
    monkeypatch.setattr(lookups, "wants_json", lambda _as_json: False)
    for arguments, shown in (
        (["search", "entity"], ["docId", "nt-a", "[sea]", "7"]),
        (["related", "nt-a"], ["direction", "incoming", "see", "nt-b", "note"]),
        (["history", "nt-a"], ["none"]),
    ):
        with command_group.make_context("maad", list(arguments)) as ctx:
            command_group.invoke(ctx)
        out = capsys.readouterr().out
        assert all(text in out for text in shown), out


def test_every_command_says_what_it_does() -> None:
    context = click.Context(command_group)
    for name in ("summary", "describe", "schema", "search", "related", "history", "audit", "call"):
        command = command_group.get_command(context, name)
        assert command is not None
        assert command.help
