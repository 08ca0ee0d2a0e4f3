"""The one table of tools (spec 04 §5.2): who may call what, and how a call is treated.

Both processes read it; descriptions stand in `tool_texts`, argument types in `arguments`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

import msgspec

from maadd.protocol import arguments as a
from maadd.protocol.roles import Role
from maadd.protocol.tool_texts import TOOL_TEXTS

TOOL_COUNT = 49


class ToolKind(enum.Enum):
    """How a tool reaches the project."""

    READ = "read"
    """Runs beside others on a reader; never waits for a write."""
    WRITE = "write"
    """Serialized by the project's writer, charged to the write-rate buckets, dry-runnable."""
    ENGINELESS = "engineless"
    """Answered by the front; never reaches a worker."""


class Hints(msgspec.Struct, frozen=True):
    """The MCP annotations `readOnlyHint`, `destructiveHint`, `idempotentHint`."""

    read_only: bool
    destructive: bool
    idempotent: bool


class ToolSpec(msgspec.Struct, frozen=True):
    """One row of the table.

    `min_role` None needs no role at all; with `admin_everywhere` the role must hold on every
    bound project. `strict`, `heavy`, `confirm` and `idempotency_key` are the flags S, H, C, K.
    A tool that is not `available` is neither listed nor callable.
    """

    name: str
    title: str
    description: str
    min_role: Role | None
    kind: ToolKind
    strict: bool
    heavy: bool
    confirm: bool
    idempotency_key: bool
    read_only_hint: bool
    destructive_hint: bool
    idempotent_hint: bool
    admin_everywhere: bool
    arguments: type[a.Arguments]
    available: bool
    write_action: str | None = None
    """The value of the argument `action` that makes a call a write, for a tool that else reads."""
    items: str | None = None
    """The list argument whose length is judged and charged, for a tool that takes many records."""
    harmless: tuple[str, object] | None = None
    """The argument and its value with which a call of a write tool changes nothing."""

    @property
    def routed(self) -> bool:
        """Whether calls go to the worker of a project."""
        return self.kind is not ToolKind.ENGINELESS

    @property
    def exact_arguments(self) -> bool:
        """Whether the worker judges the text of the arguments as it was written."""
        return self.strict and self.kind is ToolKind.WRITE

    def kind_of(self, arguments: msgspec.Struct) -> ToolKind:
        """The kind of one call, which for `maad_instructions` depends on its action."""
        if self.write_action is not None and getattr(arguments, "action", None) == (
            self.write_action
        ):
            return ToolKind.WRITE
        return self.kind

    def number_of_items(self, arguments: msgspec.Struct) -> int | None:
        """How many records a call carries or names; None for a tool that takes no list."""
        return None if self.items is None else len(getattr(arguments, self.items))

    def changes_nothing(self, arguments: msgspec.Struct) -> bool:
        """Whether a call only shows what a write would do, or lists (spec 03 §2.4)."""
        if self.confirm:
            return getattr(arguments, "confirm", None) is not True
        if self.harmless is None:
            return False
        name, value = self.harmless
        return bool(getattr(arguments, name) == value)


READER, WRITER, ADMIN = Role.READER, Role.WRITER, Role.ADMIN
READ, WRITE, ENGINELESS = ToolKind.READ, ToolKind.WRITE, ToolKind.ENGINELESS

_READS = Hints(read_only=True, destructive=False, idempotent=True)
_ADDS = Hints(read_only=False, destructive=False, idempotent=False)
_SETTLES = Hints(read_only=False, destructive=False, idempotent=True)
_CHANGES = Hints(read_only=False, destructive=True, idempotent=False)
_REMOVES = Hints(read_only=False, destructive=True, idempotent=True)


_ITEMS = {
    "maad_bulk_create": "records",
    "maad_bulk_update": "updates",
    "maad_bulk_delete": "doc_ids",
}
_HARMLESS: Mapping[str, tuple[str, object]] = {
    "maad_instructions": ("dry_run", True),
    "maad_backup": ("mode", "list"),
}


