"""Change notifications and record resources end to end, with the SDK's own client (spec 04 §11).

One daemon serves all tests over HTTP; the last ones start a server on standard input and output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import pytest
from daemon_bench import BIN, ENVIRONMENT, Client, Daemon, Instance, eventually, make_project, run
from mcp.client import Client as SdkClient
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

ERAS = ["legacy", "2026-07-28"]
RECORDS = 120


class Served:
    """A daemon over two projects, `main` and `side`, and a token for the first alone."""

    def __init__(self, folder: Path) -> None:
        self.instance = Instance(folder, RECORDS, indexed=True)
        make_project(folder / "side", records=2, indexed=True)
        with self.instance.path.open("a") as file:
            file.write("  - name: side\n    path: ./side\n    role: admin\n")
        self.admin = self.instance.token
        self.reader, self.reader_id = self.issue("reader", "main")
        self.daemon = Daemon(self.instance.path, MAAD_TOKENS_POLL_MS="50")
        self.port = self.daemon.wait_until_listening()

    def issue(self, role: str, projects: str) -> tuple[str, str]:
        """A new token and its id."""
        instance = f"--instance={self.instance.path}"
        token = run(
            BIN / "maad",
            "auth",
            "issue-token",
            instance,
            f"--role={role}",
            f"--projects={projects}",
        ).strip()
        records = json.loads(run(BIN / "maad", "auth", "list-tokens", instance))
        return token, records[-1]["id"]

    def revoke(self, token_id: str) -> None:
        run(
            BIN / "maad", "auth", "revoke-token", f"--instance={self.instance.path}",
            f"--id={token_id}",
        )  # fmt: skip

    def sdk(self, token: str, mode: str, **options: Any) -> SdkClient:
        web = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        url = f"http://127.0.0.1:{self.port}/mcp"
        return SdkClient(streamable_http_client(url, http_client=web), mode=mode, **options)

    def plain(self, token: str, *projects: str) -> Client:
        """A client without the SDK, bound to `projects`."""
        client = Client(self.port, token)
        client.initialize()
        if len(projects) == 1:
            client.ok("maad_use_project", name=projects[0])
        else:
            client.ok("maad_use_projects", names=list(projects))
        return client


pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    assert served.daemon.stop(signal.SIGTERM) == 0


class Stream:
    """The standing stream of a session, read event by event."""

    def __init__(self, client: Client) -> None:
        self._connection, self._response = client.open_stream()

    def next(self) -> dict[str, Any]:
        """The params of the next change notification."""
        while not (line := self._response.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        message = json.loads(line.removeprefix(b"data: "))
        assert message["method"] == "notifications/resources/updated"
        params: dict[str, Any] = message["params"]
        return params

    def close(self) -> None:
        self._connection.close()


class Inbox:
    """What an SDK client is told; `uri` waits for the next change."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[object] = asyncio.Queue()

    async def take(self, message: object) -> None:
        await self._messages.put(message)

    async def uri(self) -> str:
        message = await asyncio.wait_for(self._messages.get(), 20)
        assert isinstance(message, mcp_types.ResourceUpdatedNotification)
        return message.params.uri


