import hashlib
import os
import struct
import subprocess

import pytest

from maadd_worker.history.index_format import (
    DamagedIndex,
    IndexEntry,
    UnsupportedIndex,
    edit_index,
    new_index,
)

OID = hashlib.sha1(b"blob 0\0").digest()
FILE = IndexEntry(0o100644, OID)


@pytest.fixture
def index(project):
    """Edits the project's index, as its lock holder would."""

    def edit(updates):
        path = project.root / ".git" / "index"
        path.write_bytes(edit_index(path.read_bytes(), updates))

    project.git("hash-object", "-w", "-t", "blob", "/dev/null")
    return edit


def listed(project) -> dict[str, str]:
    lines = project.git("ls-files", "--stage").splitlines()
    return {line.split("\t")[1]: line.split("\t")[0] for line in lines}


def test_paths_are_set_and_removed_in_order(project, index):
    before = listed(project)
    index({b"a.md": FILE, b"z/y.md": FILE, b"README.md": None, b"not/there": None})
    expected = dict.fromkeys(("a.md", "z/y.md"), f"100644 {OID.hex()} 0")
    assert listed(project) == {".gitignore": before[".gitignore"]} | expected
    assert list(listed(project)) == sorted(listed(project))


@pytest.mark.parametrize("length", range(1, 18))
def test_names_of_every_length_are_padded_right(project, index, length):
    index({b"n" * length: FILE, b"o" * length: FILE})
    assert {"n" * length, "o" * length, "README.md"} <= set(listed(project))


def test_a_very_long_name(project, index):
    name = b"/".join([b"d" * 200] * 22)
    index({name: FILE})
    index({b"zz": FILE})
    assert {name.decode(), "zz"} <= set(listed(project))


def test_the_cached_trees_stay_true(project, index):
    for number in range(4):
        project.person_commits(f"d{number}/sub/x.md")
    project.git("read-tree", "HEAD")
    index({b"d1/sub/new.md": FILE, b"d2/sub/x.md": None, b"d3": FILE})
    quick = project.git("write-tree").strip()
    project.git("read-tree", "--empty", GIT_INDEX_FILE=".git/other")
    entries = project.git("ls-files", "--stage", "-z")
    subprocess.run(
        ["git", "update-index", "-z", "--index-info"],
        cwd=project.root,
        env=os.environ | {"GIT_INDEX_FILE": ".git/other"},
        input=entries.encode(),
        check=True,
    )
    assert quick == project.git("write-tree", GIT_INDEX_FILE=".git/other").strip()


def test_conflict_stages_of_a_path_give_way_to_it(project, index):
    project.person_commits("c.md", "base\n")
    project.git("checkout", "-q", "-b", "side")
    project.person_commits("c.md", "side\n")
    project.git("checkout", "-q", "main")
    project.person_commits("c.md", "main\n")
    project.git("merge", "side", check=False)
    assert project.git("ls-files", "--unmerged") != ""
    index({b"c.md": FILE})
    assert project.git("ls-files", "--unmerged") == ""
    assert listed(project)["c.md"] == f"100644 {OID.hex()} 0"


@pytest.mark.parametrize("others", [0, 100])
def test_a_file_and_a_folder_of_one_name_exclude_each_other(project, index, others):
    index({b"x": FILE, b"y/1": FILE, b"y/2/3": FILE, b"y-": FILE})
    index({b"x/new": FILE, b"y": FILE} | {b"o/%d" % number: FILE for number in range(others)})
    assert {"x/new", "y", "y-"} <= set(listed(project))
    assert {"x", "y/1", "y/2/3"}.isdisjoint(listed(project))
    project.git("write-tree")


def test_flags_of_other_entries_are_kept(project, index):
    project.write("intended.md")
    project.git("add", "--intent-to-add", "intended.md")
    project.git("update-index", "--skip-worktree", "README.md")
    project.git("update-index", "--assume-unchanged", ".gitignore")
    index({b"a.md": FILE, b"zz.md": FILE})
    flags = project.git("ls-files", "-v", "--cached")
    assert "S README.md" in flags
    assert "h .gitignore" in flags
    assert project.git("diff", "--name-only", "--diff-filter=A") == "intended.md\n"


def test_stat_data_let_git_trust_the_file(project, index):
    project.write("vendors/a.md", "text\n")
    oid = bytes.fromhex(project.git("hash-object", "-w", "vendors/a.md").strip())
    status = (project.root / "vendors/a.md").stat()
    entry = IndexEntry(
        0o100644,
        oid,
        status.st_ctime_ns,
        status.st_mtime_ns,
        status.st_dev,
        status.st_ino,
        status.st_uid,
        status.st_gid,
        status.st_size,
    )
    index({b"vendors/a.md": entry})
    assert project.git("diff-files", "--name-only") == ""
    index({b"vendors/a.md": IndexEntry(0o100644, oid)})
    assert project.git("diff-files", "--name-only") == "vendors/a.md\n"


def test_an_empty_index_can_be_filled(project):
    path = project.root / ".git" / "index"
    path.write_bytes(edit_index(new_index(), {b"a": FILE}))
    assert list(listed(project)) == ["a"]


def test_recorded_resolutions_are_kept(project, index):
    test_conflict_stages_of_a_path_give_way_to_it(project, index)
    project.git("checkout", "-q", "main", "-f")
    project.git("merge", "side", check=False)
    project.git("add", "c.md")
    assert b"REUC" in (project.root / ".git" / "index").read_bytes()
    index({b"a.md": FILE})
    assert b"REUC" in (project.root / ".git" / "index").read_bytes()
    assert "a.md" in listed(project)


@pytest.mark.parametrize(
    "command",
    [
        ("update-index", "--index-version", "4"),
        ("update-index", "--split-index"),
        ("update-index", "--force-untracked-cache"),
    ],
)
def test_forms_that_only_git_can_edit_are_named(project, command):
    project.git(*command)
    with pytest.raises(UnsupportedIndex):
        edit_index((project.root / ".git" / "index").read_bytes(), {b"a": FILE})


def resealed(data: bytes) -> bytes:
    return data[:-20] + hashlib.sha1(data[:-20]).digest()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"XXXX" + data[4:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: resealed(data[:8] + struct.pack(">I", 999) + data[12:]),
        lambda data: resealed(data[:-24] + data[-20:]),
    ],
)
def test_damage_is_noticed(project, damage):
    data = (project.root / ".git" / "index").read_bytes()
    with pytest.raises(DamagedIndex):
        edit_index(damage(data), {b"a": FILE})