def _tool(
    name: str,
    min_role: Role | None,
    kind: ToolKind,
    hints: Hints,
    arguments: type[a.Arguments],
    flags: str = "",
    *,
    admin_everywhere: bool = False,
    write_action: str | None = None,
    available: bool = False,
) -> ToolSpec:
    """A row; `flags` are letters of S (strict), H (heavy), C (confirm), K (idempotency key)."""
    text = TOOL_TEXTS[name]
    return ToolSpec(
        name=name,
        title=text.title,
        description=text.description,
        min_role=min_role,
        kind=kind,
        strict="S" in flags,
        heavy="H" in flags,
        confirm="C" in flags,
        idempotency_key="K" in flags,
        read_only_hint=hints.read_only,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.idempotent,
        admin_everywhere=admin_everywhere,
        arguments=arguments,
        available=available,
        write_action=write_action,
        items=_ITEMS.get(name),
        harmless=_HARMLESS.get(name),
    )


def _instance_tool(name: str, hints: Hints, arguments: type[a.Arguments]) -> ToolSpec:
    """A row for a tool of the whole instance, which needs admin on every bound project."""
    return _tool(name, ADMIN, ENGINELESS, hints, arguments, admin_everywhere=True, available=True)


_ROWS = (
    _tool("maad_projects", None, ENGINELESS, _READS, a.ProjectsArgs, available=True),
    _tool("maad_use_project", None, ENGINELESS, _ADDS, a.UseProjectArgs, available=True),
    _tool("maad_use_projects", None, ENGINELESS, _ADDS, a.UseProjectsArgs, available=True),
    _tool("maad_current_session", None, ENGINELESS, _READS, a.CurrentSessionArgs, available=True),
    _tool("maad_subscribe", READER, ENGINELESS, _SETTLES, a.SubscribeArgs, available=True),
    _tool("maad_unsubscribe", READER, ENGINELESS, _SETTLES, a.UnsubscribeArgs, available=True),
    _tool("maad_scan", READER, READ, _READS, a.ScanArgs, available=True),
    _tool("maad_summary", READER, READ, _READS, a.SummaryArgs, "H", available=True),
    _tool("maad_describe", READER, READ, _READS, a.DescribeArgs, available=True),
    _tool("maad_schema", READER, READ, _READS, a.SchemaArgs, "H", available=True),
    _tool("maad_get", READER, READ, _READS, a.GetArgs, available=True),
    _tool("maad_query", READER, READ, _READS, a.QueryArgs, available=True),
    _tool("maad_search", READER, READ, _READS, a.SearchArgs, available=True),
    _tool("maad_related", READER, READ, _READS, a.RelatedArgs, available=True),
    _tool("maad_relationship_paths", READER, READ, _READS, a.RelationshipPathsArgs, available=True),
    _tool("maad_aggregate", READER, READ, _READS, a.AggregateArgs, available=True),
    _tool("maad_join", READER, READ, _READS, a.JoinArgs, available=True),
    _tool("maad_verify", READER, READ, _READS, a.VerifyArgs, available=True),
    _tool("maad_find_orphans", READER, READ, _READS, a.FindOrphansArgs, available=True),
    _tool("maad_changes_since", READER, READ, _READS, a.ChangesSinceArgs, available=True),
    _tool("maad_semantic_search", READER, READ, _READS, a.SemanticSearchArgs, available=True),
    _tool("maad_history", READER, READ, _READS, a.HistoryArgs, available=True),
    _tool("maad_audit", READER, READ, _READS, a.AuditArgs, available=True),
    _tool(
        "maad_document_receipt", READER, READ, _READS, a.DocumentReceiptArgs, "S", available=True
    ),
    _tool("maad_create_contract", READER, READ, _READS, a.CreateContractArgs, "S", available=True),
    _tool(
        "maad_instructions",
        READER,
        READ,
        _REMOVES,
        a.InstructionsArgs,
        write_action="refresh",
        available=True,
    ),
    _tool("maad_validate", WRITER, READ, _READS, a.ValidateArgs, available=True),
    _tool("maad_create", WRITER, WRITE, _ADDS, a.CreateArgs, "K", available=True),
    _tool("maad_create_guarded", WRITER, WRITE, _ADDS, a.CreateGuardedArgs, "S", available=True),
    _tool("maad_update", WRITER, WRITE, _CHANGES, a.UpdateArgs, "K", available=True),
    _tool("maad_bulk_create", WRITER, WRITE, _ADDS, a.BulkCreateArgs, "K", available=True),
    _tool("maad_bulk_update", WRITER, WRITE, _CHANGES, a.BulkUpdateArgs, "K", available=True),
    _tool("maad_delete", ADMIN, WRITE, _REMOVES, a.DeleteArgs, "K", available=True),
    _tool("maad_bulk_delete", ADMIN, WRITE, _REMOVES, a.BulkDeleteArgs, "CK", available=True),
    _tool("maad_delete_where", ADMIN, WRITE, _REMOVES, a.DeleteWhereArgs, "CK", available=True),
    _tool(
        "maad_purge_soft_deleted",
        ADMIN,
        WRITE,
        _REMOVES,
        a.PurgeSoftDeletedArgs,
        "CK",
        available=True,
    ),
    _tool("maad_repair_where", ADMIN, WRITE, _REMOVES, a.RepairWhereArgs, "CK", available=True),
    _tool("maad_reindex", ADMIN, WRITE, _SETTLES, a.ReindexArgs, "H", available=True),
    _tool("maad_reload", ADMIN, WRITE, _SETTLES, a.ReloadArgs, "H", available=True),
    _tool("maad_health", ADMIN, READ, _READS, a.HealthArgs, available=True),
    _tool("maad_flush", ADMIN, WRITE, _SETTLES, a.FlushArgs, available=True),
    _tool("maad_backup", ADMIN, WRITE, _CHANGES, a.BackupArgs, available=True),
    _instance_tool("maad_instance_reload", _REMOVES, a.InstanceReloadArgs),
    _instance_tool("maad_subscriptions", _READS, a.SubscriptionsArgs),
    _instance_tool("maad_issue_token", _ADDS, a.IssueTokenArgs),
    _instance_tool("maad_revoke_token", _REMOVES, a.RevokeTokenArgs),
    _instance_tool("maad_rotate_token", _CHANGES, a.RotateTokenArgs),
    _instance_tool("maad_list_tokens", _READS, a.ListTokensArgs),
    _instance_tool("maad_show_token", _READS, a.ShowTokenArgs),
)

