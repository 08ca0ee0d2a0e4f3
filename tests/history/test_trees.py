import hashlib
import random
import subprocess

import pytest

from maadd_worker.history.trees import (
    DIRECTORY,
    REGULAR,
    SUBMODULE,
    CannotDescend,
    TreeCache,
    TreeEntry,
)


class Objects:
    """Tree objects in memory, with the number of reads."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}
        self.reads = 0

    def read(self, oid: bytes) -> bytes:
        self.reads += 1
        return self.stored[oid]

    def write(self, raw: bytes) -> bytes:
        oid = hashlib.sha1(b"tree %d\0" % len(raw) + raw).digest()
        self.stored[oid] = raw
        return oid


@pytest.fixture
def objects():
    return Objects()


@pytest.fixture
def trees(objects):
    return TreeCache(objects.read, objects.write)


def blob(number: int) -> TreeEntry:
    return TreeEntry(REGULAR, hashlib.sha1(b"%d" % number).digest())


def tree_of_git(path, files: dict[bytes, TreeEntry]) -> bytes:
    """The root tree that git itself builds for the files."""
    lines = b"".join(b"%s %s\t%s\0" % (e.mode, e.oid.hex().encode(), p) for p, e in files.items())
    for arguments, stdin in (
        (["read-tree", "--empty"], b""),
        (["update-index", "-z", "--index-info"], lines),
    ):
        subprocess.run(["git", *arguments], cwd=path, input=stdin, check=True)
    done = subprocess.run(
        ["git", "write-tree", "--missing-ok"], cwd=path, capture_output=True, check=True
    )
    return bytes.fromhex(done.stdout.decode().strip())


def test_random_edits_give_the_trees_that_git_builds(tmp_path, trees, objects):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    choose = random.Random(7)
    names = ["a", "a.md", "a-b", "ab", "B", "é.md", "z.md"]
    paths = [f"{x}/{y}".encode() for x in names for y in names] + [n.encode() for n in names]
    files: dict[bytes, TreeEntry] = {}
    for round_number in range(40):
        for _ in range(choose.randrange(1, 6)):
            path = choose.choice(paths)
            if choose.random() < 0.4:
                assert trees.remove(path) == (path in files or path in parents(files))
                files = {p: e for p, e in files.items() if p != path and not below(p, path)}
            else:
                entry = blob(choose.randrange(5))
                assert trees.put(path, entry) == (files.get(path) != entry)
                files = {
                    p: e for p, e in files.items() if not below(p, path) and not below(path, p)
                }
                files[path] = entry
        root = trees.write()
        assert root == tree_of_git(tmp_path, files), round_number
        if round_number % 5 == 0:
            trees.load(root)
    assert all(trees.get(path) == entry for path, entry in files.items())


def below(path: bytes, folder: bytes) -> bool:
    return path.startswith(folder + b"/")


def parents(files: dict[bytes, TreeEntry]) -> set[bytes]:
    return {path.rpartition(b"/")[0] for path in files if b"/" in path}


def test_only_the_folders_on_the_way_are_read_and_written(trees, objects):
    for folder in range(20):
        trees.put(b"d%d/x.md" % folder, blob(folder))
    trees.load(trees.write())
    objects.reads = 0
    stored = len(objects.stored)
    trees.put(b"d7/y.md", blob(99))
    trees.write()
    assert objects.reads == 1
    assert len(objects.stored) == stored + 2


def test_the_last_file_takes_its_folders_with_it(trees):
    trees.put(b"keep.md", blob(1))
    before = trees.write()
    trees.put(b"a/b/c.md", blob(2))
    trees.write()
    assert trees.remove(b"a/b/c.md")
    assert trees.write() == before


def test_the_empty_tree_is_the_well_known_one(trees):
    trees.put(b"a/b.md", blob(1))
    trees.write()
    trees.remove(b"a/b.md")
    assert trees.write().hex() == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_a_submodule_is_not_entered(trees):
    trees.put(b"mod", TreeEntry(SUBMODULE, b"\1" * 20))
    with pytest.raises(CannotDescend):
        trees.put(b"mod/x.md", blob(1))
    with pytest.raises(CannotDescend):
        trees.get(b"mod/x.md")


def test_a_malformed_tree_is_refused(trees, objects):
    oid = objects.write(b"100644 x\0short")
    with pytest.raises(ValueError, match="malformed"):
        trees.load(oid)


def test_folders_have_entries_too(trees):
    trees.put(b"a/b.md", blob(1))
    trees.write()
    entry = trees.get(b"a")
    assert entry is not None
    assert entry.mode == DIRECTORY
    assert trees.get(b"a/b.md/c") is None
    assert trees.get(b"q/w") is None
