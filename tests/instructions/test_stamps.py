"""The stamp line: format, hash, round trip (spec 03 §11.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maadd_worker.instructions.stamp import body_hash, split_stamp, stamped

SAMPLE = b"# Sample guide\n\nSecond line.\n"
SAMPLE_HASH = "b9ceb089fa2160b716e1b0b29aeadce518e583eefb2e5ae3a8420d621bfd3b3e"
LINE = f"<!-- maadb:managed name=a-guide engine=0.18.5 hash=sha256:{SAMPLE_HASH} -->"


def test_the_hash_of_the_published_sample() -> None:
    assert body_hash(SAMPLE) == SAMPLE_HASH


def test_line_endings_do_not_change_the_hash() -> None:
    assert body_hash(SAMPLE.replace(b"\n", b"\r\n")) == SAMPLE_HASH


def test_the_stamp_is_one_line_above_the_untouched_body() -> None:
    assert stamped("a-guide", "0.18.5", SAMPLE) == f"{LINE}\n".encode() + SAMPLE


@given(
    name=st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True),
    engine=st.from_regex(r"[!-~]+", fullmatch=True),
    body=st.text().map(str.encode),
)
def test_what_is_stamped_is_read_back(name: str, engine: str, body: bytes) -> None:
    found = split_stamp(stamped(name, engine, body))
    assert found is not None
    stamp, below = found
    assert (stamp.name, stamp.engine, stamp.body_hash, below) == (
        name,
        engine,
        body_hash(body),
        body,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + LINE.encode() + b"\n" + SAMPLE,
        LINE.encode() + b"\r\n" + SAMPLE.replace(b"\n", b"\r\n"),
    ],
    ids=["BOM", "CRLF"],
)
def test_what_editors_and_checkouts_add_is_passed_over(data: bytes) -> None:
    found = split_stamp(data)
    assert found is not None
    assert body_hash(found[1]) == found[0].body_hash == SAMPLE_HASH


@pytest.mark.parametrize(
    "first_line",
    [
        "",
        "# Sample guide",
        f"\n{LINE}",
        f" {LINE}",
        f"{LINE} and more",
        LINE.replace("maadb:managed", "maadb:other"),
        LINE.replace("a-guide", "a guide"),
        LINE.replace("engine=0.18.5", "engine=0.18.5 beta"),
        LINE.replace("engine=0.18.5 ", ""),
        LINE.replace(SAMPLE_HASH, SAMPLE_HASH[:-1]),
        LINE.replace(SAMPLE_HASH, SAMPLE_HASH.upper()),
        LINE.replace("sha256", "sha1"),
    ],
)
def test_any_other_first_line_is_no_stamp(first_line: str) -> None:
    assert split_stamp(f"{first_line}\n".encode() + SAMPLE) is None
