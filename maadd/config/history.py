"""Which history mode a project runs in (spec 04 §2.4)."""

from __future__ import annotations

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings

GIT_MODES = frozenset({"audit", "batch", "snapshot"})
"""The modes that need a repository at the project root."""


class Advisory(msgspec.Struct, frozen=True):
    """Something an operator should know that hinders nothing."""

    code: str
    message: str


def resolve_history(
    project: str,
    *,
    configured: str | None,
    default: str | None,
    has_git: bool,
    max_writes: int | None = None,
    max_delay_ms: int | None = None,
    external_edits: str = "index",
) -> tuple[HistorySettings, tuple[Advisory, ...]]:
    """The history policy of `project` and what there is to say about it.

    Precedence: `configured` (the project's own entry), `default` (the environment), else
    `audit` with a repository and `feed` without. Raises GIT_NOT_INITIALIZED when a mode that
    was asked for needs a repository and there is none.
    """
    inferred = "audit" if has_git else "feed"
    mode = configured or default or inferred
    source = "project" if configured else "environment" if default else "inferred"
    if mode in GIT_MODES and not has_git:
        raise MaadError(
            "GIT_NOT_INITIALIZED",
            f"project {project!r}: history mode {mode} (from {source}) needs a Git repository "
            "at the project root; run 'git init' there or choose feed or read",
            {"historyMode": mode, "modeSource": source},
        )
    settings = HistorySettings(mode, configured, source, max_writes, max_delay_ms, external_edits)
    if source != "inferred":
        return settings, ()
    found = "has" if has_git else "has no"
    message = f"project {project!r} {found} Git repository: history mode {mode} is assumed"
    return settings, (Advisory("HISTORY_MODE_INFERRED", message),)
