"""A worker that dies in the middle of a write, as a client of the real daemon meets it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from daemon_bench import Client, Instance, eventually, run

POINTS = (
    "journal.begun",
    "file.staged",
    "file.published",
    "index.commit",
    "index.committed",
    "git.ref.locked",
    "git.moved",
    "git.index.written",
    "journal.complete",
    "reply.ready",
    "reply.sent",
)
DEATHS_AT_ONCE = 4
"""One more within a minute would put the project aside, as it should."""


def done_once(client: Client, tool: str, key: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a call that may find a worker that is dying behind its last answer."""
    answer: dict[str, Any] = client.call(tool, idempotencyKey=key, **arguments)
    if not answer["ok"] and answer["errors"][0]["code"] == "WORKER_LOST":
        answer = client.call(tool, idempotencyKey=key, **arguments)
    return answer


def crash_and_repeat(instance: Instance, start: Any, points: list[str], seed: int) -> None:
    """Calls that die at some points, each repeated with its key: done once, and told truly."""
    folder = instance.path.parent
    armed = ";".join(f"{name}=kill:{folder / name}" for name in POINTS)
    daemon = start(instance, MAADD_FAILPOINTS=armed)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    rng = random.Random(seed)
    for number, point in enumerate(points):
        name = f"crash-{seed}-{number}"
        calls: list[tuple[str, dict[str, Any]]] = [
            ("maad_create", {"docType": "note", "docId": f"nte-{name}", "fields": {"title": "t"}}),
            ("maad_update", {"docId": "nte-0", "appendBody": f"Line {name}"}),
            ("maad_delete", {"docId": f"nte-old-{name}", "mode": rng.choice(("soft", "hard"))}),
        ]
        # A delete stages no bytes.
        tool, arguments = rng.choice(calls[:2] if point == "file.staged" else calls)
        if tool == "maad_delete":
            made = done_once(
                client,
                "maad_create",
                f"{name}-old",
                docType="note",
                docId=arguments["docId"],
                fields={"title": "t"},
            )
            assert made["ok"], made
        (folder / point).touch()
        first = client.call(tool, idempotencyKey=name, **arguments)
        if not first["ok"]:
            [error] = first["errors"]
            assert error["code"] == "WORKER_LOST"
            assert error["details"]["writeOutcome"] == "unknown_reconcile"
        again = done_once(client, tool, name, **arguments)
        assert again["ok"], (point, tool, again)
        if first["ok"]:
            assert again["_meta"]["replayed"] is True
            assert again["data"]["docId"] == first["data"]["docId"]
        # The step may lie behind the answer; then the worker dies by itself a moment later.
        assert eventually((lambda path=folder / point: not path.exists()), 30)
    body = client.ok("maad_get", docId="nte-0", depth="cold")["body"]
    lines = [line for line in body.splitlines() if line.startswith("Line ")]
    assert len(lines) == len(set(lines))
    client.close()
    assert daemon.stop() == 0
    project = instance.project
    assert run("git", "status", "--porcelain", "--", "notes", cwd=project) == ""
    assert run("git", "fsck", "--strict", "--no-dangling", cwd=project) == ""
    left = [*project.rglob("*.maad-tmp-*"), *project.rglob("*.lock"), *project.rglob("tmp_obj*")]
    assert left == []


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_key_gives_its_one_answer_after_a_crash(
    instance: Instance, start: Any, part: int
) -> None:
    points = list(POINTS)[part * DEATHS_AT_ONCE : (part + 1) * DEATHS_AT_ONCE]
    crash_and_repeat(instance, start, points, part)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_crashes_behind_the_front(instance: Instance, start: Any) -> None:
    for seed in range(20):
        points = random.Random(seed).choices(POINTS, k=DEATHS_AT_ONCE)
        crash_and_repeat(instance, start, points, seed)