TOOLS: Mapping[str, ToolSpec] = MappingProxyType({row.name: row for row in _ROWS})
"""Every tool by name, in the order of the spec."""


def registered_tools(
    single_project_role: Role | None = None, allowlist: Collection[str] = ()
) -> tuple[ToolSpec, ...]:
    """The tools a server offers, in table order (spec 04 §2.3, §5.2, §12.6).

    With an instance file (`single_project_role` None) all of them, and the role is checked per
    call. In single-project mode those its one role can call, without the session tools, which
    have nothing to choose there. A non-empty `allowlist` (`MAAD_TOOLS`) narrows either.
    """
    return tuple(
        spec
        for spec in TOOLS.values()
        if spec.available
        and (not allowlist or spec.name in allowlist)
        and (
            single_project_role is None
            or (spec.min_role is not None and single_project_role >= spec.min_role)
        )
    )


def check_table(tools: Mapping[str, ToolSpec] = TOOLS) -> None:
    """Assert the invariants of the table at start (spec 04 §5.2).

    RuntimeError with all violations: a wrong table is a bug of the server, never of a caller.
    """
    problems = [] if len(tools) == TOOL_COUNT else [f"{len(tools)} tools instead of {TOOL_COUNT}"]
    for name, spec in tools.items():
        problems += [f"{name}: {problem}" for problem in _row_problems(name, spec)]
    if problems:
        raise RuntimeError("tool table: " + "; ".join(problems))


def _row_problems(name: str, spec: ToolSpec) -> Iterator[str]:
    """Where a row contradicts itself or its argument type."""
    members = spec.arguments.__struct_fields__
    if spec.name != name:
        yield f"listed under another name than its own ({spec.name})"
    if spec.routed != issubclass(spec.arguments, a.RoutedArguments):
        yield "exactly the routed tools take a project argument"
    if spec.confirm != issubclass(spec.arguments, a.CleanupArguments):
        yield "flag C and the confirm arguments must go together"
    if spec.idempotency_key != ("idempotency_key" in members):
        yield "flag K and idempotencyKey must go together"
    if spec.items is not None and spec.items not in members:
        yield "the counted list is no argument"
    if spec.harmless is not None and spec.harmless[0] not in members:
        yield "the argument that makes a call harmless is none"
    if spec.strict != ("contract" in members):
        yield "flag S and the contract argument must go together"
    if (spec.write_action is not None) != ("action" in members):
        yield "a kind by action needs the argument action"
    if spec.routed and spec.min_role is None:
        yield "a routed tool needs a role"
    if spec.admin_everywhere and (spec.routed or spec.min_role is not Role.ADMIN):
        yield "admin everywhere is for engine-less admin tools"
    if spec.read_only_hint and (spec.kind is ToolKind.WRITE or spec.destructive_hint):
        yield "a read-only tool neither writes nor destroys"
