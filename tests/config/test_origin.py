"""Web origins (spec 04 §9.5)."""

from __future__ import annotations

import pytest

from maadd.config.origin import canonical_origin


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://app.example.com", "https://app.example.com"),
        ("HTTPS://App.Example.com:443", "https://app.example.com"),
        ("http://a:80", "http://a"),
        ("http://a:443", "http://a:443"),
        ("https://a:8443/", "https://a:8443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
    ],
)
def test_an_origin_has_one_text(text: str, origin: str) -> None:
    assert canonical_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "*",
        "https://*.example.com",
        "example.com",
        "//a",
        "ftp://a",
        "https://",
        "https://a:",
        "https://a:99999",
        "https://a:b",
        "https://a:1:2",
        "https://user@a",
        "https://user:pw@a",
        "https://a/path",
        "https://a?",
        "https://a#",
        "https://a b",
        "https://a\n",
        "https://ä",
        "http://[::1",
        "http://[x]",
        "https://a,https://b",
    ],
)
def test_what_is_no_origin(text: str) -> None:
    assert canonical_origin(text) is None
