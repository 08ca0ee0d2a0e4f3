"""How the `git` program is run: environment, settings, time (spec 03 §9.2)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from maadd_worker.history.command import child_environment, git_arguments, run_git
from maadd_worker.history.outcome import GitFailure

UNWANTED = (
    "EDITOR", "VISUAL", "PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_ASKPASS",
    "SSH_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_PROXY_COMMAND",
    "GIT_EXTERNAL_DIFF", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
)  # fmt: skip


def test_a_child_can_neither_ask_nor_be_led_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNWANTED:
        monkeypatch.setenv(name, "/bin/false")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/elsewhere")
    environment = child_environment("/srv/project", {"GIT_AUTHOR_NAME": "Engine"})
    assert not environment.keys() & set(UNWANTED)
    assert (
        environment.items()
        >= {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CEILING_DIRECTORIES": "/srv",
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": "/elsewhere",
            "GIT_AUTHOR_NAME": "Engine",
            "LANG": "de_DE.UTF-8",
        }.items()
    )


def test_no_run_collects_garbage_signs_or_runs_hooks_by_itself() -> None:
    words = git_arguments(["status"])
    settings = [after for word, after in itertools.pairwise(words) if word == "-c"]
    assert (words[0], words[-1]) == ("git", "status")
    assert {
        "gc.auto=0", "core.quotepath=false", "commit.gpgsign=false", "tag.gpgsign=false",
        "core.hooksPath=/dev/null",
    } <= set(settings)  # fmt: skip


def test_without_the_program_a_run_is_a_failure_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailure) as failure:
        run_git(str(tmp_path), ["status"])
    assert failure.value.code == "GIT_UNKNOWN_ERROR"
