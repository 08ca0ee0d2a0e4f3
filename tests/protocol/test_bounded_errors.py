"""Errors stay short, whatever they repeat of a call."""

from __future__ import annotations

from maadd.protocol.bounded_errors import bounded
from maadd.protocol.errors import WireError


def test_an_error_of_ordinary_length_stays_as_it_is() -> None:
    error = WireError("INVALID_ARGS", "m" * 2_000, {"names": ["n" * 500] * 100, "limit": 3})
    assert bounded(error) == error
    assert bounded(WireError("INTERNAL", "short")) == WireError("INTERNAL", "short")


def test_a_long_message_keeps_what_it_is_about_and_what_to_do() -> None:
    message = f"unknown project '{'x' * 900_000}'; maad_projects lists them"
    short = bounded(WireError("PROJECT_UNKNOWN", message)).message
    assert len(short) == 2_000
    assert short.startswith("unknown project 'xxx")
    assert " … " in short
    assert short.endswith("xxx'; maad_projects lists them")


def test_details_are_cut_and_tell_how_long_they_were() -> None:
    details = {
        "project": "p" * 70_000,
        "issues": [{"path": "q" * 501, "message": "m"}] * 5_000,
        "counts": {f"f{number}": [1] * (100 + number) for number in range(101)},
    }
    short = bounded(WireError("INVALID_ARGS", "m", details)).details
    assert short is not None
    assert short["project"] == "p" * 499 + "…"
    assert short["issues"] == [{"path": "q" * 499 + "…", "message": "m"}] * 100
    assert len(short["counts"]) == 100
    assert short["truncated"]["issues"] == 5_000
    assert short["truncated"]["counts"] == 101
    assert short["truncated"]["counts.f7"] == 107
    assert "counts.f0" not in short["truncated"]
