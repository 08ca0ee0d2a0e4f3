"""Folders of Markdown as they are found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.errors import MaadError


def test_files_are_read_in_order_with_what_they_say(folder: Any) -> None:
    source = folder(
        {
            "b.md": "---\ntitle: B\nversion: 1.10\n---\n# Head\n\n## Status\n\nOpen\n",
            "_posts/a.markdown": "# A\n",
            "Z.MD": "",
        }
    )
    assert [item.key for item in source.items] == ["Z.MD", "_posts/a.markdown", "b.md"]
    empty, first, second = source.items
    assert empty.empty
    assert (first.heading, first.fields, first.folder, first.stem) == ("A", {}, "_posts", "a")
    assert second.raw == {"version": "1.10"}
    assert second.sections == {"Status": "Open"}
    assert second.field_lines == {"title": 2, "version": 3}
    assert source.misfits == ()


def test_what_cannot_be_read_is_named_with_place_reason_and_advice(folder: Any) -> None:
    source = folder(
        {
            "dup.md": "---\na: 1\na: 2\n---\n",
            "latin.md": "caf\xe9\n".encode("latin-1"),
            "open.md": "---\na: 1\n",
            "toml.md": "---toml\n",
            "deep.md": "---\na: {b: {c: {d: 1}}}\n---\n",
            "big.md": "x" * 100_001,
            "list.md": "---\n- a\n---\n",
        }
    )
    found = {one.source: (one.line, one.reason) for one in source.misfits}
    assert found["dup.md"] == (3, "duplicate key 'a', first on line 2")
    assert found["latin.md"] == (1, "invalid UTF-8 at byte 3")
    assert found["open.md"] == (1, "frontmatter not closed")
    assert found["big.md"] == (None, "it has 100001 bytes, more than 100000")
    assert set(found) == {
        "dup.md", "latin.md", "open.md", "toml.md", "deep.md", "big.md", "list.md",
    }  # fmt: skip
    assert all(one.advice for one in source.misfits)


def test_links_and_odd_names_are_misfits_and_other_files_are_counted(
    folder: Any, tmp_path: Path
) -> None:
    root = tmp_path / "notes"
    root.mkdir()
    (root / "link.md").symlink_to("a.md")
    (root / "folder").symlink_to(tmp_path)
    Path(os.fsdecode(bytes(root) + b"/\xff.md")).write_text("x")
    source = folder(
        {"a.md": "x", "p.png": "x", "LICENSE": "x", ".git/x.md": "x", "node_modules/y.md": "y"}
    )
    assert [item.key for item in source.items] == ["a.md"]
    reasons = {one.source: one.reason for one in source.misfits}
    assert reasons == {
        "link.md": "it is a link, and links are not followed",
        "folder": "it is a link, and links are not followed",
        "\\xff.md": "its name is not UTF-8",
    }
    assert source.others == {".png": 1, "no suffix": 1}
    assert source.passed_over == (".git", "node_modules")


def test_a_file_that_changes_while_it_is_imported_is_refused(folder: Any, tmp_path: Path) -> None:
    source = folder({"a.md": "one"})
    assert source.read_text(source.items[0]) == "one"
    (tmp_path / "notes/a.md").write_text("two")
    with pytest.raises(MaadError, match="changed while it was imported"):
        source.read_text(source.items[0])
