"""`maad scan` and `maad parse`: any file or folder, without a project (spec 01 §17, 04 §19)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIST = """\
---
kind: list
owner: Ada
---
intro 2031-01-05

# Items {#items}

[[person:Ada|A]] and {{owner}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "papers"
    (root / "_skipped").mkdir(parents=True)
    (root / "deep").mkdir()
    (root / "list.md").write_text(LIST)
    (root / "deep/other.md").write_text(LIST.replace("Ada", "Mia"))
    (root / "deep/plain.md").write_text("# Items\n")
    (root / "_skipped/no.md").write_text(LIST)
    (root / "no.txt").write_text("x")
    return root


def test_a_file_is_taken_apart(maad_here: Any, folder: Path) -> None:
    report = maad_here("scan", str(folder / "list.md")).json
    assert report["filePath"] == str(folder / "list.md")
    assert report["frontmatterFields"] == ["kind", "owner"]
    assert report["headings"] == [{"level": 1, "text": "Items", "line": 7}]
    assert report["detectedPatterns"]["dates"] == ["2031-01-05"]
    assert report["valueCalls"] == ["owner"]


def test_a_folder_shows_what_its_files_share(maad_here: Any, folder: Path) -> None:
    report = maad_here("scan", str(folder)).json
    assert [file["path"] for file in report["files"]] == [
        "deep/other.md",
        "deep/plain.md",
        "list.md",
    ]
    [family] = report["likelyDocumentFamilies"]
    assert (family["fileCount"], family["sharedFields"]) == (2, ["kind", "owner"])
    assert not (folder / "_backend").exists()


def test_where_one_stands_and_through_a_link(maad: Any, folder: Path) -> None:
    assert maad("scan", ".", cwd=folder).json["directory"] == "."
    (folder.parent / "link.md").symlink_to("papers/list.md")
    assert maad("scan", "link.md").json["filePath"] == "link.md"
    (folder.parent / "there").symlink_to("papers")
    assert maad("scan", "there").json["totalFiles"] == 3


def test_any_file_may_be_scanned(maad_here: Any, folder: Path) -> None:
    assert maad_here("scan", str(folder / "no.txt")).json["lineCount"] == 1
    assert maad_here("scan", str(folder / "_skipped")).json["totalFiles"] == 1
    (folder / "broken.md").write_bytes(b"---\na: [\n---\n\xff\n")
    assert maad_here("scan", str(folder / "broken.md")).json["frontmatter"] is None


@pytest.mark.parametrize("command", ["scan", "parse"])
def test_what_is_not_there_is_exit_code_1(maad_here: Any, command: str) -> None:
    for path in ("nowhere", "/dev/null", "a\nb"):
        done = maad_here(command, path)
        assert (done.code, done.out) == (1, "")
        assert f"  PATH_NOT_FOUND: {path} is no file and no folder" in done.err
    assert maad_here(command).code == 2


def test_the_limits_of_a_scan(maad_here: Any, folder: Path) -> None:
    few = maad_here("scan", str(folder), env={"MAAD_SCAN_MAX_FILES": "1"}).json
    assert (few["totalFiles"], few["truncated"], few["skippedFiles"]) == (1, True, 2)
    large = maad_here("scan", str(folder / "list.md"), env={"MAAD_MAX_DOC_BYTES": "10"})
    assert (large.code, "  DOC_TOO_LARGE: " in large.err) == (1, True)


def test_a_parsed_file_has_lines_everywhere(maad_here: Any, folder: Path) -> None:
    view = maad_here("parse", str(folder / "list.md")).json
    assert view["frontmatter"] == {"kind": "list", "owner": "Ada"}
    assert view["frontmatterLines"] == {"kind": 2, "owner": 3}
    assert len(view["fileHash"]) == 64
    assert view["blocks"] == [
        {"id": None, "heading": "", "level": 0, "startLine": 5, "endLine": 6},
        {"id": "items", "heading": "Items", "level": 1, "startLine": 7, "endLine": 10},
    ]
    [annotation] = view["annotations"]
    assert (annotation["type"], annotation["primitive"], annotation["line"]) == (
        "person",
        "entity",
        9,
    )
    assert view["valueCalls"] == [{"field": "owner", "line": 9, "col": 21}]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (b"---\na: [\n---\n", "PARSE_ERROR", ":3:1"),
        (b"---\na: 1\n", "PARSE_ERROR", ":1:1"),
        (b"---js\na: 1\n---\n", "PARSE_ERROR", ":1:4"),
        (b"a\n\xff\n", "PARSE_ERROR", ":2:1"),
        (b"", "PARSE_ERROR", ":1:1"),
        (b"---\na: [?b, c]\n---\n", "YAML_PROFILE_VIOLATION", ":2:5"),
    ],
)
def test_a_file_that_is_no_record_is_exit_code_1(
    maad_here: Any, folder: Path, text: bytes, code: str, place: str
) -> None:
    (folder / "broken.md").write_bytes(text)
    done = maad_here("parse", str(folder / "broken.md"))
    assert (done.code, done.out) == (1, "")
    assert f"  {code}: " in done.err
    assert f"broken.md{place}" in done.err


