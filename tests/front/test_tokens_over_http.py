"""Tokens over a listening socket: faulty files (spec 04 §7.1), what may be issued (§8.1), reach
and expiry (§8.2)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from maadd.protocol.roles import Role

OFFICE = {"main": Role.ADMIN, "alpha": Role.WRITER, "vault": Role.ADMIN}
LATER, LATEST = "2098-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z"
FORBIDDEN, DENIED, INVALID = "TOKEN_PROJECT_FORBIDDEN", "ROLE_UPGRADE_DENIED", "INVALID_ARGS"


async def admin(client: Any, *names: str) -> Any:
    """The client, bound to these projects."""
    assert (await client.hello()).status_code == 200
    await client.data("maad_use_projects", names=list(names))
    return client


def grants(text: str) -> list[dict[str, str]]:
    """`alpha,vault:reader` as an argument."""
    pairs = [entry.partition(":") for entry in text.split(",") if entry]
    return [{"name": name, **({"role": role} if role else {})} for name, _, role in pairs]


async def test_what_may_be_issued(open_front: Any) -> None:
    """The checks of §8.1 in their order: each row breaks the rules after its own as well."""
    past = {"expiresAt": "2020-01-01"}
    rows: tuple[tuple[str, str, dict[str, str], str | None], ...] = (
        ("reader", "", past, INVALID),
        ("reader", "nowhere,nowhere", past, INVALID),
        ("reader", "nowhere:admin", past, "TOKEN_PROJECT_UNKNOWN"),
        ("reader", "alpha:admin", past, "TOKEN_ROLE_ABOVE_GLOBAL"),
        ("reader", "*:writer", past, "TOKEN_ROLE_ABOVE_GLOBAL"),
        ("admin", "alpha:admin", past, DENIED),
        ("admin", "alpha", past, INVALID),
        ("admin", "alpha", {"expiresAt": "next year"}, INVALID),
        ("admin", "alpha", {}, "TOKEN_IDENTITY_REQUIRED"),
        ("admin", "alpha", {"agentId": "a"}, None),
        ("admin", "*", {"userId": "u"}, None),
        ("writer", "main:reader,*", {"userId": "u", "expiresAt": "2099-01-01"}, None),
    )
    async with open_front(OFFICE, token_identity_required=True) as bench, bench.wire() as of:
        client = await admin(of(bench.issue("admin *").plaintext), "main", "vault")
        for role, projects, more, code in rows:
            asked = {"role": role, "projects": grants(projects), **more}
            envelope = await client.call("maad_issue_token", **asked)
            found = None if envelope["ok"] else envelope["errors"][0]["code"]
            assert found == code, asked
            if code is None:
                record = envelope["data"]["record"]
                assert record["role"] == role
                assert "hash" not in record
                assert (await of(envelope["data"]["plaintext"]).hello()).status_code == 200
        assert bench.tokens.counts().total == 4


async def test_a_token_without_identity_is_warned_of(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        client = await admin(of(bench.issue("admin *").plaintext), "main")
        asked = {"role": "reader", "projects": [{"name": "*"}]}
        envelope = await client.call("maad_issue_token", **asked)
        codes = [one["code"] for one in envelope["_meta"]["warnings"]]
        assert codes == ["TOKEN_IDENTITY_REQUIRED"]


async def test_nobody_hands_out_more_than_it_has(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        trapped = bench.issue("admin *,alpha:reader", expires_at=LATER).plaintext
        narrow = bench.issue("admin main").plaintext
        for bearer, bound, role, projects, expires, code, details in (
            (
                # A grant for all would go beyond the one that the caller has for `alpha`.
                trapped, "main", "admin", "*", LATER, DENIED,
                {"project": "alpha", "requested": "admin", "allowed": "reader"},
            ),
            (
                trapped, "main", "admin", "alpha", LATER, DENIED,
                {"project": "alpha", "requested": "admin", "allowed": "reader"},
            ),
            (trapped, "main", "admin", "*,alpha:reader", LATER, None, None),
            (trapped, "main", "reader", "*", LATER, None, None),
            (
                narrow, "main", "reader", "vault", None, FORBIDDEN,
                {"project": "vault", "requested": "reader", "allowed": None},
            ),
            (
                narrow, "main", "reader", "*", None, FORBIDDEN,
                {"project": "*", "requested": "reader", "allowed": None},
            ),
            (narrow, "main", "admin", "main", None, None, None),
        ):  # fmt: skip
            client = await admin(of(bearer), bound)
            more = {} if expires is None else {"expiresAt": expires}
            asked = {"role": role, "projects": grants(projects), "agentId": "a", **more}
            envelope = await client.call("maad_issue_token", **asked)
            error = {} if envelope["ok"] else envelope["errors"][0]
            assert (error.get("code"), error.get("details")) == (code, details), asked


async def test_no_token_outlives_the_one_that_issued_it(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        mortal = bench.issue("admin *", expires_at=LATER)
        client = await admin(of(mortal.plaintext), "main", "vault")
        asked: dict[str, Any] = {"role": "reader", "projects": grants("main"), "agentId": "a"}
        for expires in (None, LATEST, "2098-01-01T00:00:00.001Z"):
            more = {} if expires is None else {"expiresAt": expires}
            error = await client.error("maad_issue_token", **asked, **more)
            assert error["code"] == DENIED
            assert error["details"] == {
                "field": "expiresAt", "requested": expires, "allowed": LATER,
            }  # fmt: skip
        for expires in (LATER, "2097-12-31"):
            issued = await client.data("maad_issue_token", **asked, expiresAt=expires)
            assert issued["record"]["expiresAt"] <= LATER
        rotated = await client.data("maad_rotate_token", id=issued["record"]["id"])
        assert rotated["record"]["expiresAt"] == issued["record"]["expiresAt"]
        own = await client.data("maad_rotate_token", id=mortal.record.id)
        assert own["record"]["expiresAt"] == LATER
        assert await client.ping() == 401
        assert (await of(own["plaintext"]).hello()).status_code == 200


async def test_an_expired_token_is_listed_and_never_rotated(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        client = await admin(of(bench.issue("admin *").plaintext), "main", "vault")
        brief = bench.issue("reader main", expires_at=LATER)
        path = Path(bench.tokens.path)
        path.write_text(path.read_text().replace(LATER, "2020-01-01T00:00:00.000Z"))
        listed = await client.data("maad_list_tokens")
        assert [one["id"] for one in listed["tokens"]][1:] == [brief.record.id]
        assert (listed["total"], listed["activeCount"]) == (2, 1)
        assert await client.code("maad_rotate_token", id=brief.record.id) == "TOKEN_EXPIRED"
        shown = await client.data("maad_show_token", id=brief.record.id)
        assert "revokedAt" not in shown["record"]
        assert (await of(brief.plaintext).hello()).status_code == 401
        revoked = await client.data("maad_revoke_token", id=brief.record.id)
        assert revoked["record"]["revokedAt"]
        assert await client.code("maad_rotate_token", id=brief.record.id) == "TOKEN_REVOKED"
        assert [one["id"] for one in (await client.data("maad_list_tokens"))["tokens"]] == [
            listed["tokens"][0]["id"]
        ]


async def test_what_does_not_fit_in_ones_own_token_is_not_there(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        trapped = bench.issue("admin *,alpha:reader")
        wide, beside = bench.issue("admin *"), bench.issue("writer alpha")
        fits, also = bench.issue("reader *"), bench.issue("admin vault,alpha:reader")
        client = await admin(of(trapped.plaintext), "main", "vault")
        seen = {trapped.record.id, fits.record.id, also.record.id}
        listed = await client.data("maad_list_tokens", includeRevoked=True)
        assert {one["id"] for one in listed["tokens"]} == seen
        assert (listed["total"], listed["activeCount"]) == (3, 3)
        for tool in ("maad_show_token", "maad_revoke_token", "maad_rotate_token"):
            unknown = await client.error(tool, id="tok-000000000000")
            assert unknown["code"] == "TOKEN_NOT_FOUND"
            for hidden in (wide, beside):
                assert await client.error(tool, id=hidden.record.id) == unknown
        assert await client.data("maad_revoke_token", id=fits.record.id)
        assert await client.data("maad_rotate_token", id=also.record.id)
        assert await client.data("maad_show_token", id=trapped.record.id)
        root = await admin(of(wide.plaintext), "main", "vault")
        assert (await root.data("maad_list_tokens"))["total"] == 6
        assert await root.data("maad_revoke_token", id=trapped.record.id)
        assert await root.code("maad_revoke_token", id=wide.record.id) == "LAST_ADMIN_TOKEN"


# -- the file --------------------------------------------------------------------------------

HASH = "0a" * 32


def token(extra: str = "", **members: str) -> str:
    """One more entry of the list; an empty member is left out."""
    full = {"id": "tok-9", "hash": f"'{HASH}'", "role": "reader", "created_at": "2031-01-01"}
    shown = ", ".join(f"{name}: {text}" for name, text in (full | members).items() if text)
    return f"- {{{shown}}}\n{extra}"


FAULTS = [
    ("tokens: [", "line "),
    ("- a\n", "top level"),
    ("text\n", "top level"),
    ("name: 7\n", "name: must be a string"),
    ("tokens: 7\n", "tokens: must be a list"),
    *((token(**{name: ""}), f"[1].{name}: is missing") for name in
      ("id", "hash", "role", "created_at")),
    *((token(**{name: "7"}), f"[1].{name}: must be a string") for name in
      ("id", "hash", "role", "created_at", "name", "agent_id", "user_id", "expires_at",
       "revoked_at")),
    ("- tok-9\n", "tokens[1]: must be a mapping"),
    (token(role="owner"), "[1].role: must be one of reader, writer, admin"),
    (token(projects="all"), "[1].projects: must be a list"),
    (token(projects="[main]"), "[1].projects[0]: must be a mapping"),
    (token(projects="[{role: reader}]"), "[1].projects[0].name: must be a string"),
    (token(projects="[{name: 7}]"), "[1].projects[0].name: must be a string"),
    (token(projects="[{name: a, role: x}]"), "[1].projects[0].role: must be one of"),
    (token(hash="abc"), "[1].hash: must be 64"),
    (token(token(hash=f"'{'0b' * 32}'")), "[2].id: is that of tokens[1]"),
    (token(token(id="tok-8")), "[2].hash: is that of tokens[1]"),
    (token(created_at="yesterday"), "[1].created_at: must be an RFC 3339"),
    (token(expires_at="soon"), "[1].expires_at: must be an RFC 3339"),
    (token(revoked_at="x"), "[1].revoked_at: must be an RFC 3339"),
]  # fmt: skip
"""Texts and what is said of them. Entries follow the one of the test's own token."""


