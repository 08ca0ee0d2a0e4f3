"""What the demo shows: an agent at work on the records, and a worker that dies."""

from __future__ import annotations

import os
import signal
from typing import Any

from maadd.cli.demo.agent import Agent, connected
from maadd.cli.demo.daemon import Daemon
from maadd.cli.demo.page import Page
from maadd.protocol.ownership import read_owner
from maadd_worker.history.command import run_git

PROJECT = "ferries"
_HEAD_LINES = 10
_SECTION_OF = "inc-gates-stuck-high-tide"
_NEW_INCIDENT = {
    "title": "Ticket printer jams in the rain",
    "service": "svc-gate",
    "severity": "minor",
    "status": "open",
    "opened_on": "2024-03-02",
    "tags": ["printer", "weather"],
}
_NEW_BODY = """\
# Ticket printer jams in the rain {#top}

## What happened {#what-happened}

Paper swells when the [[location:north quay|quay]] is wet.

## Follow up {#follow-up}

Order the coated paper.
"""


async def tell(page: Page, daemon: Daemon, token: str, root: str) -> None:
    """All steps between the start and the end of the daemon. Raises StepFailed."""
    async with connected(daemon.port, token, page) as agent:
        with page.step("Connect with the SDK's client and bind the project"):
            await _bind(agent, page)
        with page.step("Ask what there is"):
            await _describe(agent, page)
        with page.step("Find the serious incidents since 2022"):
            await _query(agent, page)
        with page.step("Read one section of one record"):
            await _read_section(agent, page)
        with page.step("Add a record"):
            created = await _create(agent, page, root)
        with page.step("Two agents change the same record"):
            await _conflict(agent, page, daemon, token, created)
        with page.step("What is not allowed is refused, and nothing is written"):
            await _refusals(agent, page, created)
        with page.step("The Git log tells what happened"):
            _show_log(page, root, created)
        with page.step("Kill the project's worker; the next call works"):
            await _kill_worker(agent, page, root, created)


async def _bind(agent: Agent, page: Page) -> None:
    page.say(f"The server lists {await agent.tool_count()} tools.")
    projects = (await agent.call("maad_projects"))["projects"]
    page.table(
        ("project", "role", "description"),
        ((one["name"], one["role"], one["description"]) for one in projects),
    )
    bound = await agent.call("maad_use_project", name=PROJECT)
    page.say(f"This session is bound to {bound['activeProject']} as {bound['effectiveRole']}.")


async def _describe(agent: Agent, page: Page) -> None:
    data = await agent.call("maad_describe")
    page.table(
        ("type", "records", "folder", "ids"),
        (
            (row["type"], row["docCount"], f"{row['path']}/", f"{row['idPrefix']}-…")
            for row in data["registryTypes"]
        ),
    )


async def _query(agent: Agent, page: Page) -> None:
    columns = ("opened_on", "severity", "service", "minutes_down", "title")
    data = await agent.call(
        "maad_query",
        docType="incident",
        filters={
            "severity": {"op": "in", "value": ["major", "critical"]},
            "opened_on": {"op": "gte", "value": "2022-01-01"},
        },
        fields=list(columns),
        sortBy="opened_on",
        sortOrder="desc",
        limit=5,
    )
    page.table(
        columns, ([row["fields"].get(name, "") for name in columns] for row in data["results"])
    )
    page.say(f"{len(data['results'])} of {data['total']}.")


async def _read_section(agent: Agent, page: Page) -> None:
    data = await agent.call("maad_get", docId=_SECTION_OF, depth="warm", block="what-happened")
    page.say(f"{data['frontmatter']['title']}, section “{data['block']['heading']}”:")
    page.quote(data["block"]["content"])


async def _create(agent: Agent, page: Page, root: str) -> str:
    data = await agent.call("maad_create", docType="incident", fields=_NEW_INCIDENT, body=_NEW_BODY)
    doc_id: str = data["docId"]
    page.say(f"{data['filePath']}, version {data['version']}, is a file like any other:")
    page.quote(_head(os.path.join(root, data["filePath"])))
    return doc_id


def _head(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return "".join(file.readlines()[:_HEAD_LINES])


async def _conflict(agent: Agent, page: Page, daemon: Daemon, token: str, doc_id: str) -> None:
    read = await agent.call("maad_get", docId=doc_id)
    page.say(f"The first agent has read version {read['version']}. A second one is quicker:")
    async with connected(daemon.port, token, page) as second:
        await second.call("maad_use_project", name=PROJECT)
        await second.call("maad_update", docId=doc_id, fields={"severity": "major"})
    page.say("The first one writes on what it has read, and is told:")
    change = {"status": "watching"}
    await agent.refused(
        "VERSION_CONFLICT",
        "maad_update",
        docId=doc_id,
        fields=change,
        expectedVersion=read["version"],
    )
    page.say("It reads again, sees the other's change, and writes on that:")
    again = await agent.call("maad_get", docId=doc_id)
    data = await agent.call(
        "maad_update", docId=doc_id, fields=change, expectedVersion=again["version"]
    )
    page.say(
        f"Version {data['version']} holds both: severity {again['frontmatter']['severity']}, "
        f"status {change['status']}."
    )


async def _refusals(agent: Agent, page: Page, doc_id: str) -> None:
    await agent.refused(
        "VALIDATION_FAILED", "maad_update", docId=doc_id, fields={"severity": "enormous"}
    )
    page.say("The token may write; removing records takes an admin:")
    await agent.refused("INSUFFICIENT_ROLE", "maad_delete", docId=doc_id)


def _show_log(page: Page, root: str, doc_id: str) -> None:
    page.command("git log --reverse --format='%h  %an  %s'")
    log = _git(root, "log", "--reverse", "--format=%h  %an  %s")
    page.quote(log)
    commits = [line for line in log.splitlines() if doc_id in line]
    if len(commits) != 3:
        raise AssertionError(f"three writes of {doc_id} made {len(commits)} commits")
    page.say("One commit for each write, which says who asked for it:")
    page.command("git log -1 --format=%b")
    page.quote(_git(root, "log", "-1", "--format=%b"))


def show_clean_tree(page: Page, root: str) -> None:
    """To be called when the daemon has ended: nothing of its work is left uncommitted."""
    page.command("git status --porcelain")
    status = _git(root, "status", "--porcelain")
    if status:
        raise AssertionError(f"the working tree is not clean:\n{status}")
    page.say("The working tree is clean: every write is in the history.")


def _git(root: str, *arguments: str) -> str:
    return run_git(root, arguments).stdout.decode()


async def _kill_worker(agent: Agent, page: Page, root: str, doc_id: str) -> None:
    before = _worker_of(root)
    page.command(f"kill -KILL {before}")
    os.kill(before, signal.SIGKILL)
    data: dict[str, Any] = await agent.call("maad_get", docId=doc_id)
    page.say(
        f"Worker {_worker_of(root)} took over: “{data['frontmatter']['title']}” is at version "
        f"{data['version']}, as it was. The session never noticed."
    )
    if _worker_of(root) == before:
        raise AssertionError("the killed worker still owns the project")


def _worker_of(root: str) -> int:
    owner = read_owner(root)
    if owner is None or owner.pid is None:
        raise AssertionError("no worker owns the project")
    return owner.pid
