"""Every write tool on a server in dry-run mode, and on a project in history mode `read`: nothing
changes (spec 03 §2.4, §7.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.arguments import InstructionsArgs
from maadd.protocol.tools import TOOLS, ToolKind

CALLS: dict[str, dict[str, Any]] = {
    "maad_create": {"docType": "ship", "fields": {"name": "New"}},
    "maad_update": {"docId": "shp-ada", "fields": {"tonnage": 9}, "appendBody": "More"},
    "maad_bulk_create": {"records": [{"docType": "ship", "fields": {"name": "New"}}]},
    "maad_bulk_update": {"updates": [{"docId": "shp-ada", "body": ""}]},
    "maad_delete": {"docId": "shp-ada", "mode": "hard"},
    "maad_bulk_delete": {"docIds": ["shp-ada"], "confirm": True},
    "maad_delete_where": {"docType": "ship", "filters": {}, "confirm": True},
    "maad_purge_soft_deleted": {"confirm": True},
    "maad_repair_where": {
        "docType": "voyage",
        "repairTypes": ["prune_orphan_refs"],
        "confirm": True,
    },
    "maad_reindex": {"force": True, "prune": True, "confirm": True},
    "maad_reload": {},
    "maad_flush": {},
    "maad_backup": {},
    "maad_instructions": {"action": "refresh", "dryRun": False, "force": True},
}
"""A call of each write tool that would change something."""

STRICT = {"maad_create_guarded"}
"""Has tests of its own (test_guarded_create)."""

VALIDATED = {"maad_create", "maad_update", "maad_bulk_create", "maad_bulk_update"}


def test_the_calls_are_of_all_write_tools() -> None:
    refresh = InstructionsArgs(action="refresh")
    writes = {
        name
        for name, spec in TOOLS.items()
        if ToolKind.WRITE in (spec.kind, spec.write_action and spec.kind_of(refresh))
    }
    assert CALLS.keys() | STRICT == writes


def files(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file but the database, whose content `content` compares, with its time."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != "_backend"
    }


def content(project: Any) -> Any:
    """What the index holds, with its tombstones, stored answers and remembered values."""
    execute = project.engine._index.writer().connection.execute
    names = [name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: sorted(map(repr, execute(f'SELECT * FROM "{name}"')))
        for name in names
        if "fts" not in name
    }


@pytest.fixture(scope="module")
def fleet(shared: Any) -> Any:
    """A record, a tombstone, a dangling ref, a file that is not indexed, an outdated guide."""
    shared.ok("maad_create", docType="ship", fields={"name": "Ada"})
    shared.ok("maad_create", docType="ship", fields={"name": "Bo"})
    shared.ok("maad_create", docType="voyage", fields={"ship": "shp-ada", "stops": ["shp-no"]})
    shared.ok("maad_delete", docId="shp-bo")
    shared.engine._index.writer().connection.execute(
        "UPDATE documents SET updated_at = '2020-01-01T00:00:00.000Z' WHERE deleted = 1"
    )
    (shared.root / "voyages/voy-unread.md").write_text("---\nname: unread\n---\n")
    (shared.root / "MAAD.md").write_text("by hand\n")
    shared.catch_up()
    shared.engine.poll_events()
    return shared


@pytest.mark.parametrize("tool", CALLS)
def test_a_dry_run_of_a_write_changes_nothing(fleet: Any, tool: str) -> None:
    args = dict(CALLS[tool])
    if TOOLS[tool].idempotency_key:
        args["idempotencyKey"] = "dry"
    before = files(fleet.root), content(fleet)
    call = fleet.request(tool, args, dry_run=True)
    for _ in range(2):
        [reply] = fleet.group(call)
        assert (reply.ok, reply.audit) == (True, None)
        assert reply.meta is None or "replayed" not in reply.meta
        if tool in VALIDATED:
            data = msgspec.json.decode(reply.body)
            assert (data["dryRun"], data["valid"], data["errors"]) == (True, True, [])
        else:
            assert reply.body == b""
    fleet.settle()
    assert (files(fleet.root), content(fleet)) == before
    assert fleet.engine.poll_events() == []
    # The key is still free.
    assert "dry" not in repr(content(fleet).get("idempotency"))


@pytest.mark.parametrize(
    ("tool", "args", "data"),
    [
        (
            "maad_create",
            {"docType": "voyage", "docId": "voy-dry", "fields": {"ship": "shp-no"}},
            {"docId": "voy-dry", "filePath": "voyages/voy-dry.md", "codes": ["REF_TARGET_MISSING"]},
        ),
        (
            "maad_update",
            {"docId": "shp-ada", "fields": {"tonnage": 9}},
            {"docId": "shp-ada", "filePath": "ships/shp-ada.md", "codes": []},
        ),
        ("maad_update", {"docId": "shp-ada", "fields": {"tonnage": "x"}}, ["VALIDATION_FAILED"]),
        ("maad_update", {"docId": "shp-ada", "expectedVersion": 7}, ["VERSION_CONFLICT"]),
        ("maad_update", {"docId": "shp-none"}, ["FILE_NOT_FOUND"]),
        (
            "maad_create",
            {"docType": "ship", "fields": {"name": "x" * 41, "tonnage": "x"}},
            ["VALIDATION_FAILED", "VALIDATION_FAILED"],
        ),
        (
            "maad_bulk_update",
            {"updates": [{"docId": "shp-none"}, {"docId": "shp-ada", "expectedHash": "0"}]},
            ["FILE_NOT_FOUND", "VERSION_CONFLICT"],
        ),
    ],
)
def test_a_dry_run_says_what_the_checks_say(
    fleet: Any, tool: str, args: dict[str, Any], data: dict[str, Any] | list[str]
) -> None:
    [reply] = fleet.group(fleet.request(tool, args, dry_run=True))
    told = msgspec.json.decode(reply.body)
    if isinstance(data, list):
        assert (told["valid"], [one["code"] for one in told["errors"]]) == (False, data)
        assert "docId" not in told
        return
    told["codes"] = [one["code"] for one in told.pop("warnings")]
    assert told == {"dryRun": True, "valid": True, "errors": [], **data}


@pytest.fixture(scope="module")
def read_only(fleet: Any) -> Any:
    """The same project, opened to read."""
    fleet.close()
    harness = type(fleet)(fleet.root, "read")
    yield harness
    harness.close()


@pytest.mark.parametrize("tool", CALLS)
def test_a_read_only_project_refuses_every_write(read_only: Any, tool: str) -> None:
    backend = read_only.root / "_backend"
    before = files(read_only.root), {path: path.stat().st_mtime_ns for path in backend.iterdir()}
    [reply] = read_only.group(read_only.request(tool, CALLS[tool]))
    if tool == "maad_flush":
        report = msgspec.json.decode(reply.body)
        assert (report["effectiveMode"], report["status"]) == ("read", "noop")
    else:
        expected = "READ_ONLY" if tool == "maad_instructions" else "PROJECT_READ_ONLY"
        assert reply.error_code == expected
    assert read_only.ok("maad_get", docId="shp-ada")["version"] == 1
    after = {path: path.stat().st_mtime_ns for path in backend.iterdir()}
    assert (files(read_only.root), after) == before


def test_a_read_only_project_says_so(read_only: Any) -> None:
    health = read_only.ok("maad_health")
    assert (health["readOnly"], health["initialized"]) == (True, True)
    assert health["history"]["effectiveMode"] == "read"
