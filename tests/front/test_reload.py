"""Reload of the instance file: table, sessions, counters, lines (spec 04 §3)."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from typing import Any

import msgspec
import pytest

from maadd.ops.notify import ServiceNotifier
from maadd.protocol.arguments import InstanceReloadArgs
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.session import Subscription


async def refused(bench: Any, source: str = "tool") -> MaadError:
    """The error of a reload that must change nothing."""
    before = bench.state.instance
    with pytest.raises(MaadError) as caught:
        await bench.reloader.reload_instance(source)
    assert bench.state.instance is before
    assert bench.state.generation == 1
    assert bench.audited == []
    return caught.value


def as_json(data: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    return shown


async def reload(bench: Any, *projects: str, **options: str) -> dict[str, Any]:
    bench.declare(*projects, **options)
    return as_json(await bench.reloader.reload())


async def test_added_and_removed_projects(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    done = await reload(bench, "gamma", "beta", "delta")
    assert done.pop("durationMs") >= 0
    assert done == {
        "source": "tool",
        "projectsAdded": ["gamma", "delta"],
        "projectsRemoved": ["alpha"],
        "projectsRestarted": [],
        "sessionsCancelled": 0,
        "sessionsPruned": 0,
        "tokens": {
            "reloaded": True,
            "total": 0,
            "active": 0,
            "sessionsClosed": 0,
        },
    }
    assert list(bench.state.instance.projects) == ["gamma", "beta", "delta"]
    assert bench.state.generation == 2


async def test_an_identical_file_is_a_success_without_changes(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    done = await reload(bench, "alpha", "beta")
    assert [done[name] for name in ("projectsAdded", "projectsRemoved", "projectsRestarted")] == [
        [],
        [],
        [],
    ]
    assert bench.reloader.counts.succeeded == 1


async def test_name_order_and_description_are_taken_over_silently(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    done = await reload(bench, "beta:admin:description: new", "alpha", name="other")
    assert done["projectsRestarted"] == []
    assert bench.state.instance.name == "other"
    assert bench.state.instance.projects["beta"].description == "new"


async def test_another_history_policy_restarts_that_project_alone(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    done = await reload(bench, "alpha", "beta:admin:history_mode: read")
    assert done["projectsRestarted"] == ["beta"]
    assert bench.state.instance.projects["beta"].history.effective_mode == "read"


async def test_sessions_of_removed_projects(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta", "gamma")
    single = bench.open("single", "alpha")
    emptied = bench.open("emptied", "alpha", "beta")
    pruned = bench.open("pruned", "alpha", "gamma")
    kept = bench.open("kept", "gamma")
    unbound = bench.open("unbound")
    created = "2026-01-01T00:00:00.000Z"
    single.subscription = Subscription(None, None, created)
    pruned.subscription = Subscription(None, "alpha", created)
    kept.subscription = Subscription(None, "gamma", created)
    done = await reload(bench, "gamma")
    assert (done["sessionsCancelled"], done["sessionsPruned"]) == (2, 1)
    assert (single.cancelled, emptied.cancelled) == (True, True)
    assert (pruned.cancelled, kept.cancelled, unbound.cancelled) == (False, False, False)
    assert pruned.binding.projects == ("gamma",)
    assert pruned.binding.mode == "multi"
    assert (single.subscription, pruned.subscription) == (None, None)
    assert kept.subscription is not None
    again = await reload(bench, "gamma", "alpha")
    assert (again["sessionsCancelled"], again["sessionsPruned"]) == (0, 0)
    assert pruned.binding.projects == ("gamma",)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "INSTANCE_CONFIG_NOT_FOUND"),
        ("name: [", "PARSE_ERROR"),
        ("name: i\nprojects: []", "INSTANCE_CONFIG_INVALID"),
        ("name: i\nprojects: [{name: A, path: x}]", "INSTANCE_CONFIG_INVALID"),
        ("name: i\nprojects: [{name: a, path: x, role: boss}]", "INSTANCE_CONFIG_INVALID"),
        ("name: i\nprojects: [{name: a, path: x}, {name: b, path: x}]", "INSTANCE_CONFIG_INVALID"),
        ("name: i\nextra: 1\nprojects: [{name: a, path: x}]", "INSTANCE_CONFIG_INVALID"),
    ],
)
async def test_a_file_that_cannot_be_loaded_changes_nothing(
    make_bench: Any, text: str | None, code: str
) -> None:
    bench = make_bench("alpha")
    session = bench.open("s", "alpha")
    if text is None:
        bench.path.unlink()
    else:
        bench.path.write_text(text)
    error = await refused(bench)
    assert error.code == "INSTANCE_RELOAD_FAILED"
    assert code in error.message
    assert error.details == {"code": code}
    assert str(bench.folder) not in error.message
    assert not session.cancelled
    (line,) = bench.logged("instance_reload_failed")
    assert (line["level"], line["source"], line["phase"]) == ("warning", "tool", "load")
    assert line["code"] == "INSTANCE_RELOAD_FAILED"


async def test_a_policy_whose_precondition_fails_refuses_everything(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    bench.declare("alpha", "beta:admin:history_mode: audit", "gamma")
    error = await refused(bench)
    assert error.code == "INSTANCE_RELOAD_FAILED"
    assert error.details == {"code": "GIT_NOT_INITIALIZED", "project": "beta"}


@pytest.mark.parametrize("change", ["beta:reader", "moved"])
async def test_a_moved_path_or_role_refuses_everything(make_bench: Any, change: str) -> None:
    bench = make_bench("alpha", "beta")
    if change == "moved":
        bench.path.write_text(bench.path.read_text().replace("/beta,", "/elsewhere,"))
    else:
        bench.declare("alpha", change, "gamma")
    error = await refused(bench)
    assert error.code == "INSTANCE_MUTATION_UNSUPPORTED"
    assert "beta" in error.message
    assert "alpha" not in error.message
    assert bench.logged("instance_reload_failed")[0]["phase"] == "compare"


async def test_a_single_project_has_nothing_to_reload(make_bench: Any) -> None:
    bench = make_bench()
    assert (await refused(bench)).code == "INSTANCE_RELOAD_SYNTHETIC"
    assert bench.reloader.counts.attempted == 0


async def test_one_at_a_time(make_bench: Any) -> None:
    bench = make_bench("alpha")
    first = asyncio.create_task(bench.reloader.reload_instance("sighup"))
    # One turn of the loop begins the first reload; the end of its reading takes another.
    await asyncio.sleep(0)
    assert (await refused(bench)).code == "INSTANCE_RELOAD_IN_PROGRESS"
    assert (await first).source == "sighup"
    counts = bench.reloader.counts
    assert (counts.attempted, counts.succeeded, counts.failed) == (1, 1, 0)


async def test_what_is_no_file_is_refused_at_once(make_bench: Any) -> None:
    bench = make_bench("alpha")
    text = bench.path.read_text()
    bench.path.unlink()
    os.mkfifo(bench.path)
    assert "no regular file" in (await refused(bench)).message
    bench.path.unlink()
    bench.path.write_text(text)
    assert (await reload(bench, "alpha", "beta"))["projectsAdded"] == ["beta"]


async def test_the_slot_is_free_again_after_a_failure(make_bench: Any) -> None:
    bench = make_bench("alpha")
    bench.path.write_text("nonsense")
    await refused(bench)
    assert (await reload(bench, "alpha", "beta"))["projectsAdded"] == ["beta"]


async def test_counters_and_lines(make_bench: Any) -> None:
    bench = make_bench("alpha")
    await reload(bench, "beta", "gamma")
    await reload(bench, "alpha")
    bench.path.write_text("nonsense")
    with pytest.raises(MaadError):
        await bench.reloader.reload()
    counts = bench.reloader.counts
    assert (counts.attempted, counts.succeeded, counts.failed) == (3, 2, 1)
    assert (counts.projects_added, counts.projects_removed) == (3, 3)
    assert counts.last_at is not None
    assert len(bench.logged("instance_reload_start")) == 3
    (first, _) = bench.logged("instance_reload_complete")
    assert (first["level"], first["source"]) == ("info", "tool")
    assert (first["projectsAdded"], first["projectsRemoved"]) == (2, 1)
    line = bench.audited[0]
    assert line.pop("durationMs") >= 0
    assert line == {
        "event": "instance_reload",
        "source": "tool",
        "projectsAdded": 2,
        "projectsRemoved": 1,
        "projectsAddedNames": ("beta", "gamma"),
        "projectsRemovedNames": ("alpha",),
        "sessionsCancelled": 0,
        "sessionsPruned": 0,
    }
    assert len([entry for entry in bench.audited if entry["event"] == "instance_reload"]) == 2


async def test_warnings_of_the_new_file_are_told_and_logged(make_bench: Any) -> None:
    bench = make_bench("alpha")
    bench.declare("alpha", "beta")
    (bench.folder / "beta").rmdir()
    done = as_json(await bench.reloader.reload())
    (line,) = bench.logged("instance_warning")
    assert done["warnings"] == [line["message"]]
    assert "'beta'" in line["message"]
    assert str(bench.folder) not in line["message"]


async def test_a_reload_ends_the_streams_of_sessions_that_keep_nothing(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    single, pruned, unbound = (
        bench.open("single", "alpha"),
        bench.open("pruned", "alpha", "beta"),
        bench.open("unbound"),
    )
    for session in (single, pruned, unbound):
        assert session.notices.attach()
        session.notices.offer(b"last words")
    await reload(bench, "beta")
    assert await single.notices.take(None) == [b"last words"]
    assert await single.notices.take(None) is None
    assert bench.closed == []
    for session in (pruned, unbound):
        assert await session.notices.take(None) == [b"last words"]
        assert await session.notices.take(0) == []


# -- tokens ------------------------------------------------------------------------------


async def test_sessions_of_tokens_that_died_are_closed_but_not_the_callers(
    make_bench: Any,
) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *")
    mine = bench.open("mine", "alpha", token=record)
    bench.open("other", "alpha", token=record)
    bench.open("stdio", "alpha")
    revoked = bench.tokens.path
    _revoke_elsewhere(revoked, record.id)
    done = await bench.reloader.answer_tool(
        mine, InstanceReloadArgs(), bench.state.instance, record
    )
    assert done["tokens"] == {
        "reloaded": True,
        "total": 1,
        "active": 0,
        "sessionsClosed": 1,
    }
    assert bench.closed == [("other", "auth")]
    assert bench.logged("tokens_reload")[0]["active"] == 0


async def test_a_bad_token_file_is_part_of_the_result(make_bench: Any) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *")
    with open(bench.tokens.path, "w") as file:
        file.write("tokens: 7\n")
    done = await reload(bench, "alpha", "beta")
    assert done["projectsAdded"] == ["beta"]
    tokens = done["tokens"]
    assert (tokens["reloaded"], tokens["total"], tokens["active"]) == (False, 1, 1)
    assert tokens["error"]["code"] == "TOKENS_FILE_INVALID"
    assert bench.tokens.find(record.id) == record


async def test_tokens_are_reloaded_also_when_the_instance_is_refused(make_bench: Any) -> None:
    bench = make_bench("alpha")
    record = bench.issue("admin *")
    bench.open("s", "alpha", token=record)
    _revoke_elsewhere(bench.tokens.path, record.id)
    bench.path.write_text("nonsense")
    with pytest.raises(MaadError):
        await bench.reloader.reload()
    assert bench.closed == [("s", "auth")]


async def test_a_signal_reloads_both_and_logs_what_failed(make_bench: Any) -> None:
    bench = make_bench("alpha")
    bench.declare("alpha", "beta")
    await bench.reloader.on_sighup()
    assert list(bench.state.instance.projects) == ["alpha", "beta"]
    assert bench.audited[0]["source"] == "sighup"
    assert len(bench.logged("tokens_reload")) == 1
    record = bench.issue("admin *")
    bench.open("s", "alpha", token=record)
    _revoke_elsewhere(bench.tokens.path, record.id)
    bench.path.write_text("nonsense")
    await bench.reloader.on_sighup()
    (line,) = bench.logged("sighup_reload_failed")
    assert (line["level"], line["code"]) == ("warning", "INSTANCE_RELOAD_FAILED")
    assert bench.closed == [("s", "auth")]
    with open(bench.tokens.path, "w") as file:
        file.write("tokens: 7\n")
    await bench.reloader.on_sighup()
    (line,) = bench.logged("sighup_tokens_reload_failed")
    assert line["code"] == "TOKENS_FILE_INVALID"


@pytest.mark.parametrize("good", [True, False])
async def test_the_service_manager_hears_of_every_reload(make_bench: Any, good: bool) -> None:
    bench = make_bench("alpha")
    address = str(bench.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        bench.reloader._notifier = ServiceNotifier(address, None)
        if not good:
            bench.path.write_text("nonsense")
        await bench.reloader.on_sighup()
        first = manager.recv(4096).decode().split("\n")
        assert first[0] == "RELOADING=1"
        assert first[1].startswith("MONOTONIC_USEC=")
        assert manager.recv(4096).startswith(b"EXTEND_TIMEOUT_USEC=")
        told = f"serving 1 projects; reloads: {int(good)} done, {int(not good)} refused"
        assert manager.recv(4096).decode() == f"READY=1\nSTATUS={told}"


async def test_reloads_that_overlap_are_one_to_the_service_manager(make_bench: Any) -> None:
    bench = make_bench("alpha")
    address = str(bench.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        notifier = bench.reloader._notifier = ServiceNotifier(address, None)
        await asyncio.gather(bench.reloader.on_sighup(), bench.reloader.on_sighup())
        notifier.status("after")
        told = [manager.recv(4096).decode().split("\n")[0] for _ in range(4)]
    assert [line.partition("=")[0] for line in told] == [
        "RELOADING", "EXTEND_TIMEOUT_USEC", "READY", "STATUS"
    ]  # fmt: skip


async def test_a_repository_that_appeared_counts_as_another_policy(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    subprocess.run(["git", "init", "-q", str(bench.folder / "alpha")], check=True)
    done = await reload(bench, "alpha", "beta")
    assert done["projectsRestarted"] == ["alpha"]


async def test_the_new_ceiling_of_a_project_that_came_back_counts(make_bench: Any) -> None:
    bench = make_bench("alpha", "beta")
    await reload(bench, "beta")
    await reload(bench, "beta", "alpha:reader")
    assert bench.state.instance.projects["alpha"].role is Role.READER


def _revoke_elsewhere(path: str, token_id: str) -> None:
    from maadd.auth.registry import TokenRegistry

    TokenRegistry.load(path).revoke(token_id)
