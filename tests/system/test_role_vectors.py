"""What a session may do: every vector of spec 04 §5.1, §8.2 and the limits of §4.2, as clients see
them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import Client, Daemon, Instance, eventually, make_project

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.registry import TokenRegistry
from maadd.protocol.roles import Role

CEILINGS = {"alpha": "admin", "vault": "writer", "attic": "reader"}
SOON = "2030-01-01T00:00:00.000Z"
LATER = "2031-01-01T00:00:00.000Z"


class Served:
    """A daemon with a project of every ceiling besides the admin's `main`; none is opened."""

    def __init__(self, folder: Path) -> None:
        self.instance = Instance(folder, records=0)
        with self.instance.path.open("a") as file:
            for name, role in CEILINGS.items():
                make_project(folder / name)
                file.write(f"  - name: {name}\n    path: ./{name}\n    role: {role}\n")
        self.stored = folder / "_auth/tokens.yaml"
        self.daemon = Daemon(self.instance.path, MAAD_WATCH="off", MAAD_TOKENS_POLL_MS="0")
        self.daemon.wait_until_listening()

    def token(self, role: str, grants: str, expires: str | None = None) -> str:
        registry = TokenRegistry.load(str(self.stored))
        spec = TokenSpec(Role[role.upper()], parse_grants(grants), expires_at=expires)
        return registry.issue(spec).plaintext

    def edit_last_grant(self, old: str, new: str) -> None:
        """Edit the file by hand: the role of the last grant in it."""
        before, role, after = self.stored.read_text().rpartition(f'role: "{old}"')
        assert role
        self.stored.write_text(f'{before}role: "{new}"{after}')

    def client(self, token: str) -> Client:
        """A session of a token that may be younger than what the server has read."""
        self.reload()
        return self.daemon.client(token)

    def reload(self) -> None:
        done = self.daemon.log.count('"msg":"instance_reload_complete"')
        self.daemon.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: self.daemon.log.count('"msg":"instance_reload_complete"') > done)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("roles"))
    yield made
    made.daemon.stop(signal.SIGKILL)


def outcome(envelope: dict[str, Any]) -> str:
    """The effective role, or the code of the refusal."""
    if envelope["ok"]:
        return str(envelope["data"]["effectiveRole"])
    return str(envelope["errors"][0]["code"])


@pytest.mark.parametrize(
    ("project", "grants", "wanted", "result"),
    [
        ("vault", "*:reader", None, "reader"),
        ("vault", "*:reader", "writer", "ROLE_UPGRADE_DENIED"),
        ("alpha", "*:writer", "reader", "reader"),
        ("alpha", "vault", None, "TOKEN_PROJECT_FORBIDDEN"),
        ("alpha", "vault", "reader", "TOKEN_PROJECT_FORBIDDEN"),
        ("attic", "*", "admin", "ROLE_UPGRADE_DENIED"),
        ("attic", "*", None, "reader"),
        # The entry of a project wins over the wildcard, wherever it stands.
        ("alpha", "*:reader,alpha:admin", None, "admin"),
        ("vault", "*:reader,alpha:admin", None, "reader"),
        ("vault", "*,vault:reader", None, "reader"),
        ("alpha", "vault:reader,*", None, "admin"),
        ("vault", "alpha", None, "TOKEN_PROJECT_FORBIDDEN"),
        ("alpha", "alpha", None, "admin"),
    ],
)
def test_a_role_is_the_least_of_ceiling_token_and_wish(
    served: Served, project: str, grants: str, wanted: str | None, result: str
) -> None:
    client = served.client(served.token("admin", grants))
    asked = {} if wanted is None else {"as": wanted}
    assert outcome(client.call("maad_use_project", name=project, **asked)) == result
    state = client.ok("maad_current_session")
    assert state["effectiveRoles"] == ({} if result.isupper() else {project: result})
    client.close()


def test_a_grant_above_the_role_of_its_token_is_cut_to_it(served: Served) -> None:
    token = served.token("writer", "alpha:writer")
    served.edit_last_grant("writer", "admin")
    client = served.client(token)
    assert outcome(client.call("maad_use_project", name="alpha")) == "writer"
    client.close()


def test_a_changed_token_changes_the_role_of_the_next_call(served: Served) -> None:
    token = served.token("admin", "alpha:writer")
    client = served.client(token)
    assert outcome(client.call("maad_use_project", name="alpha")) == "writer"
    served.edit_last_grant("writer", "reader")
    served.reload()
    assert client.ok("maad_current_session")["effectiveRoles"] == {"alpha": "reader"}
    refused = client.call("maad_create", docType="note", fields={"title": "x"})
    assert refused["errors"][0]["code"] == "INSUFFICIENT_ROLE"
    client.close()


def test_names_count_once_and_at_most_sixty_four(served: Served) -> None:
    client = served.client(served.token("reader", "*"))
    refused = client.call("maad_use_projects", names=[f"p{number}" for number in range(65)])
    assert refused["errors"][0]["code"] == "INVALID_ARGS"
    assert "names" in refused["errors"][0]["message"]
    assert client.call("maad_use_projects", names=[])["errors"][0]["code"] == "INVALID_ARGS"
    bound = client.ok("maad_use_projects", names=["vault", "attic"] * 32)
    assert bound["whitelist"] == ["vault", "attic"]
    assert bound["effectiveRoles"] == {"vault": "reader", "attic": "reader"}
    client.close()


