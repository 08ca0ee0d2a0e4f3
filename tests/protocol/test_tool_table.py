"""The tool table says of every tool what the specification says (04 §5.2)."""

from __future__ import annotations

import msgspec
import pytest

from maadd.protocol.arguments import HealthArgs, InstructionsArgs, RoutedArguments
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS, ToolKind, check_table, registered_tools
from maadd.protocol.validation import check_arguments

# name | min role (none, reader, writer, admin, everywhere) | kind (R, W, - = engine-less)
#      | flags | hints: read-only, destructive, idempotent (y or n)
TABLE = """
maad_projects none - . yny
maad_use_project none - . nnn
maad_use_projects none - . nnn
maad_current_session none - . yny
maad_subscribe reader - . nny
maad_unsubscribe reader - . nny
maad_scan reader R . yny
maad_summary reader R H yny
maad_describe reader R . yny
maad_schema reader R H yny
maad_get reader R . yny
maad_query reader R . yny
maad_search reader R . yny
maad_related reader R . yny
maad_relationship_paths reader R . yny
maad_aggregate reader R . yny
maad_join reader R . yny
maad_verify reader R . yny
maad_find_orphans reader R . yny
maad_changes_since reader R . yny
maad_semantic_search reader R . yny
maad_history reader R . yny
maad_audit reader R . yny
maad_document_receipt reader R S yny
maad_create_contract reader R S yny
maad_instructions reader R . nyy
maad_validate writer R . yny
maad_create writer W K nnn
maad_create_guarded writer W S nnn
maad_update writer W K nyn
maad_bulk_create writer W K nnn
maad_bulk_update writer W K nyn
maad_delete admin W K nyy
maad_bulk_delete admin W CK nyy
maad_delete_where admin W CK nyy
maad_purge_soft_deleted admin W CK nyy
maad_repair_where admin W CK nyy
maad_reindex admin W H nny
maad_reload admin W H nny
maad_health admin R . yny
maad_flush admin W . nny
maad_backup admin W . nyn
maad_instance_reload everywhere - . nyy
maad_subscriptions everywhere - . yny
maad_issue_token everywhere - . nnn
maad_revoke_token everywhere - . nyy
maad_rotate_token everywhere - . nyn
maad_list_tokens everywhere - . yny
maad_show_token everywhere - . yny
"""

ROWS = [line.split() for line in TABLE.strip().splitlines()]
KINDS = {"R": ToolKind.READ, "W": ToolKind.WRITE, "-": ToolKind.ENGINELESS}
ROLES = {
    "none": None,
    "reader": Role.READER,
    "writer": Role.WRITER,
    "admin": Role.ADMIN,
    "everywhere": Role.ADMIN,
}


def test_there_are_exactly_the_49_tools_in_the_order_of_the_specification() -> None:
    assert len(ROWS) == 49
    assert list(TOOLS) == [row[0] for row in ROWS]


@pytest.mark.parametrize(("name", "role", "kind", "flags", "hints"), ROWS)
def test_row(name: str, role: str, kind: str, flags: str, hints: str) -> None:
    spec = TOOLS[name]

    assert spec.name == name
    assert spec.min_role is ROLES[role]
    assert spec.admin_everywhere == (role == "everywhere")
    assert spec.kind is KINDS[kind]
    assert spec.strict == ("S" in flags)
    assert spec.heavy == ("H" in flags)
    assert spec.confirm == ("C" in flags)
    assert spec.idempotency_key == ("K" in flags)
    assert (spec.read_only_hint, spec.destructive_hint, spec.idempotent_hint) == tuple(
        hint == "y" for hint in hints
    )


@pytest.mark.parametrize("name", TOOLS)
def test_argument_types_are_named_after_their_tools(name: str) -> None:
    words = name.removeprefix("maad_").split("_")
    assert TOOLS[name].arguments.__name__ == "".join(map(str.title, words)) + "Args"


@pytest.mark.parametrize("name", TOOLS)
def test_exactly_the_routed_tools_take_a_project_to_route_to(name: str) -> None:
    spec = TOOLS[name]
    assert issubclass(spec.arguments, RoutedArguments) == (spec.kind is not ToolKind.ENGINELESS)


def test_instructions_read_on_check_and_write_on_refresh() -> None:
    spec = TOOLS["maad_instructions"]
    assert spec.kind_of(InstructionsArgs()) is ToolKind.READ
    assert spec.kind_of(InstructionsArgs(action="check")) is ToolKind.READ
    assert spec.kind_of(InstructionsArgs(action="refresh")) is ToolKind.WRITE


