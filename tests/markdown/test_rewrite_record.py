"""An edit touches the lines of the fields it changes and no other byte (spec 01 §9.1)."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.serializer import rewrite_record, update_body
from maadd_worker.markdown.yaml_profile import load_frontmatter

HAND_WRITTEN = """\
---
# how this file is kept

doc_id: tsk-one
doc_type: "task"   # quoted
schema   : task.v1
# the title
title:  'It''s fine'
time: 10:00
odd: [007, 1e3, 0x1F, 1_000, no, 2026-03-16, 2026-02-30]
link: [[x]]
indented:
  - a   # first
  # between
  - b

unindented:
- a
- b
flow: [ a ,b,  "c" ]
wide: [a,
  b]   # end
literal: |+ # keep
  line

folded: >-
  long
  text
long: a very long line that goes on and on and on and on and on and on and on and on and on and on
nothing:
tilde: ~
trailing: x  \t
anchor: &base [1, 2]
alias: *base
map:
  k: v
last: "end"
# closing words
---

# Body

Text
"""


def fields_of(data: bytes) -> dict[str, Any]:
    return load_frontmatter(split_file(data, "n.md"), "n.md")


def rewritten(data: bytes, *without: str, body: str | None = None, **changes: Any) -> bytes:
    fields = {k: v for k, v in fields_of(data).items() if k not in without} | changes
    result = rewrite_record(data, "n.md", fields, list(fields), body=body)
    assert fields_of(result) == fields
    return result


def changed_lines(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    diff = list(
        difflib.ndiff(before.decode().split("\n"), after.decode().split("\n"), charjunk=None)
    )
    return [d[2:] for d in diff if d[0] == "-"], [d[2:] for d in diff if d[0] == "+"]


VARIANTS = {
    "LF": HAND_WRITTEN.encode(),
    "CRLF": HAND_WRITTEN.replace("\n", "\r\n").encode(),
    "BOM": b"\xef\xbb\xbf" + HAND_WRITTEN.encode(),
    "no final newline": HAND_WRITTEN.removesuffix("\n").encode(),
    "three final newlines": (HAND_WRITTEN + "\n\n").encode(),
    "ends with the fence": HAND_WRITTEN[: HAND_WRITTEN.index("\n\n# Body")].encode(),
}


@pytest.mark.parametrize("data", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize(
    ("key", "value", "gone", "come"),
    [
        ("doc_type", "note", ['doc_type: "task"   # quoted'], ["doc_type: note   # quoted"]),
        ("schema", "task.v2", ["schema   : task.v1"], ["schema   : task.v2"]),
        ("title", "a: b", ["title:  'It''s fine'"], ['title:  "a: b"']),
        ("time", "10:30", ["time: 10:00"], ['time: "10:30"']),
        ("flow", ["z"], ['flow: [ a ,b,  "c" ]'], ["flow: [z]"]),
        ("nothing", 3, ["nothing:"], ["nothing: 3"]),
        ("tilde", False, ["tilde: ~"], ["tilde: false"]),
        ("trailing", "y", ["trailing: x  \t"], ["trailing: y  \t"]),
        ("last", None, ['last: "end"'], ["last: null"]),
        ("alias", 1, ["alias: *base"], ["alias: 1"]),
        ("unindented", ["a"], ["unindented:", "- a", "- b"], ["unindented: [a]"]),
        ("map", {"k": [1]}, ["map:", "  k: v"], ["map: {k: [1]}"]),
        ("wide", ["q"], ["wide: [a,", "  b]   # end"], ["wide: [q]   # end"]),
        ("folded", "short", ["folded: >-", "  long", "  text"], ["folded: short"]),
        ("literal", "s", ["literal: |+ # keep", "  line"], ["# keep", "literal: s"]),
        (
            "indented",
            ["a", "c"],
            ["indented:", "  - a   # first", "  # between", "  - b"],
            ["# first", "# between", "indented: [a, c]"],
        ),
        (
            "anchor",
            [3],
            ["anchor: &base [1, 2]", "alias: *base"],
            ["anchor: [3]", "alias: [1, 2]"],
        ),
    ],
)
def test_changing_a_field_changes_its_lines_only(
    data: bytes, key: str, value: Any, gone: list[str], come: list[str]
) -> None:
    after = rewritten(data, **{key: value})
    cr = "\r" if b"\r\n" in data else ""
    assert changed_lines(data, after) == ([f"{x}{cr}" for x in gone], [f"{x}{cr}" for x in come])


@pytest.mark.parametrize("data", VARIANTS.values(), ids=VARIANTS.keys())
def test_an_identical_write_gives_identical_bytes(data: bytes) -> None:
    assert rewritten(data) == data
    once = rewritten(data, title="new", added=1)
    assert rewritten(once) == once
    assert rewritten(once, title="new", added=1) == once


@pytest.mark.parametrize("data", VARIANTS.values(), ids=VARIANTS.keys())
def test_removed_fields_go_with_the_comments_right_above_them(data: bytes) -> None:
    cr = "\r" if b"\r\n" in data else ""
    gone, come = changed_lines(data, rewritten(data, "title", "unindented"))
    expected = ["# the title", "title:  'It''s fine'", "unindented:", "- a", "- b"]
    assert (gone, come) == ([f"{line}{cr}" for line in expected], [])


def test_new_fields_follow_their_predecessor_in_the_key_order() -> None:
    data = b"---\n# top\ndoc_id: a\ntitle: t # c\n\n# about z\nz: 1\n---\n"
    fields = {
        "doc_id": "a",
        "title": "t",
        "z": 1,
        "state": "open",
        "due": 2,
        "new": [1],
        "first": 0,
    }
    order = ["first", "doc_id", "title", "state", "due", "z", "new"]
    assert rewrite_record(data, "n.md", fields, order, body=None) == (
        b"---\nfirst: 0\n# top\ndoc_id: a\ntitle: t # c\nstate: open\ndue: 2\n\n"
        b"# about z\nz: 1\nnew: [1]\n---\n"
    )


def test_fields_keep_their_place_even_out_of_order() -> None:
    data = b"---\ntitle: t\ndoc_id: a\n---\n"
    result = rewrite_record(
        data, "n.md", {"doc_id": "a", "title": "u"}, ["doc_id", "title"], body=None
    )
    assert result == b"---\ntitle: u\ndoc_id: a\n---\n"


@pytest.mark.parametrize(
    ("data", "fields", "expected"),
    [
        (b"---\n---\nx", {"a": 1}, b"---\na: 1\n---\nx"),
        (b"---\r\n---\r\n", {"a": 1}, b"---\r\na: 1\r\n---\r\n"),
        (b"--- yaml\n# c\n--- \nx", {"a": 1}, b"--- yaml\n# c\na: 1\n--- \nx"),
        (b"---\nnull # c\n---\n", {"a": 1}, b"---\na: 1\n# c\n---\n"),
        (b"# H\nx", {"a": 1}, b"---\na: 1\n---\n# H\nx"),
        (b"---\n  a: 1\n---\n", {"a": 1, "b": 2}, b"---\n  a: 1\n  b: 2\n---\n"),
        (b"---\na: 1\n...\n---\n", {"a": 1, "b": 2}, b"---\na: 1\nb: 2\n...\n---\n"),
        (b'---\n{a: 1, b: "x # y"} # c\n---\n', {"a": 1, "b": 2}, b"---\na: 1\nb: 2\n# c\n---\n"),
        (b"---\n? a\n: 1\n# c\nb: 2\n---\n", {"a": 1, "b": 3}, b"---\na: 1\n# c\nb: 3\n---\n"),
        (b"---\n&t\na: 1\n---\n", {"a": 2}, b"---\na: 2\n---\n"),
        (b"---\na: &x 1\nb: [*x]\nc: *x\n---\n", {"b": [1], "c": 1}, b"---\nb: [1]\nc: 1\n---\n"),
        (b"---\na: &x 1\nb: *x\n---\n", {"a": 1, "b": 2}, b"---\na: &x 1\nb: 2\n---\n"),
        (b"---\na: !!str 1\n---\n", {"a": 2}, b"---\na: 2\n---\n"),
        (b"---\na:\n  x # c\nb: 1\n---\n", {"a": "y", "b": 1}, b"---\na: y # c\nb: 1\n---\n"),
        (
            b'---\na: "\\uD83D\\uDE00"\nb: 1\n---\n',
            {"a": "😀", "b": 2},
            b'---\na: "\\uD83D\\uDE00"\nb: 2\n---\n',
        ),
        (
            "---\na: \u2028\nb: 1\n---\n".encode(),
            {"a": "\u2028", "b": 2},
            "---\na: \u2028\nb: 2\n---\n".encode(),
        ),
        (b"---\na: 1\n---\n", {}, b"---\n---\n"),
    ],
)
def test_rare_forms(data: bytes, fields: dict[str, Any], expected: bytes) -> None:
    assert rewrite_record(data, "n.md", fields, list(fields), body=None) == expected


@pytest.mark.parametrize(
    ("stored", "new", "line"),
    [
        (b"1", True, b"true"),
        (b"true", 1, b"1"),
        (b"1", "1", b'"1"'),
        (b'"1"', 1, b"1"),
        (b"~", "", b'""'),
        (b"[1]", ["1"], b'["1"]'),
        (b"0x1F", 31, b"0x1F"),
        (b"1.0", 1, b"1.0"),
        (b"1", 1.0, b"1"),
        (b".nan", float("nan"), b".nan"),
    ],
)
def test_values_are_compared_with_their_types(stored: bytes, new: Any, line: bytes) -> None:
    data = b"---\nv: " + stored + b"\n---\n"
    assert rewrite_record(data, "n.md", {"v": new}, ["v"], body=None) == (
        b"---\nv: " + line + b"\n---\n"
    )


@pytest.mark.parametrize(
    ("original", "body", "expected"),
    [
        ("\n# H\n\nx\n", "new", "\nnew\n"),
        ("\n# H\n\nx", "new", "\nnew"),
        ("\n\n# H\n\n\n", "new\nline", "\n\nnew\nline\n\n\n"),
        ("# H\n", "new", "new\n"),
        ("", "new", "\nnew\n"),
        ("\n\n", "new", "\nnew\n"),
        ("\nx\n", "", ""),
        ("\n  x  \n\n", "x", "\n  x  \n\n"),
        ("\nx  \n", "x\n\nmore", "\nx\n\nmore\n"),
        ("\nx\n", "---\na: 2\n---\ny", "\n---\na: 2\n---\ny\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_bodies(original: str, body: str, expected: str, newline: str) -> None:
    head = "---\na: 1\n---\n"
    data = (head + original).replace("\n", newline).encode()
    result = rewrite_record(data, "n.md", {"a": 1}, ["a"], body=body)
    assert result.decode() == (head + expected).replace("\n", newline)


def test_an_appended_text_leaves_the_bytes_before_it_alone() -> None:
    data = b"---\na: 1\n---\n\nmixed\r\nends\n\n"
    body = update_body(split_file(data, "n.md"), None, "more\n")
    result = rewrite_record(data, "n.md", {"a": 1}, ["a"], body=body)
    assert result == b"---\na: 1\n---\n\nmixed\r\nends\n\nmore\n\n"


@pytest.mark.parametrize(
    ("stored", "body", "append", "result"),
    [
        ("\n x\r\ny \n", None, None, None),
        ("\nx\n", "  new \n", None, "new"),
        ("\nx\n", "", None, ""),
        ("\n x\r\ny \n", None, "  z\n", "x\ny\n\n  z"),
        ("", None, "\n z", "z"),
        ("\nx\n", None, "", "x"),
    ],
)
def test_the_body_of_an_update(
    stored: str, body: str | None, append: str | None, result: str | None
) -> None:
    split = split_file(f"---\na: 1\n---\n{stored}".encode(), "n.md")
    assert update_body(split, body, append) == result


def test_body_and_fields_change_together() -> None:
    data = VARIANTS["CRLF"]
    result = rewritten(data, body="One\nTwo", title="x")
    head, _, tail = result.partition(b"# closing words\r\n---\r\n")
    assert b"title:  x\r\n" in head
    assert tail == b"\r\nOne\r\nTwo\r\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "PARSE_ERROR"),
        (b"---\na: b: c\n---\n", "PARSE_ERROR"),
        (b"---\na: 1\na: 2\n---\n", "PARSE_ERROR"),
        (b"---\na: 1\n", "PARSE_ERROR"),
        (b"---\na: \xff\n---\n", "PARSE_ERROR"),
        (b"---\na: {b: {c: {}}}\n---\n", "YAML_PROFILE_VIOLATION"),
    ],
)
def test_what_does_not_parse_is_never_rewritten(data: bytes, code: str) -> None:
    with pytest.raises(MaadError) as caught:
        rewrite_record(data, "n.md", {"a": 1}, ["a"], body="x")
    assert caught.value.code == code


def test_a_body_that_would_become_frontmatter_is_refused() -> None:
    with pytest.raises(MaadError) as caught:
        rewrite_record(b"just text\n", "n.md", {}, [], body="---\na: 1\n---\n")
    assert caught.value.code == "FRONTMATTER_GUARD"
