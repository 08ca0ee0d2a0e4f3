"""Where frontmatter ends and the body begins (spec 01 §4.1, §4.3)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError, SourceLocation
from maadd_worker.markdown.frontmatter import content_hash, split_file
from maadd_worker.markdown.yaml_profile import load_frontmatter


@pytest.mark.parametrize(
    ("text", "fields", "body", "body_start_line"),
    [
        ("---\na: 1\nb: 2\n---\n\n# H\n", {"a": 1, "b": 2}, "\n# H\n", 5),
        ("# H\nx", {}, "# H\nx", 1),
        ("\n---\na: 1\n---\n", {}, "\n---\na: 1\n---\n", 1),
        ("---\n---\n\n# H", {}, "\n# H", 3),
        ("---\n# only a comment\n---\nx", {}, "x", 4),
        ("---\nnull\n---\nx", {}, "x", 4),
        ("---\n\n---\nx", {}, "x", 4),
        ("----\na: 1\n---\n", {}, "----\na: 1\n---\n", 1),
        ("---\na: 1\n---\nt\n---\nm", {"a": 1}, "t\n---\nm", 4),
        ("---\r\na: 1\r\nb: x\r\n---\r\n\r\n# H\r\n", {"a": 1, "b": "x"}, "\r\n# H\r\n", 5),
        ("\ufeff---\na: 1\n---\nb", {"a": 1}, "b", 4),
        ("---\n\ufeffa: 1\n---\nb", {"a": 1}, "b", 4),
        ("--- \t\na: 1\n---\nb", {"a": 1}, "b", 4),
        ("---yaml\na: 1\n---\nb", {"a": 1}, "b", 4),
        ("--- yml\na: 1\n---\nb", {"a": 1}, "b", 4),
        ("---\na: 1\n--- \t\nb", {"a": 1}, "b", 4),
        ("---\na: 1\n---", {"a": 1}, "", 4),
        ("---\n---", {}, "", 3),
        ('---\na: "x\n\n  ---more"\n---\nb', {"a": "x\n---more"}, "b", 6),
        ("---\na: |\n  ---\n---\nb", {"a": "---\n"}, "b", 5),
        ("", {}, "", 1),
    ],
)
def test_parts_of_a_file(
    text: str, fields: dict[str, object], body: str, body_start_line: int
) -> None:
    split = split_file(text.encode(), "notes/n.md")
    assert load_frontmatter(split, "notes/n.md") == fields
    assert (split.body, split.body_start_line) == (body, body_start_line)


@pytest.mark.parametrize(
    "text",
    [
        "---\na: 1\n---\nb",
        "\ufeff---\r\na: 1\r\n---\t\r\n\r\nb\r\n\r\n",
        "--- yaml\n# c\n---",
        "\ufeff# no fields\n",
        "---\n\ufeffa: 1\n---\n",
        "---\n---\n---\n",
    ],
)
def test_the_parts_together_are_the_file(text: str) -> None:
    split = split_file(text.encode(), "n.md")
    bom = "\ufeff" if split.bom else ""
    assert bom + split.opening + split.block + split.closing + split.body == text


def test_line_end_is_judged_by_the_first_line() -> None:
    assert split_file(b"---\r\na: 1\n---\n", "n.md").newline == "\r\n"
    assert split_file(b"---\na: 1\r\n---\r\n", "n.md").newline == "\n"
    assert split_file(b"no line end", "n.md").newline == "\n"


@pytest.mark.parametrize(
    ("data", "line", "col", "said"),
    [
        (b"---\na: 1\n(no close)", 1, 1, "not closed"),
        (b"---\na: 1\n---more\nb", 1, 1, "not closed"),
        (b"---", 1, 1, "not closed"),
        (b"---js\nalert(1)\n---\n", 1, 4, "'js'"),
        (b"---json\n{}\n---\n", 1, 4, "'json'"),
        (b"--- toml\na = 1\n---\n", 1, 4, "'toml'"),
        (b"---\n- x\n---", 2, 1, "must be a mapping"),
        (b"---\ntext\n---", 2, 1, "must be a mapping"),
        (b"---\na: \xc3\xa9\xff\n---\n", 2, 5, "invalid UTF-8 at byte 9"),
        (b"\xff", 1, 1, "invalid UTF-8 at byte 0"),
        (b"---\na: 1\n---\n\xed\xa0\x80", 4, 1, "invalid UTF-8"),
    ],
)
def test_files_that_are_refused(data: bytes, line: int, col: int, said: str) -> None:
    with pytest.raises(MaadError) as caught:
        load_frontmatter(split_file(data, "notes/n.md"), "notes/n.md")
    error = caught.value
    assert error.code == "PARSE_ERROR"
    assert said in error.message
    assert error.location == SourceLocation("notes/n.md", line, col)
    assert error.details == {"file": "notes/n.md", "line": line, "col": col}


def test_content_hash_is_over_the_bytes() -> None:
    text = "---\ndoc_id: tsk-x\ndoc_type: task\nschema: task.v1\ntitle: X\n---\n\n# X\n"
    expected = "ebc31aa32f456bb001201323f54ab9a7cc846cd78ce4b1902840c17d9ac68194"
    assert content_hash(text.encode()) == expected
    assert content_hash(b"\xef\xbb\xbf" + text.encode()) != expected