def test_a_folder_cannot_be_parsed(maad_here: Any, folder: Path) -> None:
    done = maad_here("parse", str(folder))
    assert done.code == 1
    assert "`maad scan` takes folders" in done.err


def test_numbers_that_json_has_not_are_null(maad_here: Any, folder: Path) -> None:
    (folder / "odd.md").write_text("---\na: .nan\nb: [.inf, 1.5]\n---\n")
    assert maad_here("parse", str(folder / "odd.md")).json["frontmatter"] == {
        "a": None,
        "b": [None, 1.5],
    }


def test_names_that_are_no_unicode_are_valid_json(maad: Any, folder: Path) -> None:
    name = os.fsdecode(b"b\xff.md")
    (folder / name).write_text(LIST)
    for env in ({}, {"LC_ALL": "C.UTF-8"}, {"PYTHONUTF8": "1"}):
        done = maad("scan", name, cwd=folder, env=env)
        assert (done.code, done.json["filePath"]) == (0, name)
    listed = maad("scan", ".", cwd=folder).json["files"]
    assert name in [file["path"] for file in listed]


def test_people_see_parts_under_titles(terminal: Any, folder: Path) -> None:
    def shown(*arguments: str) -> str:
        return re.sub(r" {2,}", " | ", terminal(*arguments).out)

    scanned = shown("scan", str(folder / "list.md"))
    for text in ("lines | 10", "dates | 2031-01-05", "owner | Ada", "1 | Items", "person | Ada"):
        assert text in scanned
    corpus = shown("scan", str(folder))
    for text in ("files | 3", "likely types", "2 | kind, owner", "deep/plain.md"):
        assert text in corpus
    parsed = shown("parse", str(folder / "list.md"))
    for text in ("kind | 2 | list", "items | 1 | 7 | 10 | Items", "owner | 9"):
        assert text in parsed
    assert "no frontmatter" in shown("parse", str(folder / "deep/plain.md"))


def test_a_long_list_is_cut_for_people_only(terminal: Any, folder: Path) -> None:
    for number in range(30):
        (folder / f"n{number}.md").write_text("x")
    assert "and 13 more; --json lists all" in terminal("scan", str(folder)).out
    assert len(terminal("scan", str(folder), "--json").json["files"]) == 33


def test_what_would_move_the_cursor_is_not_printed(terminal: Any, folder: Path) -> None:
    (folder / "red.md").write_text('---\na: "x\\e[31m\\ny"\n---\n# T \x1b[2J\n')
    for command in ("scan", "parse"):
        out = terminal(command, str(folder / "red.md")).out
        assert "\x1b" not in out
        assert "x [31m y" in out


def test_a_real_terminal_gets_a_table_and_a_pipe_gets_json(folder: Path, environment: Any) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "maadd.cli", "scan", str(folder)]
    with subprocess.Popen(
        command, env=environment | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        printed = b""
        while chunk := _read(ours):
            printed += chunk
    os.close(ours)
    assert child.returncode == 0
    assert b"likely types" in printed
    assert b"{" not in printed
    piped = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert json.loads(piped.stdout)["totalFiles"] == 3


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""
