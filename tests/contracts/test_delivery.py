"""Contracts and their delivery in pages (spec 05 §5, §9)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contracts_project import Host, OpenHost, snapshot

from maadd import __version__
from maadd.client import AssemblyError, assemble, canonical_json, schema_digest, sha256_hex
from maadd.protocol.messages import ResultBudget
from maadd_worker.contracts import observation
from maadd_worker.contracts.delivery import measured
from maadd_worker.contracts.snapshots import LIFETIME_MS, Snapshots

ASK = {"contract": "create-contract-v1", "docType": "memo"}
NOW = 1_900_000_000_000


@pytest.fixture
def host(open_host: OpenHost, project: Path) -> Host:
    """An engine whose contract needs several pages of 8 KiB, on a clock that the test moves."""
    fields = "".join(
        f"  f{i}: {{type: enum, values: [a{i}, b{i}, 'ä😀{i}']}}\n" for i in range(150)
    )
    schema = project / "_schema/memo.v1.yaml"
    schema.write_text(schema.read_text().replace("template:", f"{fields}template:"))
    opened = open_host("feed")
    opened.now = NOW
    around = opened.engine._contracts._around
    opened.engine._contracts._around = msgspec.structs.replace(
        around, snapshots=Snapshots(lambda: opened.now)
    )
    return opened


def page(host: Host, cursor: str | None = None, **delivery: Any) -> dict[str, Any]:
    """One page of the contract."""
    asked = {"format": "compact-json-v1", **delivery}
    if cursor is not None:
        asked["cursor"] = cursor
    return host.ok("maad_create_contract", ASK | {"delivery": asked})


def refusal(host: Host, cursor: str | None, **delivery: Any) -> str:
    """The code of a page that must not come."""
    asked = {"format": "compact-json-v1", "cursor": cursor, **delivery}
    return host.error("maad_create_contract", ASK | {"delivery": asked})["code"]


def all_pages(host: Host, **delivery: Any) -> list[dict[str, Any]]:
    """Every page of the contract."""
    pages = [page(host, **delivery)]
    while pages[-1]["nextCursor"] is not None:
        pages.append(page(host, pages[-1]["nextCursor"]))
    return pages


def test_a_contract_says_everything_and_changes_nothing(open_host: OpenHost) -> None:
    host = open_host()
    before = snapshot(host.root), host.engine._in_use.taken, host.engine.health()["lastWriteAt"]
    data = host.contract()
    assert set(data) == {
        "contract", "docType", "schemaDigest", "schemaProjection", "contentProjection",
        "schemaContract", "effectiveHistoryMode",
    }  # fmt: skip
    assert data["schemaContract"]["engineVersion"] == __version__
    assert schema_digest(data["schemaContract"]) == data["schemaDigest"]
    assert data["effectiveHistoryMode"] == "audit"
    after = snapshot(host.root), host.engine._in_use.taken, host.engine.health()["lastWriteAt"]
    assert after == before


def test_every_change_of_a_source_is_another_contract(open_host: OpenHost) -> None:
    host = open_host("feed")
    registry = host.root / "_registry/object_types.yaml"
    schema = host.root / "_schema/memo.v1.yaml"
    (host.root / "memo.md").write_text("Template\n")
    seen = {host.contract()["schemaDigest"]}
    for change in (
        lambda: schema.write_text(schema.read_text() + "# a remark\n"),
        lambda: schema.write_bytes(schema.read_bytes().replace(b"\n", b"\r\n")),
        lambda: registry.write_text(registry.read_text().replace("memo.v1}", "memo.v1, x: 1}")),
        lambda: registry.write_text(registry.read_text().replace("x: 1", "template: memo.md")),
        lambda: (host.root / "memo.md").write_text("Other\n"),
    ):
        change()
        seen.add(host.contract()["schemaDigest"])
    assert len(seen) == 6
    (host.root / "memos/me-1.md").write_text("anything")
    (host.root / "_schema/other.v1.yaml").write_text("nothing")
    assert host.contract()["schemaDigest"] in seen


def test_a_file_that_grows_while_it_is_read_is_no_observation(open_host: OpenHost) -> None:
    host = open_host("feed")
    schema = host.root / "_schema/memo.v1.yaml"
    looks: list[int] = []

    def grow(look: int) -> bool:
        looks.append(look)
        with schema.open("a") as file:
            file.write("#\n")
        return True

    host.gate.on_wanted = grow
    assert host.error("maad_create_contract", ASK)["code"] == "RECEIPT_OBSERVATION_CHANGED"


def test_an_edit_between_reading_and_comparing_is_told_with_its_file(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host("feed")
    schema = host.root / "_schema/memo.v1.yaml"
    stamp = schema.stat()
    real = observation._compare_again

    def compare(*arguments: Any) -> None:
        schema.write_text(schema.read_text().replace("200", "100"))
        os.utime(schema, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        real(*arguments)

    monkeypatch.setattr(observation, "_compare_again", compare)
    error = host.error("maad_create_contract", ASK)
    assert error["code"] == "SCHEMA_CONTRACT_CHANGED"
    assert error["details"]["dependency"] == "_schema/memo.v1.yaml"


def test_a_cancelled_contract_judges_and_reads_nothing_more(open_host: OpenHost) -> None:
    host = open_host("feed")
    preparations = host.engine._contracts._around.preparations
    host.gate.on_wanted = lambda _: preparations.compiled == 0
    assert host.error("maad_create_contract", ASK)["code"] == "REQUEST_TIMEOUT"
    looks = host.gate.looks
    assert preparations.compiled == 1
    assert looks == 10  # One before all, four for each file, one before the schema.


@pytest.mark.parametrize("cap", [8_192, 65_536, 131_072])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"emits_request_id": True, "source": "maad_create_contract"},
        {"structured": True},
    ],
)
def test_pages_fill_their_budget_and_come_together(
    host: Host, cap: int, extra: dict[str, Any]
) -> None:
    host.budget = ResultBudget(cap, **extra)
    pages = all_pages(host)
    for one in pages:
        encoded = json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()
        assert measured(encoded, host.budget, None) <= cap
        assert cap == 131_072 or one["complete"] or measured(encoded, host.budget, None) > cap - 16
    value = assemble(pages, NOW)
    host.budget = ResultBudget(1_048_576)
    assert value == host.contract()
    assert sha256_hex(canonical_json(value)) == pages[0]["digest"]


def test_no_page_splits_a_character(host: Host) -> None:
    for max_bytes in range(8_192, 8_204):
        chunk = page(host, maxBytes=max_bytes)["chunk"]
        chunk.encode()


def test_a_page_may_be_fetched_again(host: Host) -> None:
    first = page(host, maxBytes=8_192)
    again = [page(host, first["nextCursor"]) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0]["offset"] == first["endOffset"]


def test_a_page_size_is_agreed_with_the_first(host: Host) -> None:
    first = page(host, maxBytes=9_000)
    cursor = first["nextCursor"]
    assert page(host, cursor, maxBytes=9_000) == page(host, cursor)
    assert refusal(host, cursor, maxBytes=9_001) == "RECEIPT_OBSERVATION_CHANGED"
    host.budget = ResultBudget(8_500)
    shorter = page(host, cursor)
    host.budget = ResultBudget(200_000)
    assert shorter["endOffset"] < page(host, cursor)["endOffset"]
    assert page(host, cursor, maxBytes=9_000)["offset"] == first["endOffset"]


def test_cursors_that_were_not_given_lead_nowhere(host: Host) -> None:
    first = page(host, maxBytes=8_192)
    snapshot_id, _, offset = first["nextCursor"].partition(":")
    for cursor in (
        f"{snapshot_id}:{int(offset) - 1}",
        f"{snapshot_id}:0",
        f"{snapshot_id}:{first['totalCharacters']}",
        f"{snapshot_id}:9999999",
        f"00000000-0000-4000-8000-000000000000:{offset}",
        "nonsense",
    ):
        assert refusal(host, cursor) == "RECEIPT_OBSERVATION_CHANGED"
    assert page(host, first["nextCursor"])["offset"] == int(offset)


def test_a_cursor_belongs_to_one_question_of_one_session(host: Host) -> None:
    cursor = page(host, maxBytes=8_192)["nextCursor"]
    host.session = "another"
    assert refusal(host, cursor) == "RECEIPT_OBSERVATION_CHANGED"
    host.session = "s"
    other = ASK | {"project": "default", "delivery": {"format": "compact-json-v1"}}
    other["delivery"]["cursor"] = cursor
    assert host.ok("maad_create_contract", other)["offset"] > 0
    asked = host.receipt_request() | {"delivery": other["delivery"]}
    error = host.error("maad_document_receipt", asked)
    assert error["code"] == "RECEIPT_OBSERVATION_CHANGED"


def test_pages_end_with_their_time(host: Host) -> None:
    first = page(host, maxBytes=8_192)
    assert first["expiresAt"] == NOW + LIFETIME_MS
    host.now = NOW + LIFETIME_MS - 1
    assert page(host, first["nextCursor"])["expiresAt"] == first["expiresAt"]
    host.now += 1
    assert refusal(host, first["nextCursor"]) == "RECEIPT_OBSERVATION_CHANGED"


def test_pages_end_with_what_they_show(host: Host) -> None:
    cursor = page(host, maxBytes=8_192)["nextCursor"]
    schema = host.root / "_schema/memo.v1.yaml"
    text = schema.read_text()
    schema.write_text(text + "#\n")
    assert refusal(host, cursor) == "RECEIPT_OBSERVATION_CHANGED"
    schema.write_text(text)
    assert refusal(host, cursor) == "RECEIPT_OBSERVATION_CHANGED"


def test_an_error_of_the_read_is_the_answer_of_any_page(host: Host) -> None:
    cursor = page(host, maxBytes=8_192)["nextCursor"]
    (host.root / "_schema/memo.v1.yaml").unlink()
    assert refusal(host, cursor) == "SCHEMA_INVALID"


def test_a_reload_and_the_end_of_a_session_void_their_cursors(host: Host) -> None:
    cursor = page(host, maxBytes=8_192)["nextCursor"]
    host.ok("maad_reload")
    assert refusal(host, cursor) == "RECEIPT_OBSERVATION_CHANGED"
    cursor = page(host, maxBytes=8_192)["nextCursor"]
    host.engine.forget_session("other")
    page(host, cursor)
    host.engine.forget_session("s")
    assert refusal(host, cursor) == "RECEIPT_OBSERVATION_CHANGED"


def test_a_third_delivery_of_a_session_ends_its_oldest(host: Host) -> None:
    cursors = [page(host, maxBytes=8_192)["nextCursor"] for _ in range(3)]
    assert refusal(host, cursors[0]) == "RECEIPT_OBSERVATION_CHANGED"
    assert page(host, cursors[1])
    assert page(host, cursors[2])


def test_a_seventeenth_delivery_ends_the_oldest_of_all(host: Host) -> None:
    cursors = []
    for number in range(17):
        host.session = f"s{number}"
        cursors.append(page(host, maxBytes=8_192)["nextCursor"])
    host.session = "s0"
    assert refusal(host, cursors[0]) == "RECEIPT_OBSERVATION_CHANGED"
    host.session = "s1"
    assert page(host, cursors[1])


def test_one_complete_page_is_not_kept(host: Host) -> None:
    assert page(host)["complete"] is True
    assert len(host.engine._contracts._around.snapshots) == 0


def test_a_budget_that_holds_no_page_is_told(host: Host) -> None:
    host.budget = ResultBudget(400)
    error = host.error("maad_create_contract", ASK | {"delivery": {"format": "compact-json-v1"}})
    assert error["code"] == "RESPONSE_TOO_LARGE"
    assert error["details"]["capBytes"] == 400


def test_a_paged_receipt_keeps_its_first_time(open_host: OpenHost) -> None:
    host = open_host()
    host.create(host.request(body="x" * 20_000))
    asked = host.receipt_request() | {"delivery": {"format": "compact-json-v1", "maxBytes": 8_192}}
    pages = [host.ok("maad_document_receipt", asked)]
    while (cursor := pages[-1]["nextCursor"]) is not None:
        asked["delivery"] = {"format": "compact-json-v1", "cursor": cursor}
        pages.append(host.ok("maad_document_receipt", asked))
    assert len(pages) > 3
    value = assemble(pages, pages[0]["expiresAt"] - 1)
    assert value["committed"]["body"] == "x" * 20_000


@pytest.mark.parametrize(
    "delivery",
    [
        {"format": "compact-json-v2"},
        {"format": "compact-json-v1", "page": 1},
        {"format": "compact-json-v1", "maxBytes": 8_191},
        {"maxBytes": 9_000},
    ],
)
def test_the_delivery_argument_is_closed(open_host: OpenHost, delivery: Any) -> None:
    host = open_host("feed")
    error = host.error("maad_create_contract", ASK | {"delivery": delivery})
    assert error["code"] == "INVALID_FIELDS"


def test_the_form_of_the_arguments(open_host: OpenHost, vectors: Any) -> None:
    host = open_host("feed")
    values = vectors("contract-requests")
    for row in values["createContract"]:
        assert host.reply("maad_create_contract", row["json"]).ok is row["ok"], row
    for row in values["delivery"]:
        reply = host.reply("maad_create_contract", ASK | {"delivery": row["delivery"]})
        # A cursor of the right form that leads nowhere is a matter of the observation.
        sound = reply.ok or reply.error_code == "RECEIPT_OBSERVATION_CHANGED"
        assert sound is row["ok"], row


def test_pages_in_any_other_order_are_no_delivery(host: Host) -> None:
    pages = all_pages(host, maxBytes=8_192)
    for wrong in (pages[1:], pages[:-1], pages[::-1], [*pages, pages[-1]], pages[:1] + pages[2:]):
        with pytest.raises(AssemblyError):
            assemble(wrong, NOW)
