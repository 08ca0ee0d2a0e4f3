"""HEAD and the snapshot tags of a repository, through the `git` program (spec 03 §7.3, §10).

All raise GitFailure: GIT_TAG_FAILED, or GIT_UNKNOWN_ERROR where no tag is concerned.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maadd_worker.failpoints import reach
from maadd_worker.history.command import (
    PLAIN,
    TIMEOUT_S,
    GitResult,
    GitTimeout,
    child_environment,
    run_git,
)
from maadd_worker.history.git_dir import GitDir, read_local_config
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.program_store import wished_settings
from maadd_worker.history.store import Person, safe_directory_failure

TAG_PREFIX = "maad-snapshot-"

_TAG_FIELDS = "%(refname:strip=2)%00%(objecttype)%00%(objectname)%00%(*objectname)%00"
_TAG_FORMAT = f"{_TAG_FIELDS}%(creatordate:unix)%00%(contents:subject)%00"
_FIELD_COUNT = 6


class Head(msgspec.Struct, frozen=True):
    """The commit that is checked out; `branch` is None when HEAD is detached."""

    sha: str
    branch: str | None
    message: str


class Tag(msgspec.Struct, frozen=True):
    """A snapshot tag: the commit it names, its subject line, and when it was made, in seconds
    since 1970."""

    name: str
    sha: str
    message: str
    created_at: int


def read_head(git_dir: GitDir) -> Head | None:
    """Where HEAD is; None on an unborn branch."""
    code = "GIT_UNKNOWN_ERROR"
    found = _run(git_dir, ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"], code, allow=(1,))
    if found.status != 0:
        return None
    sha = found.stdout.decode("ascii", "replace").strip()
    branch = _run(git_dir, ["symbolic-ref", "--quiet", "--short", "HEAD"], code, allow=(1,))
    message = _run(git_dir, ["log", "-1", "--no-show-signature", "--format=%B", sha, "--"], code)
    return Head(
        sha,
        branch.stdout.decode("utf-8", "replace").strip() or None,
        message.stdout.decode("utf-8", "replace").strip(),
    )


def is_detached(git_dir: GitDir) -> bool:
    """Whether HEAD names a commit and no branch."""
    found = _run(git_dir, ["symbolic-ref", "--quiet", "HEAD"], "GIT_UNKNOWN_ERROR", allow=(1,))
    return found.status == 1


def list_tags(git_dir: GitDir) -> list[Tag]:
    """Every snapshot tag, the newest first."""
    result = _run(
        git_dir,
        [
            "for-each-ref",
            "--sort=-refname",
            "--sort=-creatordate",
            f"--format={_TAG_FORMAT}",
            f"refs/tags/{TAG_PREFIX}*",
        ],
        "GIT_TAG_FAILED",
    )
    fields = result.stdout.decode("utf-8", "replace").split("\0")
    rows = (fields[start : start + _FIELD_COUNT] for start in range(0, len(fields), _FIELD_COUNT))
    return [_tag(row) for row in rows if len(row) == _FIELD_COUNT]


def _tag(row: Sequence[str]) -> Tag:
    name, kind, sha, target, created, subject = row
    return Tag(name.lstrip("\n"), target if kind == "tag" else sha, subject, int(created or 0))


def create_tag(
    git_dir: GitDir,
    name: str,
    sha: str,
    message: str,
    tagger: Person,
    made_at: int,
    *,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Make an annotated tag on a commit, signed if the repository itself asks for it.

    `made_at` is in seconds since 1970. False when there is a tag of that name on that commit
    already; GIT_TAG_FAILED with `details.reason` `tag-exists` when it names another one.
    """
    config = read_local_config(git_dir)
    _reach("git.tag")
    result = _run(
        git_dir,
        ["tag", "--annotate", "--cleanup=verbatim", "--file=-", "--", name, sha],
        "GIT_TAG_FAILED",
        allow=(128,),
        settings=wished_settings(git_dir, config),
        stdin=message.encode() + b"\n",
        identity={
            "GIT_COMMITTER_NAME": tagger.name,
            "GIT_COMMITTER_EMAIL": tagger.email,
            "GIT_COMMITTER_DATE": f"{made_at} +0000",
        },
        timeout_s=timeout_s,
    )
    if result.status == 0:
        _reach("git.tagged")
        return True
    there = next((tag for tag in list_tags(git_dir) if tag.name == name), None)
    if there is None:
        signing = config.sign_tags and any(
            word in result.complaint for word in ("sign", "gpg", "ssh-keygen")
        )
        raise _failure(
            git_dir, result, "GIT_TAG_FAILED", {"reason": "signing"} if signing else None
        )
    if there.sha == sha:
        return False
    raise GitFailure(
        "GIT_TAG_FAILED",
        f"there is a tag {name} on another commit; rename or delete it",
        {"reason": "tag-exists"},
    )


def delete_tag(git_dir: GitDir, name: str) -> bool:
    """Remove a snapshot tag; False when there is none of that name. Its commit stays."""
    if all(tag.name != name for tag in list_tags(git_dir)):
        return False
    _run(git_dir, ["tag", "--delete", "--", name], "GIT_TAG_FAILED")
    return True


def _reach(name: str) -> None:
    try:
        reach(name)
    except OSError as failure:
        raise GitFailure("GIT_TAG_FAILED", f"the tag could not be made: {failure}") from failure


def _run(
    git_dir: GitDir,
    arguments: Sequence[str],
    code: str,
    *,
    allow: Sequence[int] = (),
    settings: Sequence[str] = PLAIN,
    stdin: bytes | None = None,
    identity: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> GitResult:
    """Run `git`; any end but success or an allowed status is a failure with `code`."""
    try:
        result = run_git(
            git_dir.root,
            arguments,
            settings=settings,
            stdin=stdin,
            environment=child_environment(git_dir.root, identity),
            timeout_s=timeout_s,
        )
    except GitTimeout as failure:
        raise GitFailure(code, str(failure), {"reason": "timeout"}, timed_out=True) from failure
    if result.status == 0:
        return result
    if "dubious ownership" in result.complaint:
        raise safe_directory_failure()
    if result.status in allow:
        return result
    raise _failure(git_dir, result, code, None)


def _failure(
    git_dir: GitDir, result: GitResult, code: str, details: dict[str, str] | None
) -> GitFailure:
    return GitFailure(code, git_dir.scrub(result.complaint), details)
