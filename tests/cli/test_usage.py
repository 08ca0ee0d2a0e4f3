"""Help, unknown words, the version, completion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maadd import __version__


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",), ("-h",)])
def test_help_lists_the_commands_and_succeeds(maad: Any, arguments: tuple[str, ...]) -> None:
    done = maad(*arguments)
    assert done.code == 0
    assert "Bring the index up to date" in done.out
    assert done.err == ""


def test_an_unknown_command_shows_help_and_the_likely_one(maad: Any) -> None:
    done = maad("qurey", "note")
    assert done.code == 1
    assert done.out == ""
    assert "Commands:" in done.err
    assert "unknown command 'qurey'; did you mean 'query'?" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--colour", "version"),
        ("version", "--colour"),
        ("get", "nt-tide", "--depth=cold"),
        ("serve", "--port=1"),
        ("auth", "issue-token", "--role=reader", "--projects=*", "--agnet=a"),
    ],
)
def test_an_unknown_flag_is_wrong_usage(maad_here: Any, arguments: tuple[str, ...]) -> None:
    done = maad_here(*arguments)
    assert done.code == 2
    assert "No such option" in done.err


@pytest.mark.parametrize("arguments", [("version",), ("--version",), ("-v",)])
def test_version(maad: Any, arguments: tuple[str, ...]) -> None:
    assert maad(*arguments).out == f"{__version__}\n"


def test_version_as_json(maad_here: Any) -> None:
    assert maad_here("version", "--json").json == {"version": __version__}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_completion_script(maad_here: Any, shell: str) -> None:
    done = maad_here("completion", shell)
    assert done.code == 0
    assert "_MAAD_COMPLETE" in done.out


def test_a_shell_that_asks_gets_commands_and_flags(maad: Any) -> None:
    ask = {"_MAAD_COMPLETE": "bash_complete"}
    commands = maad(env=ask | {"COMP_WORDS": "maad rei", "COMP_CWORD": "1"})
    flags = maad(env=ask | {"COMP_WORDS": "maad reindex --f", "COMP_CWORD": "2"})
    assert commands.out.split() == ["plain,reindex"]
    assert flags.out.split() == ["plain,--force"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--project=a", "--instance=b", "query", "note"),
        ("query", "note", "--instance", "b", "--project", "a"),
        ("--instance=b", "serve", "--project=a"),
    ],
)
def test_project_and_instance_exclude_each_other(
    maad_here: Any, arguments: tuple[str, ...]
) -> None:
    done = maad_here(*arguments)
    assert done.code == 1
    assert "INSTANCE_CONFIG_INVALID: --project and --instance are both given" in done.err


def test_record_commands_want_a_project(maad_here: Any) -> None:
    done = maad_here("--instance=i.yaml", "get", "nt-tide")
    assert done.code == 2
    assert "--project" in done.err


# -- the forms that every reading command shares (spec 04 §19) ---------------------------------

READS = [
    ("summary",),
    ("describe",),
    ("schema", "asset"),
    ("get", "ast-1"),
    ("query", "asset"),
    ("search", "entity"),
    ("related", "ast-1"),
    ("relationship-paths", "ast-1"),
    ("aggregate", "site"),
    ("join", "asset", "vendor"),
    ("verify", "count", "asset", "3"),
    ("verify", "field", "ast-1", "site", "north"),
    ("verify", "integrity", "--type=vendor"),
    ("orphans", "--type=vendor"),
    ("changes",),
    ("history", "ast-1"),
    ("audit",),
    ("validate",),
    ("call", "maad_summary"),
]


@pytest.mark.parametrize("read", READS, ids=" ".join)
def test_the_project_may_stand_anywhere_in_either_form(
    maad_here: Any, yard: Path, read: tuple[str, ...]
) -> None:
    first = maad_here("--project", str(yard), *read)
    assert (first.code, first.err) == (0, "")
    assert first.out == json.dumps(first.json, indent=2, ensure_ascii=False) + "\n"
    last = maad_here(*read, f"--project={yard}", "--json")
    assert (last.code, _steady(last.json)) == (0, _steady(first.json))
    variable = maad_here(*read, env={"MAAD_PROJECT": str(yard)})
    assert (variable.code, _steady(variable.json)) == (0, _steady(first.json))


def _steady(answer: Any) -> Any:
    """Without the times of the call itself."""
    if not isinstance(answer, dict):
        return answer
    return {name: one for name, one in answer.items() if name not in ("completedAt", "durationMs")}


@pytest.mark.parametrize("read", READS, ids=" ".join)
def test_refusals_of_every_reading_command(
    maad_here: Any, tmp_path: Path, read: tuple[str, ...]
) -> None:
    unknown = maad_here(*read, "--no-such-flag=1")
    assert (unknown.code, unknown.out) == (2, "")
    assert "No such option" in unknown.err
    nowhere = maad_here(*read)
    assert (nowhere.code, nowhere.out) == (1, "")
    lines = nowhere.err.splitlines()
    assert lines[0].startswith("maad ")
    assert lines[0].endswith(" failed")
    assert lines[1].startswith("  REGISTRY_NOT_FOUND: ")
    both = maad_here(*read, env={"MAAD_PROJECT": "a", "MAAD_INSTANCE": "b"})
    assert (both.code, both.out) == (1, "")
    assert "INSTANCE_CONFIG_INVALID: " in both.err
    instance = maad_here(*read, "--instance", "i.yaml")
    assert (instance.code, instance.out) == (2, "")


def test_a_flag_wins_over_a_variable_of_the_other_kind(maad_here: Any, yard: Path) -> None:
    done = maad_here("--project", str(yard), "summary", env={"MAAD_INSTANCE": "/nowhere.yaml"})
    assert (done.code, done.json["totalDocuments"]) == (0, 5)


def test_where_one_stands_is_the_project(maad: Any, yard: Path) -> None:
    assert maad("summary", cwd=yard).json["totalDocuments"] == 5


def test_filters_are_equalities_that_all_hold(maad_here: Any, yard: Path) -> None:
    def found(*arguments: str) -> list[str]:
        rows = maad_here("--project", str(yard), "query", "asset", *arguments).json
        return [row["docId"] for row in rows]

    assert found("--filter", "site=south", "--sort=docId") == ["ast-2", "ast-3"]
    assert found("--filter=site=south", "--filter=weight=3") == ["ast-2"]
    assert found("--filter", "name=a=b") == []
    assert found("--limit=1", "--offset=1", "--sort=docId") == ["ast-2"]
