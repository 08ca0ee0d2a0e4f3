"""Calls that take too long, fail or find no worker, as clients meet them: through a listening
socket, the whole pipeline and real worker processes (spec 04 §1, §6, §13)."""

from __future__ import annotations

from typing import Any

import pytest
from daemon_bench import Client, eventually
from threaded_front import ServedRooms, ThreadedFront
from tool_arguments import ARGUMENTS

pytestmark = pytest.mark.xdist_group("fronts")

LIMIT_MS = 500


def write(client: Client, doc_id: str) -> dict[str, Any]:
    return client.call("maad_create", docType="note", docId=doc_id, fields={"title": "x"})


def error_of(envelope: dict[str, Any]) -> tuple[str, Any]:
    """Code and details."""
    error = envelope["errors"][0]
    return error["code"], error.get("details")


def ended(served: ServedRooms, code: str) -> dict[str, Any]:
    """The line of the call that ended with this code."""
    (line,) = [one for one in served.logged("tool_call") if one.get("error_code") == code]
    return line


# -- failures that should not happen -----------------------------------------------------


def test_an_exception_in_a_tool_is_told_by_its_request_id_alone(fronts: ThreadedFront) -> None:
    async def broken(*_: object) -> Any:
        raise RuntimeError("a secret text")

    served = fronts.serve(("maad_current_session", broken), emit_request_id=True)
    client = served.client()
    asked = (
        ("maad_get", {"docId": "raise"}, None),
        ("maad_create", {"docType": "note", "docId": "raise", "fields": {}}, "unknown_reconcile"),
        ("maad_current_session", {}, None),
    )
    for tool, arguments, outcome in asked:
        answer = client.call(tool, **arguments)
        code, details = error_of(answer)
        assert code == "INTERNAL"
        assert details == (None if outcome is None else {"writeOutcome": outcome})
        request_id = answer["_meta"]["request_id"]
        assert request_id in answer["errors"][0]["message"]
        for hidden in ("secret", "Traceback", "RuntimeError", ".py", str(fronts.main.path)):
            assert hidden not in str(answer)
        (line,) = [one for one in served.logged("tool_call") if one["request_id"] == request_id]
        assert (line["result"], line["error_code"]) == ("error", "INTERNAL")
        # What failed stands in the log of the process where it did.
        lines = [*served.events, *fronts.main.logged()]
        told = [one["level"] for one in lines if one.get("request_id") == request_id]
        assert {"error", 50} & set(told)
    assert "a secret text" not in (fronts.main.path / "log").read_text()
    # The worker and its session go on.
    assert client.ok("maad_get", docId="nte-1") == {}


# -- the time of a call ------------------------------------------------------------------


def test_a_read_past_its_time_is_interrupted(fronts: ThreadedFront) -> None:
    served = fronts.serve(request_timeout_ms=LIMIT_MS)
    client = served.client()
    assert error_of(client.call("maad_query", docType="held")) == (
        "REQUEST_TIMEOUT", {"tool": "maad_query", "limitMs": LIMIT_MS},
    )  # fmt: skip
    assert eventually(lambda: "maad_query interrupted" in fronts.main.calls())
    request_id = ended(served, "REQUEST_TIMEOUT")["request_id"]

    def overruns() -> list[dict[str, Any]]:
        lines = fronts.logged("tool_call_overrun")
        return [line for line in lines if line["request_id"] == request_id]

    assert eventually(lambda: overruns() != [])
    (overrun,) = overruns()
    assert (overrun["tool"], overrun["limit_ms"]) == ("maad_query", LIMIT_MS)
    assert overrun["level"] == "warning"


def test_a_call_past_its_time_keeps_its_place_until_it_has_ended(fronts: ThreadedFront) -> None:
    served = fronts.serve(request_timeout_ms=LIMIT_MS, rl_concurrent=1)
    client = served.client()
    fronts.main.hold()
    assert error_of(client.call("maad_get", docId="nte-1"))[0] == "REQUEST_TIMEOUT"
    code, details = error_of(client.call("maad_get", docId="nte-1"))
    assert (code, details["reason"]) == ("RATE_LIMITED", "concurrent")
    fronts.main.let_go()
    assert eventually(lambda: client.call("maad_get", docId="nte-1")["ok"])


def test_a_write_past_its_time_says_whether_it_may_have_been_published(
    fronts: ThreadedFront,
) -> None:
    served = fronts.serve(request_timeout_ms=LIMIT_MS)
    client, other = served.client(), served.client()
    fronts.main.hold()
    published = fronts.held(client, "maad_create", docType="note", docId="late", fields={})
    assert eventually(lambda: "late begun" in fronts.main.calls())
    assert error_of(write(other, "waiting")) == (
        "REQUEST_TIMEOUT",
        {"tool": "maad_create", "limitMs": LIMIT_MS, "writeOutcome": "not_published"},
    )
    assert error_of(published.result(20)) == (
        "REQUEST_TIMEOUT",
        {"tool": "maad_create", "limitMs": LIMIT_MS, "writeOutcome": "unknown_reconcile"},
    )
    fronts.main.let_go()
    assert eventually(lambda: "late written" in fronts.main.calls())
    assert write(fronts.serve().client(), "next")["ok"]
    assert "waiting begun" not in fronts.main.calls()


