"""A command's call whose server goes away under it (spec 04 §19)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maadd.cli.control_client import OwnerGone
from maadd.cli.oneshot import OneShot
from maadd.protocol.errors import MaadErrors
from maadd.protocol.messages import Call, Reply


class Leaving:
    """A server that is gone with the first call in hand; the next one answers."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def answer(self, call: Call, on_progress: Callable[..., None] | None) -> Reply:
        self.calls.append(call.tool)
        if len(self.calls) == 1:
            raise OwnerGone(maybe_done=True)
        return Reply(call.request_id, ok=True, body=b"{}")

    def close(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("tool", "arguments"), [("maad_get", {"docId": "nt-a"}), ("maad_reindex", {})]
)
def test_what_can_be_repeated_is_asked_of_the_next_one(
    tool: str, arguments: dict[str, str]
) -> None:
    server = Leaving()
    assert OneShot(lambda: server, lambda _: None).call(tool, arguments) == {}
    assert server.calls == [tool, tool]


def test_what_may_have_been_done_is_told() -> None:
    server = Leaving()
    with pytest.raises(MaadErrors) as lost:
        OneShot(lambda: server, lambda _: None).call(
            "maad_create", {"docType": "note", "fields": {}}
        )
    (error,) = lost.value.errors
    assert (error.code, error.details) == (
        "WORKER_LOST", {"tool": "maad_create", "writeOutcome": "unknown_reconcile"},
    )  # fmt: skip
    assert server.calls == ["maad_create"]
