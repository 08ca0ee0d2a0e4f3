"""What a daemon tells a caller of tokens and projects that are not its own (spec 04 §8, §17)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_bench import Client, Daemon, Instance, eventually, make_project

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.registry import TokenRegistry
from maadd.protocol.roles import Role

pytestmark = pytest.mark.xdist_group("token_reach")

CEILINGS = {"alpha": "admin", "vault": "writer", "attic": "reader"}


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

    def token(self, role: str, grants: str) -> str:
        registry = TokenRegistry.load(str(self.stored))
        spec = TokenSpec(Role[role.upper()], parse_grants(grants))
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
        # The tokens are the last part of a reload.
        done = self.daemon.log.count('"msg":"tokens_reload"')
        self.daemon.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: self.daemon.log.count('"msg":"tokens_reload"') > done)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("roles"))
    yield made
    made.daemon.stop(signal.SIGKILL)


def test_a_changed_token_changes_the_role_of_the_next_call(served: Served) -> None:
    token = served.token("admin", "alpha:writer")
    client = served.client(token)
    assert client.ok("maad_use_project", name="alpha")["effectiveRole"] == "writer"
    served.edit_last_grant("writer", "reader")
    served.reload()
    assert client.ok("maad_current_session")["effectiveRoles"] == {"alpha": "reader"}
    refused = client.call("maad_create", docType="note", fields={"title": "x"})
    assert refused["errors"][0]["code"] == "INSUFFICIENT_ROLE"
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
