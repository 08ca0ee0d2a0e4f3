"""Fetching pages with any client: bounded, verified, begun again when it must (spec 05 §9.8)."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from maadd.client import AssemblyError, MaadError, read_complete
from maadd.protocol.arguments import Delivery
from maadd.protocol.messages import ResultBudget
from maadd_worker.contracts.delivery import Observed, deliver
from maadd_worker.contracts.snapshots import Snapshots

VALUE = {"texts": [f"text {n} ä😀" for n in range(200)]}
MOVED = {"code": "RECEIPT_OBSERVATION_CHANGED", "message": "begin again"}


class Server:
    """Answers a strict read in pages; fails or lies at the calls it is told to."""

    def __init__(self, **faults: Any) -> None:
        self.snapshots = Snapshots(lambda: time.time_ns() // 1_000_000)
        self.faults = {int(number.lstrip("c")): fault for number, fault in faults.items()}
        self.asked: list[dict[str, Any]] = []

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        self.asked.append(arguments)
        fault = self.faults.get(len(self.asked), {})
        if "code" in fault:
            return {"ok": False, "errors": [fault]}
        asked = arguments["delivery"]
        delivery = Delivery(asked["format"], asked.get("maxBytes"), asked.get("cursor"))
        observed = Observed(tool, "s", 1, "{}", VALUE)
        page = json.loads(deliver(self.snapshots, observed, delivery, ResultBudget(2_000)))
        return {"ok": True, "data": page | fault}

    def read(self, **more: Any) -> Any:
        asked = {"contract": "create-contract-v1", "docType": "memo"}
        return asyncio.run(read_complete(self.call, "maad_create_contract", asked, **more))


def test_pages_are_fetched_one_by_one_and_put_together() -> None:
    server = Server()
    assert server.read(max_bytes=9_000) == VALUE
    assert len(server.asked) > 2
    assert all(asked["delivery"]["maxBytes"] == 9_000 for asked in server.asked)


@pytest.mark.parametrize("fault", [MOVED, {"digest": "0" * 64}, {"chunk": "x"}])
def test_what_moved_or_does_not_add_up_is_read_again(fault: dict[str, Any]) -> None:
    server = Server(c2=fault)
    assert server.read() == VALUE
    assert [("cursor" in asked["delivery"]) for asked in server.asked].count(False) == 2


def test_attempts_are_bounded() -> None:
    always = {f"c{number}": MOVED for number in range(1, 9)}
    server = Server(**always)
    with pytest.raises(MaadError) as refused:
        server.read(attempts=3)
    assert refused.value.code == "RECEIPT_OBSERVATION_CHANGED"
    assert len(server.asked) == 3
    with pytest.raises(AssemblyError):
        Server(c1={"chunk": "x"}).read(attempts=1)


def test_any_other_error_ends_the_reading() -> None:
    server = Server(c1={"code": "SCHEMA_INVALID", "message": "no", "details": {"cause": "bom"}})
    with pytest.raises(MaadError) as refused:
        server.read()
    assert refused.value.details == {"cause": "bom"}
    assert len(server.asked) == 1
