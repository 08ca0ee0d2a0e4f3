"""A receipt in the midst of what people do is exact, or a typed error (spec 05 §7)."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from contracts_project import Host, OpenHost, git

from maadd.client import Fate, reconcile
from maadd_worker.schema.model import ModelRefresh, load_model

TYPED = {
    "REQUEST_TIMEOUT",
    "RECEIPT_OBSERVATION_CHANGED",
    "RECEIPT_CONTENT_INVALID",
    "RECEIPT_STORAGE_ERROR",
    "PATH_OUTSIDE_PROJECT",
    "RESPONSE_TOO_LARGE",
}
RECORD = "memos/me-1.md"


class People:
    """What people do to one record while a receipt of it is taken."""

    def __init__(self, host: Host, rng: random.Random) -> None:
        self.host = host
        self.rng = rng
        self.file = host.root / RECORD
        self.good = self.file.read_bytes()
        self.withdrawn = False
        self.heads: list[str] = []
        self.actions: list[Callable[[], object]] = [
            self.edit,
            self.edit_and_commit,
            self.format,
            self.replace,
            self.break_it,
            self.remove,
            self.link,
            self.withdraw,
            self.edit_the_schema,
            self.reload,
        ]

    def act(self) -> None:
        self.rng.choice(self.actions)()
        self.note_head()

    def note_head(self) -> None:
        self.heads.append(git(self.host.root, "rev-parse", "HEAD").strip())

    def edit(self) -> None:
        self._write(self.good.replace(b"Harbour", b"Market %d" % self.rng.randint(0, 9)))

    def edit_and_commit(self) -> None:
        self.edit()
        git(self.host.root, "commit", "-q", "--allow-empty", "-m", "edit", "--", RECORD)

    def format(self) -> None:
        self._write(self.good.replace(b"\n", b"\r\n"))

    def replace(self) -> None:
        other = self.file.with_name("other.tmp")
        other.write_bytes(self.good)
        other.replace(self.file)

    def break_it(self) -> None:
        self._write(b"---\nnothing\n")

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)

    def link(self) -> None:
        self.remove()
        self.file.symlink_to("../_schema/memo.v1.yaml")

    def withdraw(self) -> None:
        self.withdrawn = True

    def edit_the_schema(self) -> None:
        with (self.host.root / "_schema/memo.v1.yaml").open("a") as file:
            file.write("#\n")

    def reload(self) -> None:
        self.host.engine._in_use.adopt(ModelRefresh(load_model(self.host.engine._root), {}))

    def restore(self) -> None:
        """The record as it was, committed."""
        self.remove()
        self._write(self.good)
        git(self.host.root, "add", RECORD)
        git(self.host.root, "commit", "-q", "--allow-empty", "-m", "restore", "--", RECORD)
        self.reload()
        self.withdrawn = False

    def _write(self, data: bytes) -> None:
        if self.file.is_symlink():
            self.file.unlink()
        self.file.write_bytes(data)


def interleave(host: Host, rounds: int) -> dict[str, int]:
    """Take receipts with people at work; how each ended."""
    rng = random.Random(11)
    host.create(host.request())
    host.catch_up()
    people = People(host, rng)
    endings: dict[str, int] = {}
    for _ in range(rounds):
        moments = {rng.randint(1, 18) for _ in range(rng.randint(1, 2))}
        people.heads = []
        people.note_head()
        host.gate.looks = 0

        def look(number: int, moments: set[int] = moments) -> bool:
            if number in moments:
                moments.discard(number)
                people.act()
            return not people.withdrawn

        host.gate.on_wanted = look
        reply = host.reply("maad_document_receipt", host.receipt_request())
        host.gate.on_wanted = lambda _: True
        ending = _judge(host, people, reply.ok, reply.body, reply.error_code)
        endings[ending] = endings.get(ending, 0) + 1
        people.restore()
    return endings


def _judge(host: Host, people: People, ok: bool, body: bytes, code: str | None) -> str:
    if not ok:
        assert code in TYPED
        return str(code)
    data = msgspec.json.decode(body)
    if data["status"] == "unverified":
        assert data["committed"] is None
        return str(data["reason"])
    committed = data["committed"]
    assert committed["commitOid"] in people.heads
    blob = git(host.root, "rev-parse", f"{committed['commitOid']}:{RECORD}").strip()
    assert committed["blobOid"] == blob
    assert git(host.root, "cat-file", "blob", blob) == committed["rawMarkdown"].replace(
        "\r\n", "\n"
    )
    found = reconcile(
        data, doc_type="memo", doc_id="me-1", content_digest=committed["contentDigest"]
    )
    assert found.fate is Fate.COMMITTED
    assert data["workingTree"]["contentDigest"] == committed["contentDigest"]
    return "committed"


def test_a_receipt_among_people_is_exact_or_a_typed_error(open_host: OpenHost) -> None:
    assert len(interleave(open_host(), 20)) > 2


@pytest.mark.soak
def test_ten_thousand_receipts_among_people(open_host: OpenHost) -> None:
    endings = interleave(open_host(), 10_000)
    assert endings["committed"] > 100
    assert len(endings) > 6
