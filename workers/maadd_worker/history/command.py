"""Runs the `git` program: argument lists, cleaned environment, bounded time (spec 03 §9.2)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from maadd_worker.history.outcome import GitFailure

TIMEOUT_S = 20.0
_TERMINATE_S = 2.0

_BLOCKED = frozenset(
    ("EDITOR", "VISUAL", "PAGER", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "GNOME_KEYRING_CONTROL")
)
_KEPT_GIT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")
NO_GARBAGE_COLLECTION = ("-c", "gc.auto=0", "-c", "maintenance.auto=false")
NO_SIGNING = ("-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
PLAIN = (*NO_GARBAGE_COLLECTION, *NO_SIGNING, *NO_HOOKS)
"""Settings of every ordinary run: no user's signing, no hooks, no garbage collection."""


class GitResult(msgspec.Struct, frozen=True):
    """Exit status and output of one run."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def complaint(self) -> str:
        """What the program said about a failure, as one short text."""
        text = (self.stderr or self.stdout).decode("utf-8", "replace").strip()
        return text[-500:] if text else f"git exited with status {self.status}"


class GitTimeout(Exception):
    """The program did not end in time; it has been stopped."""


def child_environment(root: str, identity: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a Git child: ours without anything that prompts or redirects it.

    Every `GIT_*` variable goes, save those that choose configuration files: an inherited
    `GIT_DIR` or `GIT_INDEX_FILE` would lead the child to another repository.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _BLOCKED and (not name.startswith("GIT_") or name in _KEPT_GIT)
    }
    environment |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(root)),
        "LC_ALL": "C",
    }
    if identity:
        environment |= identity
    return environment


def git_arguments(arguments: Sequence[str], settings: Sequence[str] = PLAIN) -> list[str]:
    """The command line; paths in it are taken literally and shown as they are."""
    return ["git", "--literal-pathspecs", "-c", "core.quotepath=false", *settings, *arguments]


def run_git(
    root: str,
    arguments: Sequence[str],
    *,
    settings: Sequence[str] = PLAIN,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> GitResult:
    """Run `git` in `root` and wait for it.

    Raises GitTimeout after `timeout_s`, when the child and everything it started has been
    told to stop (Git removes its locks then) and killed when it did not; GitFailure
    GIT_UNKNOWN_ERROR when there is no such program.
    """
    try:
        child = subprocess.Popen(
            git_arguments(arguments, settings),
            cwd=root,
            env=environment if environment is not None else child_environment(root),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as failure:
        raise GitFailure(
            "GIT_UNKNOWN_ERROR", f"the git program cannot be started: {failure.strerror}"
        ) from failure
    try:
        stdout, stderr = child.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        stop_group(child)
        raise GitTimeout(f"git {arguments[0]} did not end within {timeout_s:g} s") from None
    except BaseException:
        stop_group(child)
        raise
    return GitResult(child.returncode, stdout, stderr)


def stop_group(child: subprocess.Popen[bytes]) -> None:
    """End a child that leads a session of its own, and whatever it started."""
    for number, patience in ((signal.SIGTERM, _TERMINATE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            child.wait(patience)
            break
        except subprocess.TimeoutExpired:
            continue
    # Grandchildren that outlived their leader hold the pipes open.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
