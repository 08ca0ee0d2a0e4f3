"""Folders of Markdown as they are found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.imports.toml_frontmatter import with_yaml_fences


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
        {
            "a.md": "x",
            "p.png": "x",
            "LICENSE": "x",
            ".hidden.md": "x",
            ".git/x.md": "x",
            "node_modules/y.md": "y",
        }
    )
    assert [item.key for item in source.items] == ["a.md"]
    reasons = {one.source: one.reason for one in source.misfits}
    assert reasons == {
        "link.md": "it is a link, and links are not followed",
        "folder": "it is a link, and links are not followed",
        "\\xff.md": "its name is not UTF-8",
    }
    assert source.others == {".png": 1, "no suffix": 1}
    assert source.passed_over == (".git", ".hidden.md", "node_modules")


def test_a_file_that_changes_while_it_is_imported_is_refused(folder: Any, tmp_path: Path) -> None:
    source = folder({"a.md": "one"})
    assert source.read_text(source.items[0]) == "one"
    (tmp_path / "notes/a.md").write_text("two")
    with pytest.raises(MaadError, match="changed while it was imported"):
        source.read_text(source.items[0])


def test_what_cannot_be_looked_at_is_left_out_with_the_reason(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    class Hidden:
        """A link to a place that this user may not see, such as `/proc/1/cwd`."""

        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path = entry.name, entry.path
            self.is_symlink = entry.is_symlink

        def is_dir(self, *, follow_symlinks: bool = True) -> bool:
            raise PermissionError(13, "Permission denied", self.path)

    class Listing(list[Any]):
        def __enter__(self) -> Listing:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def hiding(path: str) -> Listing:
        with scan(path) as entries:
            return Listing(Hidden(one) if one.name == "cwd" else one for one in entries)

    monkeypatch.setattr(os, "scandir", hiding)
    source = folder({"a.md": "x", "cwd": "x", "p/b.md": "y"})
    assert [item.key for item in source.items] == ["a.md", "p/b.md"]
    [misfit] = source.misfits
    assert (misfit.source, misfit.reason) == ("cwd", "it cannot be looked at: Permission denied")


def test_toml_frontmatter_is_read(folder: Any) -> None:
    source = folder(
        {
            "a.md": "+++\n# note\ntitle = 'A'\nversion = 1.10\nmade = 2024-05-01\n"
            "at = 2024-05-01T10:00:00Z\n[extra]\nx = [1, 2]\n+++\n\n# Head\n",
            "bad.md": "+++\na = 1\nb = \n+++\n",
            "open.md": "+++\na = 1\n",
            "crlf.md": "\ufeff+++\r\na = 1\r\n+++ \r\nbody\r\n",
            "sum.md": "+++ no fence\n",
        }
    )
    first, crlf, plain = source.items
    assert first.fields == {
        "title": "A",
        "version": 1.1,
        "made": "2024-05-01",
        "at": "2024-05-01T10:00:00+00:00",
        "extra": {"x": [1, 2]},
    }
    assert first.raw == {"version": "1.10"}
    assert first.field_lines == {"title": 3, "version": 4, "made": 5, "at": 6, "extra": 7}
    assert (first.heading, crlf.fields, plain.fields) == ("Head", {"a": 1}, {})
    assert [(one.source, one.line) for one in source.misfits] == [("bad.md", 3), ("open.md", 1)]
    assert with_yaml_fences(source.read_text(crlf), "") == "\ufeff---\r\n---\r\nbody\r\n"
    assert with_yaml_fences(source.read_text(plain), "") == "+++ no fence\n"