def test_other_tools_have_the_kind_of_their_row() -> None:
    assert TOOLS["maad_health"].kind_of(HealthArgs()) is ToolKind.READ


def test_the_table_passes_its_own_check() -> None:
    check_table()


@pytest.mark.parametrize(
    ("tool", "change", "complaint"),
    [
        ("maad_get", {"name": "maad_got"}, "another name"),
        ("maad_get", {"kind": ToolKind.ENGINELESS}, "project argument"),
        ("maad_get", {"confirm": True}, "flag C"),
        ("maad_create", {"idempotency_key": False}, "flag K"),
        ("maad_create_guarded", {"strict": False}, "flag S"),
        ("maad_instructions", {"write_action": None}, "argument action"),
        ("maad_get", {"min_role": None}, "needs a role"),
        ("maad_get", {"admin_everywhere": True}, "admin everywhere"),
        ("maad_update", {"read_only_hint": True}, "read-only"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(
    tool: str, change: dict[str, object], complaint: str
) -> None:
    wrong = dict(TOOLS) | {tool: msgspec.structs.replace(TOOLS[tool], **change)}
    with pytest.raises(RuntimeError, match=f"{tool}: .*{complaint}"):
        check_table(wrong)


def test_a_missing_tool_is_refused() -> None:
    without_one = {name: spec for name, spec in TOOLS.items() if name != "maad_get"}
    with pytest.raises(RuntimeError, match="48 tools instead of 49"):
        check_table(without_one)


def names(*, role: Role | None = None, allowlist: tuple[str, ...] = ()) -> set[str]:
    return {spec.name for spec in registered_tools(role, allowlist)}


def test_with_an_instance_file_every_available_tool_is_registered() -> None:
    assert names() == {spec.name for spec in TOOLS.values() if spec.available}


@pytest.mark.parametrize("role", Role)
def test_a_single_project_server_registers_what_its_role_may_call(role: Role) -> None:
    for spec in TOOLS.values():
        expected = spec.available and spec.min_role is not None and role >= spec.min_role
        assert (spec.name in names(role=role)) == expected


def test_a_single_project_server_has_no_session_tools() -> None:
    session_tools = {
        "maad_projects",
        "maad_use_project",
        "maad_use_projects",
        "maad_current_session",
    }
    assert session_tools <= names()
    assert not session_tools & names(role=Role.ADMIN)


def test_an_allowlist_narrows_the_registered_tools() -> None:
    allowlist = ("maad_get", "maad_projects", "maad_health")
    assert names(allowlist=allowlist) == set(allowlist)
    assert names(role=Role.READER, allowlist=allowlist) == {"maad_get"}


def test_the_first_tools_are_available() -> None:
    assert {
        "maad_projects",
        "maad_use_project",
        "maad_use_projects",
        "maad_current_session",
        "maad_summary",
        "maad_describe",
        "maad_schema",
        "maad_get",
        "maad_query",
        "maad_create",
        "maad_update",
        "maad_validate",
        "maad_delete",
        "maad_reindex",
        "maad_reload",
        "maad_health",
    } <= names()


@pytest.mark.parametrize(
    ("tool", "args", "harmless"),
    [
        ("maad_create", {"docType": "t", "fields": {}}, False),
        ("maad_purge_soft_deleted", {}, True),
        ("maad_purge_soft_deleted", {"confirm": 1}, True),
        ("maad_purge_soft_deleted", {"confirm": True}, False),
        ("maad_backup", {"mode": "list"}, True),
        ("maad_backup", {}, False),
        ("maad_instructions", {"action": "refresh"}, True),
        ("maad_instructions", {"action": "refresh", "dryRun": False}, False),
    ],
)
def test_some_calls_of_write_tools_change_nothing(
    tool: str, args: dict[str, object], harmless: bool
) -> None:
    spec = TOOLS[tool]
    assert spec.changes_nothing(check_arguments(spec, args)) is harmless


def test_the_items_of_a_bulk_call_are_counted() -> None:
    args = check_arguments(TOOLS["maad_bulk_delete"], {"docIds": ["a", "b", "a"]})
    assert TOOLS["maad_bulk_delete"].number_of_items(args) == 3
    assert TOOLS["maad_delete"].number_of_items(args) is None
