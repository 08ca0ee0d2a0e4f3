"""Arguments of the maintenance tools (spec 03 §6, §10)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from maadd.protocol.arguments.base import Confirm, Limit, RoutedArguments, require


class InstructionsArgs(RoutedArguments, frozen=True):
    """`maad_instructions` (§6.5). `dry_run` and `force` count for refresh only."""

    action: Literal["check", "refresh"] = "check"
    dry_run: bool = True
    force: Annotated[bool, Meta(description="also replace edited files")] = False


class ReindexArgs(RoutedArguments, frozen=True):
    """`maad_reindex` (§6.1). `confirm` counts with `prune`; `doc_id`, `doc_type` and `path` narrow
    the run; `cancel_job` ends one instead."""

    force: bool = False
    prune: bool = False
    confirm: Confirm = None
    embeddings: Annotated[bool, Meta(description="rebuild semantic rows too")] = False
    doc_id: str | None = None
    doc_type: str | None = None
    path: str | None = None
    wait: Annotated[bool, Meta(description="false: answer with a job id")] = True
    cancel_job: Annotated[str, Meta(description="end this job")] | None = None


class ReloadArgs(RoutedArguments, frozen=True):
    """`maad_reload` (§6.2)."""


class HealthArgs(RoutedArguments, frozen=True):
    """`maad_health` (§6.3)."""


class FlushArgs(RoutedArguments, frozen=True):
    """`maad_flush` (§6.4)."""


class BackupArgs(RoutedArguments, frozen=True):
    """`maad_backup` (§10). `label`, `message`, `allow_dirty`: create; `since`, `limit`: list;
    `tag`: delete."""

    mode: Literal["create", "list", "delete"] = "create"
    label: str | None = None
    message: str | None = None
    allow_dirty: bool = False
    tag: Annotated[str, Meta(description="to delete")] | None = None
    since: Annotated[str, Meta(description="ISO 8601, for list")] | None = None
    limit: Annotated[Limit, Meta(description="for list")] | None = None

    def __post_init__(self) -> None:
        if self.mode == "delete":
            require("delete", {"tag": self.tag is not None})
