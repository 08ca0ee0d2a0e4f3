"""Many new objects at once become one pack that Git itself can read."""

import hashlib
import subprocess
from collections.abc import Iterable

import pytest

from maadd_worker.history.object_writer import PACK_FROM, ObjectWriter
from maadd_worker.history.pack_file import encode_pack

SIZES = (0, 1, 15, 16, 17, 2_047, 2_048, 70_000, 300_000)


def name_of(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).digest()


def read(project, names: Iterable[bytes]) -> list[bytes]:
    """The contents of some objects, as Git gives them out."""
    done = subprocess.run(
        ["git", "cat-file", "--batch=%(objectsize)"],
        cwd=project.root,
        input=b"".join(b"%s\n" % name.hex().encode() for name in names),
        check=True,
        capture_output=True,
    )
    contents, rest = [], done.stdout
    while rest:
        size, _, rest = rest.partition(b"\n")
        contents.append(rest[: int(size)])
        rest = rest[int(size) + 1 :]
    return contents


def packs(project):
    return sorted((project.root / ".git/objects/pack").glob("*.pack"))


def loose(project):
    return list((project.root / ".git/objects").glob("[0-9a-f][0-9a-f]/*"))


@pytest.mark.parametrize("level", [0, 1, 9])
def test_git_reads_every_object_of_a_pack(project, level):
    blobs = [bytes(number % 251 for number in range(size)) for size in SIZES]
    tree = b"".join(b"100644 f%03d\0" % number + name_of(b"blob", blobs[0]) for number in range(90))
    objects = {name_of(b"blob", data): (b"blob", data) for data in blobs}
    objects[name_of(b"tree", tree)] = (b"tree", tree)
    pack = encode_pack(objects, level=level)
    folder = project.root / ".git/objects/pack"
    folder.mkdir(exist_ok=True)
    (folder / f"pack-{pack.name}.pack").write_bytes(pack.pack)
    (folder / f"pack-{pack.name}.idx").write_bytes(pack.index)
    project.git("verify-pack", str(folder / f"pack-{pack.name}.idx"))
    assert read(project, objects) == [data for _, data in objects.values()]
    project.assert_sound()


def writer(project):
    return ObjectWriter(str(project.root / ".git/objects"), level=0, fsync=True)


@pytest.mark.parametrize(("count", "expected"), [(PACK_FROM - 1, 0), (PACK_FROM, 1)])
def test_few_objects_are_loose_and_many_are_packed(project, count, expected):
    objects = writer(project)
    before = len(loose(project))
    names = [objects.write(b"blob", b"%d" % number) for number in range(count)]
    assert objects.write(b"blob", b"0") == names[0]
    objects.flush()
    assert len(packs(project)) == expected
    assert len(loose(project)) - before == (0 if expected else count)
    assert read(project, names) == [b"%d" % number for number in range(count)]
    objects.flush()
    assert len(packs(project)) == expected


def test_what_is_forgotten_is_never_written(project):
    objects = writer(project)
    before = loose(project)
    objects.write(b"blob", b"never")
    objects.forget()
    objects.flush()
    assert loose(project) == before


def test_a_large_commit_is_one_pack(project, change, commit):
    paths = [f"v/{number % 7}/{number}.md" for number in range(300)]
    for path in paths:
        project.write(path, f"text of {path}\n")
    store = project.store()
    before = len(loose(project))
    [done] = commit(store, change(*paths))
    assert done.sha == project.head()
    assert len(packs(project)) == 1
    assert len(loose(project)) - before == 1  # the commit itself
    assert project.committed("v/3/10.md") == "text of v/3/10.md\n"
    project.assert_sound()
    project.write(paths[0], "changed\n")
    [done] = commit(store, change(*paths))
    assert project.git("show", "--name-only", "--format=", "HEAD").split() == [paths[0]]
    project.assert_sound()