# -- the worker --------------------------------------------------------------------------


def test_more_calls_than_a_worker_may_hold_are_refused(fronts: ThreadedFront) -> None:
    served = fronts.serve(rl_disable=True)
    client = served.client()
    client.ok("maad_get", docId="nte-1")
    fronts.main.hold()
    held = [fronts.held(client, "maad_get", docId="nte-1") for _ in range(7)]
    held.append(fronts.held(client, "maad_create", docType="note", fields={}))
    full = {"reason": "worker_queue", "limit": 8, "retryAfterMs": 500}
    assert error_of(client.call("maad_get", docId="nte-1")) == ("OVERLOADED", full)
    assert error_of(write(client, "one-more")) == ("OVERLOADED", full)
    # Another project has a worker, and a queue, of its own.
    assert served.client(project="other").ok("maad_get", docId="nte-1") == {}
    fronts.main.let_go()
    assert all(future.result(20)["ok"] for future in held)
    assert write(client, "one-more")["ok"]


def test_calls_wait_for_a_start_as_long_as_for_an_answer(fronts: ThreadedFront) -> None:
    slow = fronts.projects["slow"]
    slow.behave("slow")
    slow.hold()
    served = fronts.serve(request_timeout_ms=LIMIT_MS)
    client, patient = served.client(project="slow"), fronts.serve().client(project="slow")
    # A strict call has nothing started and waits for nothing.
    receipt = client.call("maad_document_receipt", **ARGUMENTS["maad_document_receipt"])
    assert error_of(receipt)[0] == "RECEIPT_ENGINE_NOT_READY"
    assert slow.calls() == []
    waiting = fronts.later(patient, "maad_get", docId="nte-1")
    # The start is slow, not dead: it gives signs of life for longer than it may be silent.
    for _ in range(5):
        assert error_of(client.call("maad_get", docId="nte-1")) == (
            "PROJECT_UNAVAILABLE", {"state": "starting", "retryAfterMs": 1000},
        )  # fmt: skip
    shown = client.ok("maad_health")["worker"]
    assert (shown["state"], shown["restarts"], shown["lastExit"]) == ("starting", 0, None)
    slow.let_go()
    assert waiting.result(20)["ok"]
    # All of them shared one start.
    assert slow.calls().count("start") == 1


def test_a_start_that_failed_answers_for_a_while_without_another(fronts: ThreadedFront) -> None:
    broken = fronts.projects["broken"]
    broken.behave("refuse")
    client, other = fronts.serve().client(project="broken"), fronts.serve().client(project="broken")
    for one in (client, other, client):
        assert error_of(one.call("maad_get", docId="nte-1")) == (
            "REGISTRY_INVALID", {"why": "test"},
        )  # fmt: skip
    assert broken.calls() == ["start"]
    (broken.path / "behaviour").unlink()
    assert eventually(lambda: client.call("maad_get", docId="nte-1")["ok"])


def test_a_start_without_a_sign_of_life_is_ended_and_repeated(fronts: ThreadedFront) -> None:
    fronts.projects["mute"].behave("mute")
    client = fronts.serve().client(project="mute")
    assert client.ok("maad_get", docId="nte-1") == {}
    shown = client.ok("maad_health")["worker"]
    assert shown["state"] == "ready"
    assert shown["restarts"] >= 1
    assert shown["lastExit"] is not None


def test_after_five_deaths_a_project_is_unavailable_until_a_probe_lives(
    fronts: ThreadedFront,
) -> None:
    served = fronts.serve()
    client, bystander = served.client(project="dying"), served.client()
    dying = fronts.projects["dying"]
    assert write(client, "alive")["ok"]
    dying.behave("die")
    # The read is repeated on the next worker, of which there is none.
    lost = client.call("maad_get", docId="die")
    for answer in (lost, client.call("maad_get", docId="nte-1"), write(client, "after")):
        code, details = error_of(answer)
        assert (code, details["state"]) == ("PROJECT_UNAVAILABLE", "failed")
        assert details["retryAfterMs"] > 0
    assert dying.calls().count("start") >= 5
    assert client.ok("maad_health")["worker"]["state"] in ("failed", "starting")
    assert client.ok("maad_health")["worker"]["lastExit"] is not None
    assert bystander.ok("maad_get", docId="nte-1") == {}
    (dying.path / "behaviour").unlink()
    assert eventually(lambda: write(client, "after")["ok"])


def test_a_write_is_lost_with_its_worker_and_a_read_is_not(fronts: ThreadedFront) -> None:
    client = fronts.serve().client(project="other")
    assert client.ok("maad_get", docId="nte-1") == {}
    assert error_of(write(client, "die")) == (
        "WORKER_LOST", {"tool": "maad_create", "writeOutcome": "unknown_reconcile"},
    )  # fmt: skip
    assert client.ok("maad_get", docId="nte-1") == {}
