"""Roles as clients get them through a listening socket: vectors of spec 04 §5.1, pins of §9.6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maadd.protocol.roles import Role

READER, WRITER, ADMIN = Role
OFFICE = {"main": ADMIN, "alpha": ADMIN, "vault": ADMIN, "w": WRITER, "r": READER}
"""Projects and their ceilings."""

READ, CREATE, DELETE = (
    ("maad_query", {"docType": "note"}),
    ("maad_create", {"docType": "note", "fields": {}}),
    ("maad_delete", {"docId": "nte-1"}),
)
FORBIDDEN = "TOKEN_PROJECT_FORBIDDEN"
DENIED = "ROLE_UPGRADE_DENIED"


async def effective(client: Any, name: str, **asked: str) -> str:
    """The role that a new session gets on a project, or the code of the refusal."""
    assert (await client.hello()).status_code == 200
    envelope = await client.call("maad_use_project", name=name, **asked)
    if not envelope["ok"]:
        state = await client.data("maad_current_session")
        assert state["mode"] is None  # a failed bind changes nothing
        code: str = envelope["errors"][0]["code"]
        return code
    role: str = envelope["data"]["effectiveRole"]
    assert (await client.data("maad_current_session"))["effectiveRoles"] == {name: role}
    return role


async def test_a_bind_gives_the_lowest_of_ceiling_cap_and_wish(open_front: Any) -> None:
    """The first table, and the rows between its rows."""
    cases = {
        "reader w": {"": "reader", "reader": "reader", "writer": DENIED, "admin": DENIED},
        "writer main": {"": "writer", "reader": "reader", "writer": "writer", "admin": DENIED},
        "admin w": {"": "writer", "reader": "reader", "writer": "writer", "admin": DENIED},
        "admin r": {"": "reader", "reader": "reader", "writer": DENIED, "admin": DENIED},
        "admin main": {"": "admin", "reader": "reader", "writer": "writer", "admin": "admin"},
    }
    async with open_front(OFFICE) as bench, bench.wire() as client_of:
        for text, results in cases.items():
            client = client_of(bench.issue(text).plaintext)
            project = text.split()[1]
            for wish, result in results.items():
                asked = {"as": wish} if wish else {}
                assert await effective(client, project, **asked) == result, (text, wish)
        stranger = client_of(bench.issue("admin alpha").plaintext)
        for asked in ({}, {"as": "reader"}, {"as": "admin"}):
            assert await effective(stranger, "main", **asked) == FORBIDDEN


async def test_the_grant_that_names_a_project_decides_then_the_one_for_all(
    open_front: Any,
) -> None:
    """The vectors of token caps."""
    cases: dict[str, dict[str, str]] = {
        "admin *:reader,alpha:admin": {"alpha": "admin", "main": "reader", "vault": "reader"},
        "admin alpha:admin,*:reader": {"alpha": "admin", "main": "reader", "vault": "reader"},
        "admin *,vault:reader": {"vault": "reader", "alpha": "admin", "main": "admin"},
        "admin vault:reader,*": {"vault": "reader", "alpha": "admin", "main": "admin"},
        "admin alpha": {"alpha": "admin", "main": FORBIDDEN, "vault": FORBIDDEN},
        # Written by hand: no grant goes beyond the role of its token.
        "writer alpha:admin": {"alpha": "writer", "main": FORBIDDEN},
        "reader *:admin": {"alpha": "reader", "r": "reader"},
    }
    async with open_front(OFFICE) as bench, bench.wire() as client_of:
        for text, roles in cases.items():
            client = client_of(bench.issue(text).plaintext)
            for project, role in roles.items():
                assert await effective(client, project) == role, (text, project)
            shown = (await client.data("maad_projects"))["projects"]
            allowed = {name: role for name, role in roles.items() if role != FORBIDDEN}
            listed = {one["name"]: one["role"] for one in shown}
            assert {name: listed[name] for name in allowed} == allowed
            assert not {name for name in roles if name not in allowed} & listed.keys()


async def test_a_role_opens_its_tools_and_no_others(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as client_of:
        bearer = bench.issue("admin *,w:reader").plaintext
        for project, asked, allowed, refused in (
            ("main", {"as": "reader"}, (), (CREATE, DELETE)),
            ("main", {"as": "writer"}, (CREATE,), (DELETE,)),
            ("main", {}, (CREATE, DELETE), ()),
            ("w", {}, (), (CREATE, DELETE)),
        ):
            client = client_of(bearer)
            await effective(client, project, **asked)
            for tool, arguments in allowed:
                assert await client.code(tool, **arguments) is None
            for tool, arguments in refused:
                error = await client.error(tool, **arguments)
                found = (error["code"], error["details"]["project"])
                assert found == ("INSUFFICIENT_ROLE", project)


async def test_a_lowered_cap_counts_from_the_next_call_on(open_front: Any) -> None:
    """Ceilings and caps are composed anew on every call; `as` goes on limiting them."""
    async with open_front(OFFICE) as bench, bench.wire() as client_of:
        client = client_of(bench.issue("admin main,alpha:admin").plaintext)
        await client.hello()
        await client.data("maad_use_projects", names=["main", "alpha"], **{"as": "writer"})
        assert await client.code("maad_create", project="main", **CREATE[1]) is None
        assert await client.code("maad_delete", project="main", **DELETE[1]) == "INSUFFICIENT_ROLE"

        async def roles() -> dict[str, str]:
            shown = await client.data("maad_current_session")
            found: dict[str, str] = shown["effectiveRoles"]
            return found

        path = Path(bench.tokens.path)
        written = path.read_text()
        path.write_text(written.replace('"main"\n', '"main"\n    role: "reader"\n'))
        await bench.follower.reload()
        assert await roles() == {"main": "reader", "alpha": "writer"}
        assert await client.code("maad_create", project="main", **CREATE[1]) == "INSUFFICIENT_ROLE"
        # A grant that is taken away leaves the rest of the binding as it was.
        path.write_text(written.replace('"main"', '"vault"'))
        await bench.follower.reload()
        refused = await client.code("maad_query", project="main", **READ[1])
        assert refused == "PROJECT_NOT_WHITELISTED"
        assert (await roles())["alpha"] == "writer"

        path.write_text(written)
        await bench.follower.reload()
        bench.state.serve(bench.declared({**OFFICE, "alpha": READER}))
        assert await roles() == {"main": "writer", "alpha": "reader"}


async def test_over_pipes_the_ceiling_alone_limits(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.stdio() as pipes:
        number = 0

        async def bind(name: str, wish: str) -> Any:
            nonlocal number
            number += 1
            arguments = {"name": name, "as": wish}
            params = {"name": "maad_use_project", "arguments": arguments}
            pipes.send(id=number, method="tools/call", params=params)
            return (await pipes.receive())["result"]

        hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
        pipes.send(
            id=0, method="initialize", params={**hello, "clientInfo": {"name": "t", "version": "1"}}
        )
        await pipes.receive()
        for name, wish in (("r", "admin"), ("r", "writer"), ("w", "admin")):
            refused = await bind(name, wish)
            assert refused["isError"] is True
            assert DENIED in refused["content"][0]["text"]
        bound = await bind("w", "writer")
        assert '"effectiveRole":"writer"' in bound["content"][0]["text"]


# -- pins ------------------------------------------------------------------------------------

PIN, PIN_ROLE = "X-Maad-Pin-Project", "X-Maad-Pin-Role"


async def test_a_pinned_role_is_the_lowest_of_ceiling_cap_and_pin(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as client_of:
        for grants, lowered, role in (
            ("admin *", None, "writer"),
            ("reader *", None, "reader"),
            ("admin *,w:reader", None, "reader"),
            ("admin w", "reader", "reader"),
            ("admin w", "writer", "writer"),
            ("admin w", "admin", "writer"),
            ("reader w", "admin", "reader"),
        ):
            client = client_of(bench.issue(grants).plaintext)
            pins = {PIN: "w"} | ({PIN_ROLE: lowered} if lowered else {})
            assert (await client.hello(**pins)).status_code == 200
            state = await client.data("maad_current_session")
            assert (state["mode"], state["activeProject"]) == ("single", "w")
            assert state["binding_source"] == "gateway_pin"
            assert state["effectiveRoles"] == {"w": role}, (grants, lowered)
            elsewhere = {**CREATE[1], "project": "main"}
            assert await client.code(CREATE[0], **elsewhere) == "PROJECT_NOT_WHITELISTED"
            if role == "reader":
                assert await client.code(CREATE[0], **CREATE[1]) == "INSUFFICIENT_ROLE"
            for tool, names in (("project", {"name": "w"}), ("projects", {"names": ["main"]})):
                error = await client.error(f"maad_use_{tool}", **names)
                assert error["code"] == "SESSION_PINNED"
                assert f"{PIN} header bound this session to w " in error["message"]


async def test_every_faulty_pin_opens_no_session(open_front: Any) -> None:
    """The table of §9.6, in its order."""
    async with open_front(OFFICE) as bench, bench.wire() as client_of:
        good = client_of(bench.issue("admin *").plaintext)
        narrow = client_of(bench.issue("admin alpha").plaintext)
        for client, pins, status, code in (
            (good, {PIN: "w, w"}, 400, "PIN_PROJECT_INVALID"),
            (good, {PIN: ""}, 400, "PIN_PROJECT_INVALID"),
            (good, {PIN: "W"}, 400, "PIN_PROJECT_INVALID"),
            (good, {PIN: "-w"}, 400, "PIN_PROJECT_INVALID"),
            (good, {PIN: "nowhere"}, 400, "PIN_PROJECT_NOT_FOUND"),
            (good, {PIN: "w", PIN_ROLE: "king"}, 400, "PIN_PROJECT_INVALID"),
            (good, {PIN_ROLE: "reader"}, 400, "PIN_PROJECT_INVALID"),
            (narrow, {PIN: "w"}, 403, FORBIDDEN),
            (narrow, {PIN: "nowhere"}, 400, "PIN_PROJECT_NOT_FOUND"),
        ):
            refused = await client.hello(**pins)
            found = refused.json()["errors"][0]["code"]
            assert (refused.status_code, found) == (status, code), pins
            (line,) = bench.logged("pin_rejected")
            assert (line["code"], line["project"]) == (code, pins.get(PIN) or None)
            bench.events.clear()
        assert len(bench.sessions) == 0
        await good.hello(**{PIN: "main"})
        for known in (good.session, "unknown"):
            good.headers["Mcp-Session-Id"] = known
            for pin in ("main", "W"):
                refused = await good.post("ping", {}, **{PIN: pin})
                assert refused.json()["errors"][0]["code"] == "PIN_ON_EXISTING_SESSION"


# -- many names ------------------------------------------------------------------------------


async def test_so_many_names_are_bound_and_not_one_more(open_front: Any) -> None:
    many = {f"p{number}": WRITER for number in range(65)}
    async with open_front(many) as bench, bench.wire() as client_of:
        client, second = [client_of(bench.issue("admin *").plaintext) for _ in range(2)]
        await client.hello()
        await second.hello()
        error = await client.error("maad_use_projects", names=list(many))
        assert error["code"] == "INVALID_ARGS"
        (issue,) = error["details"]["issues"]
        assert issue["path"] == "names"
        assert "64" in issue["message"]
        assert await client.code("maad_use_projects", names=[]) == "INVALID_ARGS"
        # Names are counted as they were sent.
        assert await client.code("maad_use_projects", names=["p1"] * 65) == "INVALID_ARGS"
        assert (await client.data("maad_current_session"))["mode"] is None
        twice = await second.data("maad_use_projects", names=["p1", "p0"] * 32)
        assert twice["whitelist"] == ["p1", "p0"]
        bound = await client.data("maad_use_projects", names=list(many)[:64])
        assert bound["whitelist"] == list(many)[:64]
        assert set(bound["effectiveRoles"].values()) == {"writer"}
        assert await client.code("maad_get", docId="x", project="p64") == "PROJECT_NOT_WHITELISTED"
