"""What is kept of the writes that wait for a shared commit."""

from maadd_worker.history import deferred as deferred_module
from maadd_worker.history.deferred import DeferredWrites, joined
from maadd_worker.history.outcome import CommitRequest


def request(doc_id: str, *paths: str, **contents: bytes | None) -> CommitRequest:
    named = {path.replace("_", "."): data for path, data in contents.items()}
    return CommitRequest("update", doc_id, "v", "", doc_id, paths, contents=named)


def test_the_newest_content_of_each_path_is_kept():
    deferred = DeferredWrites()
    deferred.append(request("a", "a.md", a_md=b"1"))
    deferred.append(request("b", "b.md", "c.md", b_md=None, c_md=b"2"))
    deferred.append(request("a", "a.md", a_md=b"3"))
    combined = deferred.combined()
    assert combined.contents == {"a.md": b"3", "b.md": None, "c.md": b"2"}
    assert combined.paths == ("a.md", "b.md", "c.md")
    assert (combined.detail, deferred.count) == ("batch:3", 3)


def test_content_that_a_write_does_not_carry_is_read_from_the_disk():
    deferred = DeferredWrites()
    deferred.append(request("a", "a.md", a_md=b"1"))
    deferred.append(request("a", "a.md"))
    assert deferred.combined().contents == {}


def test_only_so_much_content_is_kept(monkeypatch):
    monkeypatch.setattr(deferred_module, "KEPT_BYTES", 10)
    deferred = DeferredWrites()
    deferred.append(request("a", "a.md", a_md=b"x" * 6))
    deferred.append(request("b", "b.md", b_md=b"x" * 6))
    assert set(deferred.combined().contents) == {"a.md"}
    deferred.append(request("a", "a.md", a_md=b"x"))
    deferred.append(request("b", "b.md", b_md=b"x" * 6))
    assert deferred.combined().contents == {"a.md": b"x", "b.md": b"x" * 6}


def test_nothing_is_left_after_a_boundary():
    deferred = DeferredWrites()
    deferred.append(request("a", "a.md", a_md=b"1"))
    deferred.clear()
    assert (deferred.count, list(deferred.requests)) == (0, [])


def test_writes_of_a_file_that_only_the_disk_knows_share_a_commit():
    def write(name: str, *paths: str, known: bool = False) -> CommitRequest:
        contents = dict.fromkeys(paths, b"x") if known else {}
        return CommitRequest("update", name, "v", "", name, paths, contents=contents)

    def groups(*requests: CommitRequest) -> list[list[str]]:
        return [[one.doc_id for one in group] for group in joined(requests)]

    assert groups(write("1", "a", known=True), write("2", "a", known=True)) == [["1"], ["2"]]
    assert groups(write("1", "a"), write("2", "b"), write("3", "a", known=True)) == [
        ["2"],
        ["1", "3"],
    ]
    assert groups(write("1", "a", known=True), write("2", "a"), write("3", "b")) == [
        ["1"],
        ["2"],
        ["3"],
    ]
    # A group has no content of its own any more: it takes the later writes of all its files.
    assert groups(
        write("1", "a"), write("2", "a", "b", known=True), write("3", "b", known=True)
    ) == [["1", "2", "3"]]
