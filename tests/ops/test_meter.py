"""What the front counts, and that its labels stay few (spec 04 §9.9)."""

from __future__ import annotations

from maadd.ops.meter import BUCKETS_S, UNKNOWN_TOOL, Meter


def test_each_call_is_counted_by_project_and_by_tool() -> None:
    meter = Meter()
    meter.succeeded("roads", "maad_get", 0.0004)
    meter.succeeded("roads", "maad_get", 0.3)
    meter.succeeded(None, "maad_projects", 0.002)
    meter.failed("roads", "maad_get", 99.0, "FILE_NOT_FOUND", None)
    assert meter.successes() == {("roads", "maad_get"): 2, ("", "maad_projects"): 1}
    assert meter.errors == {("roads", "maad_get", "FILE_NOT_FOUND", ""): 1}
    latency = meter.of_project["roads"]
    assert sum(latency.buckets) == 3
    assert latency.buckets[0] == 1
    assert latency.buckets[BUCKETS_S.index(0.5)] == 1
    assert latency.buckets[-1] == 1
    assert latency.total_s == 99.3004
    assert sum(meter.of_tool["maad_projects"].buckets) == 1


def test_names_that_clients_make_up_share_one_label() -> None:
    meter = Meter()
    for number in range(1000):
        meter.failed(None, f"tool-{number}", 0.001, "INVALID_ARGS", f"reason {number}")
    assert meter.errors == {("", UNKNOWN_TOOL, "INVALID_ARGS", ""): 1000}
    assert list(meter.of_tool) == [UNKNOWN_TOOL]


def test_a_known_reason_is_a_label() -> None:
    meter = Meter()
    meter.failed("roads", "maad_create", 0.001, "RATE_LIMITED", "writes_per_sec")
    meter.failed("roads", "maad_create", 0.001, "RATE_LIMITED", {"no": "text"})
    assert set(meter.errors) == {
        ("roads", "maad_create", "RATE_LIMITED", "writes_per_sec"),
        ("roads", "maad_create", "RATE_LIMITED", ""),
    }


def test_a_project_that_is_no_longer_served_is_forgotten() -> None:
    meter = Meter()
    for project in ("old", "new", None):
        meter.succeeded(project, "maad_get", 0.001)
        meter.failed(project, "maad_get", 0.001, "INTERNAL", None)
    meter.keep({"new"})
    assert set(meter.of_project) == {"new", ""}
    assert {key[0] for key in meter.successes()} == {"new", ""}
    assert {key[0] for key in meter.errors} == {"new", ""}