async def ok(client: SdkClient, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    envelope = json.loads(result.content[0].text)
    assert envelope["ok"], envelope
    return envelope["data"]


async def refused(client: SdkClient, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    return str(json.loads(result.content[0].text)["errors"][0]["code"])


async def subscribe(client: SdkClient, **arguments: Any) -> Any:
    """Subscribe once the client's stream is open, which it opens on its own time."""
    async with asyncio.timeout(20):
        while True:
            answer = await ok(client, "maad_subscribe", **arguments)
            if "no stream" not in answer["note"]:
                return answer


def go(scenario: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(40):
            return await scenario

    return asyncio.run(bounded())


# -- the subscription tools over HTTP ----------------------------------------------------


def test_the_sdk_client_of_a_session_hears_of_a_write(served: Served) -> None:
    async def scenario() -> None:
        inbox = Inbox()
        async with served.sdk(served.admin, "legacy", message_handler=inbox.take) as client:
            await ok(client, "maad_use_project", name="main")
            await subscribe(client)
            await ok(client, "maad_create", docType="note", docId="sdk-1", fields={"title": "x"})
            assert await inbox.uri() == "maad://main/sdk-1"

    go(scenario())


def test_a_notification_says_everything_about_the_change(served: Served) -> None:
    client = served.plain(served.admin, "main")
    stream = Stream(client)
    answer = client.ok("maad_subscribe", docTypes=["note", "note"])
    assert answer["subscribed"] is True
    assert answer["filter"] == {"docTypes": ["note"], "project": None}
    client.ok("maad_create", docType="note", docId="told", fields={"title": "x"})
    created = stream.next()
    client.ok("maad_update", docId="told", fields={"title": "y"})
    updated = stream.next()
    client.ok("maad_delete", docId="told", mode="hard")
    deleted = stream.next()
    assert created == {
        "uri": "maad://main/told",
        "action": "create",
        "docId": "told",
        "docType": "note",
        "project": "main",
        "updatedAt": created["updatedAt"],
        "seq": created["seq"],
        "origin": "tool",
    }
    assert [one["action"] for one in (updated, deleted)] == ["update", "delete"]
    assert created["seq"] < updated["seq"] < deleted["seq"]
    stream.close()


def test_only_what_changed_and_was_asked_for_is_told(served: Served) -> None:
    client = served.plain(served.admin, "main", "side")
    stream = Stream(client)
    client.ok("maad_subscribe", project="side")
    client.ok("maad_create", project="main", docType="note", docId="o-1", fields={"title": "x"})
    client.ok("maad_create", project="side", docType="note", docId="o-2", fields={"title": "x"})
    assert stream.next()["docId"] == "o-2"
    client.ok("maad_update", project="side", docId="o-2", fields={"title": "x"})
    client.ok("maad_reindex", project="side", force=True)
    assert client.ok("maad_unsubscribe") == {"subscribed": False, "wasSubscribed": True}
    assert client.ok("maad_unsubscribe") == {"subscribed": False, "wasSubscribed": False}
    client.ok("maad_update", project="side", docId="o-2", fields={"title": "unheard"})
    client.ok("maad_subscribe", docTypes=["note"])
    client.ok("maad_bulk_create", project="side", records=[
        {"docType": "note", "docId": f"o-b{number}", "fields": {"title": "x"}}
        for number in range(3)
    ])  # fmt: skip
    # The change while nobody was subscribed may share a window with the later ones.
    heard = {stream.next()["docId"] for _ in range(3)}
    assert {"o-b0", "o-b1"} <= heard
    stream.close()


def test_subscribing_needs_a_binding_and_a_project_within_it(served: Served) -> None:
    async def scenario() -> None:
        async with served.sdk(served.admin, "legacy") as client:
            assert await refused(client, "maad_subscribe") == "SESSION_UNBOUND"
            await ok(client, "maad_use_project", name="main")
            assert await refused(client, "maad_subscribe", project="side") == (
                "PROJECT_NOT_WHITELISTED"
            )
            await ok(client, "maad_summary")
            envelope: dict[str, Any] = {}
            while "_meta" not in envelope:
                # The types are known once a heartbeat of the worker has brought them.
                unknown = await client.call_tool(
                    "maad_subscribe", {"docTypes": ["note", "nope"], "project": "main"}
                )
                envelope = json.loads(unknown.content[0].text)
            (warning,) = envelope["_meta"]["warnings"]
            assert (warning["code"], "'nope'" in warning["message"]) == ("UNKNOWN_TYPE", True)
            too_many = [f"type_{number}" for number in range(65)]
            assert await refused(client, "maad_subscribe", docTypes=too_many) == "INVALID_ARGS"
        async with served.sdk(served.admin, "2026-07-28") as client:
            assert await refused(client, "maad_subscribe") == "SESSION_STATELESS"
            assert await refused(client, "maad_unsubscribe") == "SESSION_STATELESS"

    go(scenario())


def test_admins_see_the_subscriptions_of_the_projects_they_share(served: Served) -> None:
    watcher = served.plain(served.admin, "main", "side")
    watcher.ok("maad_subscribe", docTypes=["note", "task"])
    other = served.plain(served.admin, "side")
    other.ok("maad_subscribe")
    everything = watcher.ok("maad_subscriptions")
    ours = [
        row
        for row in everything["subscriptions"]
        if row["sessionId"] == watcher.ok("maad_current_session")["sessionId"]
    ]
    assert [list(row) for row in ours] == [
        [
            "sessionId", "mode", "activeProject", "whitelist", "subscription", "bindingSource",
            "lastActivityAt",
        ]
    ]  # fmt: skip
    assert ours[0]["mode"] == "multi"
    assert ours[0]["whitelist"] == ["main", "side"]
    assert ours[0]["subscription"]["docTypes"] == ["note", "task"]
    assert everything["byDocType"]["task"] == 1
    assert everything["byDocType"]["*"] >= 1
    seen_from_side = other.ok("maad_subscriptions")
    assert set(seen_from_side["byProject"]) == {"side"}
    assert all(row["whitelist"] in (None, ["side"]) for row in seen_from_side["subscriptions"])
    reader = served.plain(served.reader, "main")
    assert reader.call("maad_subscriptions")["errors"][0]["code"] == "INSUFFICIENT_ROLE"


def test_projects_that_come_and_go_are_told_while_they_are_there(served: Served) -> None:
    admin = served.plain(served.admin, "main", "side")
    declared = served.instance.path.read_text()
    make_project(served.instance.path.parent / "extra", records=1)
    more = "  - name: extra\n    path: ./extra\n    role: admin\n"
    served.instance.path.write_text(declared + more)
    assert admin.ok("maad_instance_reload")["projectsAdded"] == ["extra"]
    client = served.plain(served.admin, "side", "extra")
    client.ok("maad_reindex", project="extra")
    stream = Stream(client)
    record = {"docType": "note", "fields": {"title": "x"}}

    async def scenario() -> None:
        async with served.sdk(served.admin, "2026-07-28") as listener:
            extra = ["maad://extra"]
            async with listener.listen(resource_subscriptions=extra) as changes:
                client.ok("maad_subscribe")
                client.ok("maad_create", project="extra", docId="e-1", **record)
                assert stream.next()["docId"] == "e-1"
                assert (await anext(changes)).uri == "maad://extra/e-1"
                served.instance.path.write_text(declared)
                assert admin.ok("maad_instance_reload")["projectsRemoved"] == ["extra"]
                with pytest.raises(StopAsyncIteration):
                    await anext(changes)

    go(scenario())
    client.ok("maad_create", project="side", docId="e-2", **record)
    assert stream.next()["docId"] == "e-2"
    stream.close()


# -- records as resources ----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_capabilities_say_what_there_is(served: Served, mode: str) -> None:
    async def scenario() -> mcp_types.ServerCapabilities:
        async with served.sdk(served.admin, mode) as client:
            return client.server_capabilities

    capabilities = go(scenario())
    assert capabilities.tools.list_changed is True
    assert capabilities.resources.subscribe is True
    assert capabilities.resources.list_changed is False


@pytest.mark.parametrize("mode", ERAS)
def test_records_are_listed_page_by_page_and_read_as_markdown(served: Served, mode: str) -> None:
    async def scenario() -> None:
        async with served.sdk(served.admin, mode) as client:
            if mode == "legacy":
                await ok(client, "maad_use_projects", names=["main", "side"])
            uris: list[str] = []
            cursor = None
            pages = 0
            while pages == 0 or cursor is not None:
                page = await client.list_resources(cursor=cursor)
                uris += [resource.uri for resource in page.resources]
                cursor = page.next_cursor
                pages += 1
            assert pages >= 3
            assert {f"maad://main/nte-{number}" for number in range(RECORDS)} <= set(uris)
            assert {"maad://side/nte-0", "maad://side/nte-1"} <= set(uris)
            (contents,) = (await client.read_resource("maad://main/nte-7")).contents
            assert contents.mime_type == "text/markdown"
            assert contents.text == (
                '---\ndoc_id: "nte-7"\ndoc_type: "note"\nschema: "note.v1"\n'
                'title: "Note 7"\nrank: 7\n---\n\n# Note 7\n'
            )
            assert contents.meta["maad/version"] == 1
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "maad://{project}/{docId}"

    go(scenario())


@pytest.mark.parametrize("mode", ERAS)
def test_resources_are_under_the_rules_of_the_tools(served: Served, mode: str) -> None:
    async def code_of(work: Coroutine[Any, Any, Any]) -> str:
        with pytest.raises(MCPError) as caught:
            await work
        return str(caught.value.error.data["code"])

    async def scenario() -> None:
        async with served.sdk(served.reader, mode) as client:
            if mode == "legacy":
                assert await code_of(client.list_resources()) == "SESSION_UNBOUND"
                assert await code_of(client.read_resource("maad://main/nte-1")) == "SESSION_UNBOUND"
                await ok(client, "maad_use_project", name="main")
            forbidden = await code_of(client.read_resource("maad://side/nte-1"))
            assert forbidden == (
                "PROJECT_NOT_WHITELISTED" if mode == "legacy" else "TOKEN_PROJECT_FORBIDDEN"
            )
            assert await code_of(client.read_resource("maad://main/nope")) == "FILE_NOT_FOUND"
            for uri in ("maad://main", "maad://main/"):
                with pytest.raises(MCPError, match="its records are maad://main/<docId>"):
                    await client.read_resource(uri)
            assert await code_of(client.read_resource("file:///etc/passwd")) == "INVALID_ARGS"
            assert await code_of(client.list_resources(cursor="bm9uZQ")) == "INVALID_ARGS"
            listed = await client.list_resources()
            assert {resource.uri.split("/")[2] for resource in listed.resources} == {"main"}

    go(scenario())


def test_a_session_watches_single_records(served: Served) -> None:
    async def scenario() -> None:
        inbox = Inbox()
        async with served.sdk(served.admin, "legacy", message_handler=inbox.take) as client:
            with pytest.raises(MCPError, match="SESSION_UNBOUND"):
                await client.session.subscribe_resource("maad://main/nte-5")
            await ok(client, "maad_use_project", name="main")
            with pytest.raises(MCPError, match="PROJECT_NOT_WHITELISTED"):
                await client.session.subscribe_resource("maad://side/nte-1")
            await subscribe(client)
            await ok(client, "maad_unsubscribe")
            for impossible in ("%00", "x" * 100_000):
                with pytest.raises(MCPError, match="names no record that can be") as refusal:
                    await client.session.subscribe_resource(f"maad://main/{impossible}")
                assert refusal.value.error.data["code"] == "INVALID_ARGS"
            await client.session.subscribe_resource("maad://main/nte-5")
            for doc_id in ("nte-4", "nte-5"):
                await ok(client, "maad_update", docId=doc_id, fields={"title": "watched"})
            assert await inbox.uri() == "maad://main/nte-5"
            await client.session.subscribe_resource("maad://main/nte-6")
            await client.session.unsubscribe_resource("maad://main/nte-5")
            for doc_id in ("nte-5", "nte-6"):
                await ok(client, "maad_update", docId=doc_id, fields={"title": "unwatched"})
            assert await inbox.uri() == "maad://main/nte-6"

    go(scenario())


# -- subscriptions/listen ----------------------------------------------------------------


def test_a_stateless_client_listens(served: Served) -> None:
    async def scenario() -> None:
        async with served.sdk(served.admin, "2026-07-28") as client:
            uris = ["maad://main/nte-8", "maad://side"]
            async with client.listen(
                resource_subscriptions=uris, tools_list_changed=True, resources_list_changed=True
            ) as changes:
                assert changes.honored.resource_subscriptions == uris
                assert changes.honored.tools_list_changed is True
                assert changes.honored.resources_list_changed is None
                for project, doc_id in (("main", "nte-9"), ("main", "nte-8"), ("side", "nte-1")):
                    await ok(
                        client, "maad_update", project=project, docId=doc_id, fields={"rank": 77}
                    )
                heard = {(await asyncio.wait_for(anext(changes), 20)).uri for _ in range(2)}
                assert heard == {"maad://main/nte-8", "maad://side/nte-1"}

    go(scenario())


def test_listening_is_for_projects_that_the_token_admits(served: Served) -> None:
    async def scenario() -> None:
        async with served.sdk(served.reader, "2026-07-28") as client:
            for uri, code in (
                ("maad://side/nte-1", "TOKEN_PROJECT_FORBIDDEN"),
                ("maad://nowhere", "PROJECT_UNKNOWN"),
                ("maad:nothing", "INVALID_ARGS"),
            ):
                with pytest.raises(MCPError) as caught:
                    async with client.listen(resource_subscriptions=["maad://main", uri]):
                        pass
                assert caught.value.error.data["code"] == code

    go(scenario())


def test_a_listening_stream_ends_with_its_token(served: Served) -> None:
    token, token_id = served.issue("reader", "main")

    async def scenario() -> None:
        async with (
            served.sdk(token, "2026-07-28") as client,
            client.listen(resource_subscriptions=["maad://main"]) as changes,
        ):
            await asyncio.to_thread(served.revoke, token_id)
            async with asyncio.timeout(20):
                assert [change async for change in changes] == []

    go(scenario())


def test_a_client_that_goes_ends_its_listening(served: Served) -> None:
    def streams(event: str) -> int:
        lines = [json.loads(line) for line in served.daemon.log.splitlines()]
        return sum(
            line["msg"] == event and line["session_id"].startswith("listen-") for line in lines
        )

    async def scenario() -> None:
        uris = ["maad://main"]
        async with (
            served.sdk(served.reader, "2026-07-28") as client,
            client.listen(resource_subscriptions=uris),
            client.listen(resource_subscriptions=uris),
        ):
            assert streams("session_open") >= streams("session_close") + 2

    go(scenario())
    assert eventually(lambda: streams("session_close") == streams("session_open"))


# -- progress ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
def test_a_reindex_reports_its_progress(served: Served, mode: str) -> None:
    heard: list[tuple[float, str | None]] = []

    async def on_progress(done: float, _total: float | None, text: str | None) -> None:
        heard.append((done, text))

    async def scenario() -> None:
        async with served.sdk(served.admin, mode) as client:
            project = {"project": "main"}
            if mode == "legacy":
                await ok(client, "maad_use_project", name="main")
            result = await client.call_tool(
                "maad_reindex", {**project, "force": True}, progress_callback=on_progress
            )
            assert not result.is_error

    go(scenario())
    assert heard
    assert heard[-1][0] >= RECORDS
    assert "note" in (heard[-1][1] or "")


# -- standard input and output -----------------------------------------------------------


@contextlib.asynccontextmanager
async def over_stdio(
    project: Path, mode: str, handler: Callable[[object], Coroutine[Any, Any, None]]
) -> AsyncIterator[SdkClient]:
    """A single-project server, started and ended by the SDK's client."""
    parameters = StdioServerParameters(
        command=str(BIN / "maad"),
        args=[f"--project={project}", "serve", "--role=admin"],
        env={
            **ENVIRONMENT,
            "MAADD_RUNTIME_DIR": str(project.parent / "run"),
            "MAAD_LOG_LEVEL": "error",
        },
    )
    async with SdkClient(stdio_client(parameters), mode=mode, message_handler=handler) as client:
        yield client


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "main", records=3, indexed=True)


@pytest.mark.parametrize("mode", ERAS)
def test_notifications_arrive_over_stdio(project: Path, mode: str) -> None:
    async def scenario() -> None:
        inbox = Inbox()
        async with over_stdio(project, mode, inbox.take) as client:
            # As the very first call: the session of a single-project server binds itself.
            assert (await ok(client, "maad_subscribe"))["subscribed"] is True
            await ok(client, "maad_create", docType="note", docId="n-1", fields={"title": "x"})
            assert await inbox.uri() == "maad://default/n-1"
            assert (await ok(client, "maad_subscriptions"))["totalSubscriptions"] == 1
            await ok(client, "maad_unsubscribe")
            listed = await client.list_resources()
            assert "maad://default/n-1" in [resource.uri for resource in listed.resources]
            if mode == "legacy":
                return
            for uri, doc_id in (("maad://default/nte-1", "nte-1"), ("maad://default", "nte-2")):
                async with client.listen(resource_subscriptions=[uri]) as changes:
                    await ok(client, "maad_update", docId=doc_id, fields={"title": "changed"})
                    change = await asyncio.wait_for(anext(changes), 20)
                    assert change.uri == f"maad://default/{doc_id}"

    go(scenario())