async def test_a_faulty_file_leaves_the_tokens_that_were_known(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        client = await admin(of(bench.issue("admin *").plaintext), "main", "vault")
        path = Path(bench.tokens.path)
        good = path.read_text()
        asked = {"role": "reader", "projects": [{"name": "main"}]}
        for text, place in FAULTS:
            path.write_text(good + text if text.startswith("- {") or "tok-9" in text else text)
            tokens = (await client.data("maad_instance_reload"))["tokens"]
            assert (tokens["reloaded"], tokens["total"], tokens["active"]) == (False, 1, 1), text
            assert tokens["error"]["code"] == "TOKENS_FILE_INVALID"
            assert place in tokens["error"]["message"], tokens["error"]["message"]
            assert HASH not in tokens["error"]["message"]
            assert await client.code("maad_issue_token", **asked) == "TOKENS_FILE_INVALID"
        # What this server does not know is kept for whoever does.
        fresh = token(id="tok-7", future="{a: 1}", expires_at="2099-01-01")
        path.write_text(good + fresh)
        tokens = (await client.data("maad_instance_reload"))["tokens"]
        assert (tokens["reloaded"], tokens["total"], tokens["active"]) == (True, 2, 2)
        await client.data("maad_revoke_token", id="tok-7")
        assert "future:" in path.read_text()


async def test_without_entries_nobody_gets_in(open_front: Any) -> None:
    async with open_front(OFFICE) as bench, bench.wire() as of:
        bearer = bench.issue("admin *").plaintext
        path = Path(bench.tokens.path)
        good = path.read_text()
        for text in ("", "# none yet\n", "{}", "name: x\n", "tokens: []\n", "tokens:\n", None):
            client = await admin(of(bearer), "main", "vault")
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
            # The answer to whoever asked still gets out.
            tokens = (await client.data("maad_instance_reload"))["tokens"]
            assert (tokens["reloaded"], tokens["total"]) == (True, 0), text
            assert await client.ping() == 401
            path.write_text(good)
            path.chmod(0o600)
            await bench.follower.reload()


async def test_the_bearer_is_looked_up_by_the_hash_of_its_text(open_front: Any) -> None:
    """The vector of §7.1."""
    plaintext = "maad_pat_" + "a" * 32
    digest = "07efacbce661ebdf89c27b7e730be8abc6a320bdcc2f0727e1adc18355e9169e"
    assert hashlib.sha256(plaintext.encode()).hexdigest() == digest
    async with open_front(OFFICE) as bench, bench.wire() as of:
        bench.issue("admin *")
        path = Path(bench.tokens.path)
        path.write_text(path.read_text() + token(hash=f"'{digest}'", projects="[{name: main}]"))
        await bench.follower.reload()
        client = of(plaintext)
        await client.hello()
        bound = await client.data("maad_use_project", name="main")
        assert bound["effectiveRole"] == "reader"
