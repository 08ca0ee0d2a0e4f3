"""A whole file parsed (spec 01 §4.4) and the template of a new one (§9.4)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.document import parse_document
from maadd_worker.markdown.template import render_template

RECORD = """\
---
doc_id: tsk-one
tags: [a, "b: c"]
# owner of the thing
owner: mbr-ana
---

Seen by [[person:Ana Roe|Ana]].

# Log {#log}
`[[x:y|z]]` {{owner}}
"""


def test_everything_a_file_says() -> None:
    document = parse_document(RECORD.encode(), "tasks/tsk-one.md")
    assert document.frontmatter == {
        "doc_id": "tsk-one",
        "tags": ["a", "b: c"],
        "owner": "mbr-ana",
    }
    assert document.key_lines == {"doc_id": 2, "tags": 3, "owner": 5}
    assert [(b.block_id, b.start_line, b.end_line) for b in document.blocks] == [
        (None, 7, 9),
        ("log", 10, 12),
    ]
    assert [(a.type, a.line, a.col) for a in document.annotations] == [("person", 8, 8)]
    assert [(call.field, call.line) for call in document.value_calls] == [("owner", 11)]
    assert not document.annotations_truncated
    assert len(document.file_hash) == 64


def test_the_same_file_with_crlf_says_the_same_at_the_same_places() -> None:
    unix = parse_document(RECORD.encode(), "t.md")
    windows = parse_document(RECORD.replace("\n", "\r\n").encode(), "t.md")
    assert windows.frontmatter == unix.frontmatter
    assert windows.key_lines == unix.key_lines
    assert windows.blocks == unix.blocks
    assert windows.annotations == unix.annotations


def test_a_file_of_no_bytes_is_an_error() -> None:
    with pytest.raises(MaadError, match="empty file") as caught:
        parse_document(b"", "t.md")
    assert caught.value.code == "PARSE_ERROR"
    assert caught.value.details == {"file": "t.md", "line": 1, "col": 1}


def test_one_bad_file_is_diagnosed_with_its_place() -> None:
    bad = RECORD.replace("owner: mbr-ana", "owner: note: unquoted")
    with pytest.raises(MaadError) as caught:
        parse_document(bad.encode(), "tasks/tsk-one.md")
    assert caught.value.details == {"file": "tasks/tsk-one.md", "line": 5, "col": 12}


def test_the_annotation_cap_is_reported() -> None:
    document = parse_document(b"[[a:1|x]] [[a:2|x]]", "t.md", max_annotations=1)
    assert (len(document.annotations), document.annotations_truncated) == (1, True)


@dataclass(frozen=True)
class TemplateLine:
    level: int
    text: str
    id: str | None = None


def test_template_headings() -> None:
    headings = [
        TemplateLine(1, "{{title}}", "top"),
        TemplateLine(2, "Log of {{owner}} and {{no.such}}", "log"),
        TemplateLine(9, "{{flag}} {{count}} {{tags}} {{ title }}"),
        TemplateLine(0, "End"),
    ]
    fields = {
        "title": "Two\r\nlines\u2028here",
        "owner": None,
        "flag": True,
        "count": 3.0,
        "tags": ["a", "b"],
        "no": {"such": "walked"},
    }
    assert render_template(headings, fields) == (
        "# Two lines here {#top}\n\n"
        "## Log of owner and no.such {#log}\n\n"
        "###### true 3 a,b {{ title }}\n\n"
        "# End"
    )


def test_template_keys_with_dots_are_looked_up_literally() -> None:
    assert render_template([TemplateLine(1, "{{a.b}}")], {"a.b": "x", "a": {"b": "y"}}) == "# x"
    assert render_template([], {}) == ""
