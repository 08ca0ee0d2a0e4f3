"""Paths judged by their text and by where they lead (spec 01 §16)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk.paths import (
    is_really_within,
    is_safe_relative,
    is_safe_schema_ref,
    is_within,
    segments,
)


@pytest.mark.parametrize("path", ["work", "work/tasks/", "a/b/c.md", "_x", "-x", "A-1_b.c/d", "0"])
def test_safe_relative_paths(path: str) -> None:
    assert is_safe_relative(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/data", "../x", "a/../b", "a/..", ".", "./a", ".git", "a/.b", "a//b", "a/b//"),
        *("a b", "a\\b", "a\0b", "a\n", "é", "a/b\n", "C:/x", "~", "a/~"),
    ],
)
def test_unsafe_relative_paths(path: str) -> None:
    assert not is_safe_relative(path)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("task.v2", True),
        ("a_1.v10", True),
        ("task.v0", False),
        ("task.v02", False),
        ("Task.v1", False),
        ("task", False),
        ("task.v1\n", False),
        ("../task.v1", False),
        ("task.v١", False),
    ],
)
def test_schema_refs(text: str, safe: bool) -> None:
    assert is_safe_schema_ref(text) is safe


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", []),
        (".", []),
        ("a", ["a"]),
        ("a/b/", ["a", "b"]),
        ("./a//b/./c", ["a", "b", "c"]),
        ("a/../b", ["b"]),
        ("a/..", []),
    ],
)
def test_names_of_a_path(path: str, names: list[str]) -> None:
    assert segments(path) == names


@pytest.mark.parametrize("path", ["/", "/etc/passwd", "..", "../x", "a/../../x", "a\0b"])
def test_paths_that_leave_the_project_by_their_text(path: str) -> None:
    with pytest.raises(MaadError) as caught:
        segments(path)
    assert caught.value.code == "PATH_OUTSIDE_PROJECT"
    assert "/etc" not in caught.value.message


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("/data/proj", True),
        ("/data/proj/a/b", True),
        ("/data/proj2", False),
        ("/data/proj2/a", False),
        ("/data", False),
    ],
)
def test_containment_is_no_prefix_of_text(target: str, inside: bool) -> None:
    assert is_within("/data/proj", target) is inside
    assert is_within("/", target)


def test_real_containment_resolves_links_and_refuses_what_it_cannot_resolve(tmp_path: Path) -> None:
    root, outside = tmp_path / "a", tmp_path / "ab"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    os.symlink(outside, root / "out")
    os.symlink(root / "sub", root / "in")
    os.symlink("loop", root / "loop")
    os.symlink(root, tmp_path / "alias")
    assert is_really_within(str(root), str(root / "in"))
    assert is_really_within(str(tmp_path / "alias"), str(root / "sub"))
    for name in ("out", "loop", "missing"):
        assert not is_really_within(str(root), str(root / name))
    assert not is_really_within(str(root), str(outside))
