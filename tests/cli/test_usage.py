"""Help, unknown words, the version, completion."""

from __future__ import annotations

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
