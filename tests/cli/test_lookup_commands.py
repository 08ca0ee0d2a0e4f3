"""`maad summary`, `describe`, `schema`, `search`, `related`, `history`, `audit`, `call`."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from maadd.cli.main import root as command_group
from maadd.protocol.tools import TOOLS


@pytest.fixture
def run(maad_here: Any, project: Path) -> Any:
    """`maad` on the indexed project."""
    schema = project / "_schema/note.v1.yaml"
    schema.write_text(schema.read_text() + "  see: {type: ref, target: note, index: true}\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)

    def inside(*arguments: str) -> Any:
        return maad_here("--project", str(project), *arguments)

    created = inside(
        "create", "note", "--id", "nt-sea", "--field", "title=Sea", "--field", "see=nt-fog"
    )
    assert created.code == 0, created.err
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


def test_records_by_what_their_bodies_say(run: Any, environment: dict[str, str]) -> None:
    off = run("semantic-search", "words")
    assert off.code == 1
    assert "  SEMANTIC_DISABLED: " in off.err
    environment["MAAD_SEMANTIC_ENABLE"] = "1"
    assert (
        run("create", "note", "--id", "nt-x", "--field", "title=X", "--body", "a valve").code == 0
    )
    data = run("semantic-search", "valve").json
    assert (data["mode"], data["total"]) == ("exact", 1)
    assert [one["docId"] for one in data["results"]] == ["nt-x"]
    assert data["results"][0]["snippet"]
    [bare] = run("semantic-search", "valve", "--no-snippet").json["results"]
    assert bare["snippet"] == ""
    assert run("semantic-search", "valve", "--filter", "title=Y").json["results"] == []
    less = run("semantic-search", "valve", "--mode", "hybrid", "--limit=1", "--json").json
    assert less["results"][0]["docId"] == "nt-x"
    assert less["degraded"] == "no_vector_provider"
    assert less["limitations"] == ["no_vector_provider", "embeddings_pending"]


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


def test_any_tool_of_the_project_can_be_called(run: Any, monkeypatch: Any) -> None:
    counted = run("call", "maad_aggregate", '{"docType": "note", "groupBy": "stage"}')
    assert counted.code == 0
    groups = {one["value"]: one["count"] for one in counted.json["groups"]}
    assert groups["draft"] == 2
    assert run("call", "maad_changes_since").json["hasMore"] is False
    renamed = run("call", "maad_update", '{"docId": "nt-sea", "fields": {"title": "Ocean"}}')
    assert renamed.json["version"] == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"docId": "nt-sea"}')))
    assert run("call", "maad_get", "-").json["frontmatter"]["title"] == "Ocean"
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


def every_command() -> list[tuple[str, click.Command]]:
    """All commands and subcommands with their names on the line."""
    context = click.Context(command_group)
    found = []
    for name in command_group.list_commands(context):
        command = command_group.get_command(context, name)
        assert command is not None, name
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {inner}", one) for inner, one in command.commands.items()]
    return found


def test_every_command_says_what_it_does() -> None:
    names = [name for name, command in every_command() if command.help]
    assert names == [name for name, _ in every_command()]


def test_every_reading_tool_has_a_command() -> None:
    """Strict tools belong to hosts, and what changes the server to its operator."""
    words = {name for name, _ in every_command()}
    other_names = {"find_orphans": "orphans", "changes_since": "changes"}
    for spec in TOOLS.values():
        word = spec.name.removeprefix("maad_")
        if spec.strict or not (spec.available and spec.read_only_hint and spec.routed):
            continue
        if word != "health":
            assert other_names.get(word, word).replace("_", "-") in words, spec.name


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("maad rel", ["related", "relationship-paths"]),
        ("maad or", ["orphans"]),
        ("maad verify c", ["count"]),
        ("maad aggregate --h", ["--having", "--help"]),
        ("maad relationship-paths a --direction i", ["incoming"]),
        ("maad verify integrity --category h", ["hash_drift"]),
        ("maad scan ", ["file"]),
    ],
)
def test_a_shell_completes_commands_flags_and_values(
    maad_here: Any, words: str, offered: list[str]
) -> None:
    asked = {
        "_MAAD_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = maad_here(env=asked)
    found = [line.split(",") for line in done.out.split()]
    assert [kind if kind != "plain" else text for kind, text in found] == offered


# -- texts that are no Unicode ---------------------------------------------------------------


def texts_of(command: click.Command) -> list[click.Parameter]:
    """The parameters that take any text which is no path."""
    return [
        param for param in command.params if isinstance(param.type, click.types.StringParamType)
    ]


BROKEN = [
    (name, param.opts[0] if isinstance(param, click.Option) else param.name)
    for name, command in every_command()
    for param in texts_of(command)
]


@pytest.mark.parametrize(("name", "parameter"), BROKEN)
def test_no_argument_may_be_undecodable_bytes(maad_here: Any, name: str, parameter: str) -> None:
    command = dict(every_command())[name]
    words = name.split()
    reached = False
    for param in command.params:
        broken = parameter in (param.name, param.opts[0])
        word = getattr(param.type, "choices", ["\udcff" if broken else "1"])[0]
        if isinstance(param, click.Argument) and (param.required or not reached):
            words.append(word)
        elif isinstance(param, click.Option) and (param.required or broken):
            words.append(f"{param.opts[0]}={word}")
        reached = reached or broken
    done = maad_here(*words)
    assert (done.code, done.out) == (1, ""), done.err
    assert "  INVALID_ARGS: " in done.err
    assert "'\\udcff' is not valid UTF-8" in done.err


def test_the_real_shell_passes_such_bytes_on(maad: Any, yard: Path) -> None:
    done = maad("search", "date", "--value", os.fsdecode(b"\xff"), cwd=yard)
    assert done.code == 1
    assert "INVALID_ARGS: --value: '\\udcff' is not valid UTF-8" in done.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("call", "maad_get", '{"docId": "\\ud800"}'), "maad_get: docId: "),
        (
            ("call", "maad_query", '{"docType": "asset", "filters": {"name": ["\\udfff"]}}'),
            "filters.n",
        ),
        (("call", "maad_query", '{"docType": "asset", "limit": 36893488147419103232}'), "limit: "),
        (("create", "asset", "--json-field", 'name="\\ud800"'), "maad_create: fields.name: "),
        (("verify", "field", "ast-1", "name", "--json-value", '["\\ud800"]'), "expected[0]: "),
    ],
)
def test_nor_half_a_character_in_json(
    maad_here: Any, yard: Path, arguments: tuple[str, ...], named: str
) -> None:
    done = maad_here("--project", str(yard), *arguments)
    assert (done.code, done.out) == (1, "")
    assert "  INVALID_ARGS: " in done.err
    assert named in done.err


def test_a_project_where_sqlite_cannot_follow_is_refused(maad: Any, tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/p\xff")
    os.mkdir(folder)
    for arguments, code, cwd in (
        (("init", folder), "INVALID_ARGS", tmp_path),
        (("--project", folder, "summary"), "INVALID_ARGS", tmp_path),
        (("init",), "INSTANCE_CONFIG_INVALID", folder),
    ):
        done = maad(*arguments, cwd=cwd)
        assert (done.code, done.out) == (1, "")
        assert f"  {code}: " in done.err
    assert os.listdir(folder) == []