@pytest.mark.parametrize(
    ("caller", "wanted", "expires", "refused", "detail"),
    [
        ("*", "*", SOON, None, None),
        # The exception of the caller is one of what it hands out.
        ("*,vault:reader", "*", SOON, "ROLE_UPGRADE_DENIED", ("project", "vault")),
        ("*,vault:reader", "*,vault:reader", SOON, None, None),
        ("*,vault:reader", "alpha", SOON, None, None),
        ("alpha,vault", "alpha:reader", SOON, None, None),
        ("alpha,vault", "attic", SOON, "TOKEN_PROJECT_FORBIDDEN", ("project", "attic")),
        ("alpha,vault", "*", SOON, "TOKEN_PROJECT_FORBIDDEN", None),
        ("*", "*", LATER, "ROLE_UPGRADE_DENIED", ("field", "expiresAt")),
        ("*", "*", None, "ROLE_UPGRADE_DENIED", ("field", "expiresAt")),
    ],
)
def test_a_caller_hands_out_no_more_than_it_has(
    served: Served,
    caller: str,
    wanted: str,
    expires: str | None,
    refused: str | None,
    detail: tuple[str, str] | None,
) -> None:
    client = served.client(served.token("admin", caller, SOON))
    client.ok("maad_use_project", name="alpha")
    grants = [
        {"name": name, **({"role": role} if role else {})}
        for name, _, role in (one.partition(":") for one in wanted.split(","))
    ]
    given = {"role": "admin", "projects": grants, "agentId": "agt-x"}
    if expires is not None:
        given["expiresAt"] = expires
    answer = client.call("maad_issue_token", **given)
    if refused is None:
        assert answer["ok"], answer
        reached = answer["data"]["record"]["id"]
        assert client.ok("maad_show_token", id=reached)["record"]["id"] == reached
    else:
        (error,) = answer["errors"]
        assert error["code"] == refused
        if detail is not None:
            assert error["details"][detail[0]] == detail[1]
    client.close()


def test_refusals_name_no_project_of_others(served: Served) -> None:
    client = served.client(served.token("admin", "alpha"))
    client.ok("maad_use_project", name="alpha")
    given = {"role": "admin", "agentId": "agt-x"}
    for name, code in (("zz", "TOKEN_PROJECT_UNKNOWN"), ("*", "TOKEN_PROJECT_FORBIDDEN")):
        refused = client.call("maad_issue_token", projects=[{"name": name}], **given)
        assert refused["errors"][0]["code"] == code
        assert not any(other in str(refused) for other in ("main", "vault", "attic"))
    stays = served.instance.path.read_text()
    make_project(served.stored.parents[1] / "added")
    served.instance.path.write_text(stays + "  - name: added\n    path: ./added\n")
    done = client.ok("maad_instance_reload")
    assert done["projectsAdded"] == []
    assert done["tokens"]["total"] == client.ok("maad_list_tokens")["total"]
    served.instance.path.write_text(stays + "  - name: hidden\n    path: ./vault\n")
    refused = client.call("maad_instance_reload")
    assert refused["errors"][0]["code"] == "INSTANCE_RELOAD_FAILED"
    assert "hidden" not in str(refused)
    root = served.daemon.client(served.instance.token)
    root.ok("maad_use_project", name="alpha")
    assert "hidden" in str(root.call("maad_instance_reload"))
    served.instance.path.write_text(stays)
    assert root.ok("maad_instance_reload")["projectsRemoved"] == ["added"]
    for one in (client, root):
        one.close()


@pytest.mark.parametrize("member", ["name", "agentId", "userId"])
def test_who_a_token_names_is_bounded(served: Served, member: str) -> None:
    client = served.client(served.token("admin", "alpha"))
    client.ok("maad_use_project", name="alpha")
    given = {"role": "reader", "projects": [{"name": "alpha"}], "agentId": "agt-x"}
    refused = client.call("maad_issue_token", **given | {member: "a" * 201})
    assert refused["errors"][0]["code"] == "INVALID_ARGS"
    assert member in refused["errors"][0]["message"]
    assert client.ok("maad_issue_token", **given | {member: "a" * 200})["plaintext"]
    client.close()


def test_a_caller_sees_what_it_reaches_and_itself(served: Served) -> None:
    inside, outside = served.token("reader", "attic"), served.token("reader", "vault")
    client = served.client(served.token("admin", "alpha,attic", SOON))
    client.ok("maad_use_project", name="alpha")

    def own_id(token: str) -> str:
        other = served.daemon.client(token)
        found: str = other.ok("maad_current_session")["token"]["tokenId"]
        other.close()
        return found

    listed = client.ok("maad_list_tokens")
    ids = {one["id"] for one in listed["tokens"]}
    assert own_id(inside) in ids
    assert own_id(outside) not in ids
    assert client.ok("maad_current_session")["token"]["tokenId"] in ids
    assert listed["total"] == listed["activeCount"] == len(ids)
    for tool in ("maad_show_token", "maad_rotate_token", "maad_revoke_token"):
        unknown = client.call(tool, id="tok-000000000000")
        assert client.call(tool, id=own_id(outside)) == unknown
        assert unknown["errors"][0]["code"] == "TOKEN_NOT_FOUND"
    assert client.ok("maad_revoke_token", id=own_id(inside))["record"]["revokedAt"]
    client.close()
