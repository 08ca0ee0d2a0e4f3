import os
import subprocess
import threading

import pytest

from maadd_worker.history import branch_move, libgit2_store
from maadd_worker.history.branch_move import reclaim_refs
from maadd_worker.history.git_dir import locate
from maadd_worker.history.index_file import IndexFile
from maadd_worker.history.libgit2_store import Libgit2Store
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.store import Change, Person


@pytest.fixture
def store(project):
    store = project.store()
    assert isinstance(store, Libgit2Store)
    yield store
    store.settle(force=True)
    store.close()


def test_a_commit_holds_its_file_and_nothing_else(project, store, change, commit):
    project.write("vendors/a.md", "one\n")
    project.write("vendors/other.md")
    [done] = commit(store, change("vendors/a.md", message="maad:create a [v] — A\n\nrole: w\n"))
    assert done.sha == project.head()
    assert project.committed("vendors/a.md") == "one\n"
    assert project.git("show", "--name-status", "--format=", "HEAD") == "A\tvendors/a.md\n"
    assert project.git("log", "-1", "--format=%B") == "maad:create a [v] — A\n\nrole: w\n\n"
    assert project.git("log", "-1", "--format=%an %ae|%cn %ce") == (
        "maadb-engine engine@maadb.local|maadb-engine engine@maadb.local\n"
    )
    assert project.status() == "?? vendors/other.md\n"
    (project.root / "vendors/other.md").unlink()
    project.assert_sound()


def test_the_author_may_be_somebody_else(project, store, commit):
    project.write("a.md")
    person = Person("agent-7", "engine@maadb.local")
    commit(store, Change("m\n", person, Person("maadb-engine", "e@m.local"), ("a.md",), {}))
    assert project.git("log", "-1", "--format=%an|%cn") == "agent-7|maadb-engine\n"


def test_create_change_and_remove(project, store, change, commit):
    project.write("v/a.md", "1\n")
    commit(store, change("v/a.md"))
    project.write("v/a.md", "2\n")
    commit(store, change("v/a.md"))
    os.rename(project.root / "v/a.md", project.root / "v/_deleted_a.md")
    commit(store, change("v/_deleted_a.md", "v/a.md"))
    assert project.git("ls-tree", "-r", "--name-only", "HEAD", "v") == "v/_deleted_a.md\n"
    (project.root / "v/_deleted_a.md").unlink()
    commit(store, change("v/_deleted_a.md"))
    assert project.git("ls-tree", "-r", "--name-only", "HEAD", "v") == ""
    assert len(project.subjects()) == 6
    project.assert_sound()


def test_the_same_bytes_make_no_commit(project, store, change, commit):
    head = project.head()
    [done] = commit(store, change("README.md"))
    assert (done.sha, done.failure) == (None, None)
    assert project.head() == head


def test_a_path_that_is_neither_on_disk_nor_tracked_is_left_out(project, store, change, commit):
    head = project.head()
    [done] = commit(store, change("gone.md", "no/where.md"))
    assert done.sha is None
    assert project.head() == head
    project.write("a.md")
    [done] = commit(store, change("gone.md", "a.md"))
    assert done.sha == project.head()
    project.assert_sound()


def test_a_group_makes_one_commit_for_each_change_in_order(project, store, change, commit):
    for name in "abc":
        project.write(f"v/{name}.md", name)
    changes = [change(f"v/{name}.md", message=f"maad:create {name} [v] — n\n") for name in "abc"]
    done = commit(store, *changes, change("v/a.md"))
    shas = [result.sha for result in done]
    assert shas[3] is None
    assert project.git("rev-list", "--reverse", "HEAD~3..HEAD").split() == shas[:3]
    assert project.subjects()[-3:] == [f"maad:create {name} [v] — n" for name in "abc"]
    project.assert_sound()


def test_given_contents_are_committed_whatever_the_disk_says(project, store, change, commit):
    project.write("a.md", "edited by hand\n")
    commit(store, change("a.md", contents={"a.md": b"published\n"}))
    assert project.committed("a.md") == "published\n"
    assert (project.root / "a.md").read_text() == "edited by hand\n"
    assert project.status() == " M a.md\n"


def test_an_edit_of_the_same_length_is_not_hidden_by_the_index(project, store, change):
    project.write("a.md", "aaaa\n")
    store.prepare(patient=False)
    store.commit([change("a.md", contents={"a.md": b"aaaa\n"})], timeout_s=20)
    project.write("a.md", "bbbb\n")
    store.settle(force=True)
    assert project.status() == " M a.md\n"


def test_created_and_removed_within_one_group(project, store, change, commit):
    done = commit(
        store,
        change("v/a.md", contents={"v/a.md": b"x\n"}),
        change("v/a.md", contents={"v/a.md": None}),
    )
    assert all(result.sha for result in done)
    project.assert_sound()


def test_an_unborn_branch_gets_its_first_commit(bare_project, change, commit):
    bare_project.git("init", "-q", "-b", "trunk")
    store = bare_project.store()
    bare_project.write("a/b.md")
    bare_project.write("c.md")
    done = commit(store, change("a/b.md"), change("c.md"))
    store.close()
    assert bare_project.git("rev-list", "trunk").split() == [done[1].sha, done[0].sha]
    bare_project.assert_sound()


def test_nothing_to_commit_on_an_unborn_branch(bare_project, change, commit):
    bare_project.git("init", "-q")
    store = bare_project.store()
    [done] = commit(store, change("a.md"))
    store.close()
    assert (done.sha, done.failure) == (None, None)


def test_a_detached_head_moves_and_no_branch_does(project, store, change, commit):
    project.git("checkout", "-q", "--detach")
    main = project.git("rev-parse", "main")
    project.write("a.md")
    [done] = commit(store, change("a.md"))
    assert project.head() == done.sha
    assert project.git("rev-parse", "main") == main
    assert project.git("symbolic-ref", "-q", "HEAD", check=False) == ""
    project.assert_sound()


@pytest.mark.parametrize("kind", ["worktree", "submodule"])
def test_a_git_file_instead_of_a_folder(project, tmp_path, change, commit, kind):
    if kind == "worktree":
        project.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
        inner = type(project)(tmp_path / "tree")
    else:
        project.git("-c", "protocol.file.allow=always", "clone", "-q", ".", str(tmp_path / "super"))
        outer = type(project)(tmp_path / "super")
        outer.git(
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            str(project.root),
            "mod",
        )
        inner = type(project)(tmp_path / "super" / "mod")
    assert (inner.root / ".git").is_file()
    store = inner.store()
    inner.write("v/a.md")
    [done] = commit(store, change("v/a.md"))
    store.close()
    assert inner.head() == done.sha
    inner.assert_sound()


def test_a_person_commits_in_between(project, store, change, commit):
    project.write("v/a.md", "1\n")
    commit(store, change("v/a.md"))
    project.person_commits("v/b.md", "person\n")
    project.write("v/c.md", "2\n")
    [done] = commit(store, change("v/c.md"))
    assert project.head() == done.sha
    assert project.committed("v/b.md") == "person\n"
    project.git("reset", "-q", "--hard", "HEAD~2")
    project.write("v/d.md")
    commit(store, change("v/d.md"))
    assert project.git("ls-tree", "--name-only", "HEAD", "v/") == "v/a.md\nv/d.md\n"
    project.assert_sound()


def test_staged_and_unstaged_changes_of_a_person_stay(project, store, change, commit):
    project.write("staged.md", "staged\n")
    project.git("add", "staged.md")
    project.write("README.md", "unstaged\n")
    project.git("rm", "-q", "--cached", ".gitignore")
    project.write("v/a.md")
    commit(store, change("v/a.md"))
    assert project.status() == "D  .gitignore\n M README.md\nA  staged.md\n?? .gitignore\n"
    project.git("commit", "-q", "-m", "by hand")
    assert project.git("show", "--name-status", "--format=", "HEAD") == (
        "D\t.gitignore\nA\tstaged.md\n"
    )
    assert project.committed("v/a.md") == "text\n"


def test_a_person_cannot_commit_past_a_record(project, store, change):
    """The lock is held from before the branch moves until the index has the record."""
    project.write("v/a.md")
    project.write("theirs.md")
    store.prepare(patient=False)
    store.commit([change("v/a.md")], timeout_s=20)
    with pytest.raises(AssertionError, match=r"index\.lock"):
        project.git("add", "theirs.md")
    store.settle(force=True)
    project.person_commits("theirs.md")
    assert project.committed("v/a.md") == "text\n"
    project.assert_sound()


def test_the_lock_is_given_up_with_each_group(project, store, change):
    for name in ("a.md", "b.md"):
        project.write(name)
        store.prepare(patient=False)
        assert not project.lock.exists()
        store.commit([change(name)], timeout_s=20)
        assert project.lock.exists()
        wait = store.settle()
        while wait is not None:
            assert 0 < wait <= 0.25
            threading.Event().wait(wait)
            wait = store.settle()
        assert not project.lock.exists()
    project.assert_sound()


def test_a_slow_index_waits_for_more_groups_but_not_for_ever(project, store, change, monkeypatch):
    clock = [100.0]
    update = IndexFile.update

    def slow_update(self, entries):
        clock[0] += 0.5
        update(self, entries)

    monkeypatch.setattr(IndexFile, "update", slow_update)
    monkeypatch.setattr("maadd_worker.history.libgit2_store.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("maadd_worker.history.index_lock.time.monotonic", lambda: clock[0])
    waits = []
    for number in range(3):
        project.write(f"{number}.md")
        store.prepare(patient=False)
        store.commit([change(f"{number}.md")], timeout_s=20)
        waits.append(store.settle())
        clock[0] += 0.2
    assert waits == [None, pytest.approx(0.25), pytest.approx(0.05)]
    assert store.settle() is None
    project.assert_sound()


def test_whoever_has_just_staged_something_may_commit_it_first(
    project, store, change, commit, monkeypatch
):
    """A commit by hand fails when the branch moves under it."""
    project.write("a.md")
    commit(store, change("a.md"))
    project.write("theirs.md")
    project.git("add", "theirs.md")
    looks = []

    def person_commits(seconds):
        looks.append(seconds)
        project.git("commit", "-q", "-m", "by hand")

    monkeypatch.setattr("maadd_worker.history.libgit2_store.time.sleep", person_commits)
    project.write("b.md")
    commit(store, change("b.md"))
    assert len(looks) == 1
    assert project.subjects()[-2] == "by hand"
    project.assert_sound()


def test_staging_without_a_commit_delays_us_only_for_a_moment(project, store, change, commit):
    project.write("a.md")
    commit(store, change("a.md"))
    project.write("theirs.md")
    project.git("add", "theirs.md")
    project.write("b.md")
    [done] = commit(store, change("b.md"))
    assert project.head() == done.sha
    assert project.status() == "A  theirs.md\n"


def test_a_branch_moved_by_somebody_else_is_followed(project, store, change, commit):
    """Plumbing that needs no index lock moves the branch between two commits of a group."""
    project.write("a.md")
    store.prepare(patient=False)
    store.commit([change("a.md")], timeout_s=20)
    moved = project.git("commit-tree", "-p", "HEAD", "-m", "moved", "HEAD^{tree}").strip()
    project.git("update-ref", "refs/heads/main", moved)
    project.write("b.md")
    [done] = store.commit([change("b.md")], timeout_s=20)
    store.settle(force=True)
    assert project.git("rev-parse", "HEAD^").strip() == moved
    assert project.head() == done.sha
    project.assert_sound()


def test_a_move_in_the_very_moment_is_noticed(project, store, change, monkeypatch):
    move = Libgit2Store._move
    others: list[str] = []

    def interfere(self, *arguments):
        if not others:
            others.append(
                project.git("commit-tree", "-p", "HEAD", "-m", "other", "HEAD^{tree}").strip()
            )
            project.git("update-ref", "refs/heads/main", others[0])
        return move(self, *arguments)

    monkeypatch.setattr(Libgit2Store, "_move", interfere)
    project.write("a.md")
    store.prepare(patient=False)
    [done] = store.commit([change("a.md")], timeout_s=20)
    store.settle(force=True)
    assert project.git("rev-parse", "HEAD^").strip() == others[0]
    assert project.head() == done.sha
    project.assert_sound()


@pytest.mark.parametrize("step", ["git.move", "git.ref.locked", "git.ref.logged", "git.moved"])
@pytest.mark.parametrize("to", ["branch", "commit"])
def test_a_commit_is_on_the_branch_that_somebody_switches_to_meanwhile(
    project, store, change, commit, monkeypatch, step, to
):
    """`git checkout -b` reads the commit, makes the branch there, and names it in HEAD last."""
    project.write("a.md")
    commit(store, change("a.md"))
    before = project.head()
    project.git("branch", "fresh", before)
    switched: list[str] = []

    def switch(name: str) -> None:
        if name == step and not switched:
            switched.append(name)
            if to == "branch":
                project.git("symbolic-ref", "HEAD", "refs/heads/fresh")
            else:
                (project.root / ".git/HEAD").write_text(f"{before}\n")

    monkeypatch.setattr(libgit2_store, "reach", switch)
    monkeypatch.setattr(branch_move, "reach", switch)
    project.write("b.md")
    [done] = commit(store, change("b.md"))
    assert switched
    assert project.head() == done.sha
    assert project.git("rev-parse", "HEAD^").strip() == before
    if to == "branch":
        assert project.git("rev-parse", "fresh").strip() == done.sha
    project.assert_sound()


@pytest.mark.parametrize("then", ["commit", "recheck"])
def test_commits_made_just_before_a_switch_ends_are_brought_along(
    project, store, change, commit, then
):
    before = project.head()
    project.git("branch", "fresh")
    for name in ("a.md", "b.md"):
        project.write(name)
        commit(store, change(name))
    made = project.head()
    project.git("symbolic-ref", "HEAD", "refs/heads/fresh")
    assert project.head() == before
    if then == "commit":
        project.write("c.md")
        commit(store, change("c.md"))
        assert project.git("rev-parse", "HEAD^").strip() == made
    else:
        assert store.recheck_index() is True
        assert project.head() == made
    assert project.git("rev-parse", "main").strip() == made
    project.assert_sound()


def test_an_older_commit_that_somebody_checks_out_stays_what_it_is(project, store, change, commit):
    before = project.head()
    project.write("a.md")
    commit(store, change("a.md"))
    project.git("checkout", "-q", "-b", "older", before)
    assert store.recheck_index() is True
    assert project.head() == before
    project.write("b.md")
    commit(store, change("b.md"))
    assert project.git("rev-parse", "HEAD^").strip() == before
    project.assert_sound()


def test_a_locked_branch_is_reported_and_later_free(project, store, change, commit):
    lock = project.root / ".git/refs/heads/main.lock"
    lock.touch()
    project.write("a.md")
    for _ in range(2):
        with pytest.raises(GitFailure) as failure:
            commit(store, change("a.md"))
        path = ".git/refs/heads/main.lock"
        assert failure.value.details == {"reason": "ref-lock", "path": path}
        assert str(project.root) not in failure.value.message
    lock.unlink()
    [done] = commit(store, change("a.md"))
    assert done.sha == project.head()
    project.assert_sound()


@pytest.mark.parametrize("operation", ["merge", "rebase", "cherry-pick"])
def test_an_unfinished_operation_of_a_person_is_waited_for(
    project, store, change, commit, operation
):
    project.git("checkout", "-q", "-b", "side")
    project.person_commits("README.md", "side\n")
    project.git("checkout", "-q", "main")
    project.person_commits("README.md", "main\n")
    project.git(operation, "side", check=False)
    project.write("v/a.md")
    with pytest.raises(GitFailure) as failure:
        store.prepare(patient=True)
    assert failure.value.details == {"reason": operation}
    assert operation in failure.value.message
    assert not project.lock.exists()
    project.git(operation, "--abort")
    commit(store, change("v/a.md"))
    project.assert_sound()


def test_ignored_and_linked_paths_are_left_out_and_named(project, store, change, commit):
    project.write(".gitignore", "_backend/\nsecret*\n")
    commit(store, change(".gitignore"))
    project.write("real/a.md")
    (project.root / "linked").symlink_to("real")
    project.write("secret.md")
    [done] = commit(store, change("secret.md", "linked/a.md", "real/a.md"))
    assert dict(done.skipped) == {
        "secret.md": "it is ignored by .gitignore",
        "linked/a.md": "it lies beyond a symbolic link",
    }
    assert project.git("ls-tree", "-r", "--name-only", "HEAD", "real") == "real/a.md\n"
    assert project.status() == "?? linked\n"


def test_an_ignored_path_that_is_tracked_goes_on_being_committed(project, store, change, commit):
    project.write("_backend/kept.md", "1\n")
    project.git("add", "-f", "_backend/kept.md")
    project.git("commit", "-q", "-m", "kept")
    project.write("_backend/kept.md", "2\n")
    commit(store, change("_backend/kept.md"))
    assert project.committed("_backend/kept.md") == "2\n"


def test_a_submodule_is_not_written_into(project, store, change, commit, tmp_path):
    project.git("clone", "-q", str(project.root), str(tmp_path / "inner"))
    project.git(
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(tmp_path / "inner"),
        "mod",
    )
    project.git("commit", "-q", "-m", "module")
    project.write("mod/a.md")
    project.git("config", "maad.hooks", "true")
    for each in (store, project.store()):
        [done] = commit(each, change("mod/a.md"))
        assert done.sha is None
        assert done.failure is None
        assert dict(done.skipped) == {"mod/a.md": "it lies in the submodule mod"}


@pytest.mark.parametrize("path", ["../x.md", "/etc/x", "a/../b", ".git/config", "a//b", ""])
def test_paths_outside_are_refused_and_others_go_on(project, store, change, commit, path):
    project.write("ok.md")
    bad, good = commit(store, change(path), change("ok.md"))
    assert bad.failure is not None
    assert bad.failure.code == "GIT_ADD_FAILED"
    assert good.sha == project.head()
    project.assert_sound()


def test_an_unreadable_thing_fails_alone(project, store, change, commit):
    (project.root / "folder.md").mkdir()
    project.write("ok.md")
    bad, good = commit(store, change("folder.md"), change("ok.md"))
    assert bad.failure is not None
    assert bad.failure.message == "cannot add folder.md: not a regular file"
    assert good.sha == project.head()


def test_modes_and_links_are_recorded_as_git_does(project, store, change, commit):
    project.write("run.md")
    (project.root / "run.md").chmod(0o755)
    (project.root / "link.md").symlink_to("run.md")
    commit(store, change("run.md", "link.md"))
    modes = project.git("ls-tree", "HEAD", "run.md", "link.md").split("\n")
    assert [line[:6] for line in modes if line] == ["120000", "100755"]
    project.assert_sound()


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ("*.md text\n", b"a\r\nb\r\n"),
        ("*.md text=auto eol=lf\n", b"a\r\nb\r\n"),
        ("*.md filter=upper\n", b"abc\n"),
        ("*.md ident\n", b"$Id: something$\n"),
        ("*.md -text\n", b"a\r\nb\r\n"),
        ("*.txt text\n", b"a\r\nb\r\n"),
    ],
)
def test_attributes_are_respected(project, store, change, commit, attributes, text):
    """The blob is the one `git add` would make."""
    project.git("config", "filter.upper.clean", "tr a-z A-Z")
    project.git("config", "filter.upper.smudge", "tr A-Z a-z")
    project.write(".gitattributes", attributes)
    commit(store, change(".gitattributes"))
    (project.root / "v").mkdir()
    (project.root / "v/a.md").write_bytes(text)
    commit(store, change("v/a.md", contents={"v/a.md": text}))
    expected = project.git("hash-object", "--path", "v/a.md", "v/a.md")
    assert project.git("rev-parse", "HEAD:v/a.md") == expected
    assert project.git("status", "--porcelain", "v") == ""


def test_autocrlf_switched_on_later_is_respected(project, store, change, commit):
    (project.root / "a.md").write_bytes(b"a\r\n")
    commit(store, change("a.md"))
    assert project.git("cat-file", "-s", "HEAD:a.md") == "3\n"
    project.git("config", "core.autocrlf", "input")
    (project.root / "b.md").write_bytes(b"b\r\n")
    commit(store, change("b.md"))
    assert project.git("cat-file", "-s", "HEAD:b.md") == "2\n"


@pytest.mark.parametrize("level", ["0", "1", "9"])
def test_every_compression_level_is_readable(project, change, commit, level):
    project.git("config", "core.looseCompression", level)
    store = project.store()
    for number in range(300):
        project.write(f"flat/{number}.md", str(number))
    commit(store, change(*(f"flat/{number}.md" for number in range(300))))
    store.close()
    project.assert_sound()


def test_objects_are_synced_where_the_repository_asks(project, change, commit, tmp_path):
    project.git("config", "core.fsync", "loose-object")
    project.write("v/a.md")
    store = project.store()
    commit(store, change("v/a.md"))
    store.close()
    project.assert_sound()


def test_borrowed_objects_are_found(project, change, commit, tmp_path):
    project.git("clone", "-q", "--shared", str(project.root), str(tmp_path / "borrower"))
    borrower = type(project)(tmp_path / "borrower")
    borrower.git("config", "core.fsyncObjectFiles", "true")
    store = borrower.store()
    borrower.write("a.md")
    [done] = commit(store, change("a.md"))
    store.close()
    assert borrower.head() == done.sha
    borrower.assert_sound()


def test_packed_repositories(project, store, change, commit):
    project.write("v/a.md")
    commit(store, change("v/a.md"))
    project.git("gc", "-q", "--prune=now")
    project.write("v/b.md")
    commit(store, change("v/b.md"))
    project.git("pack-refs", "--all")
    project.git("repack", "-q", "-a", "-d")
    project.write("v/c.md")
    commit(store, change("v/c.md"))
    project.assert_sound()


def test_the_reflog_tells_what_happened(project, store, change, commit):
    project.write("a.md")
    commit(store, change("a.md", message="maad:create a [v] — A\n"))
    assert project.git("log", "-g", "-1", "--format=%gs|%gn") == (
        "commit: maad:create a [v] — A|maadb-engine\n"
    )


def test_a_missing_index_is_made_from_the_commit(project, store, change, commit):
    (project.root / ".git/index").unlink()
    project.write("v/a.md")
    commit(store, change("v/a.md"))
    project.assert_sound()


@pytest.mark.parametrize(
    "command",
    [
        ("update-index", "--index-version", "4"),
        ("update-index", "--split-index"),
        ("update-index", "--force-untracked-cache"),
        ("sparse-checkout", "set", "--sparse-index", "v"),
    ],
)
def test_unusual_index_forms_stay_what_they_are(project, store, change, commit, command):
    project.person_commits("other/deep/x.md")
    project.person_commits("v/x.md")
    project.git(*command)
    project.write("staged.md")
    project.git("add", "staged.md")
    project.git("status")
    project.write("v/a.md")
    commit(store, change("v/a.md"))
    (project.root / "v/a.md").unlink()
    project.write("v/b.md")
    commit(store, change("v/a.md", "v/b.md"))
    assert project.status() == "A  staged.md\n"
    assert project.git("ls-files", "v") == "v/b.md\nv/x.md\n"
    project.git("fsck", "--strict")


def test_a_damaged_index_is_reported_and_kept(project, store, change):
    index = project.root / ".git/index"
    index.write_bytes(b"DIRCgarbage")
    project.write("a.md")
    store.prepare(patient=False)
    store.commit([change("a.md")], timeout_s=20)
    with pytest.raises(GitFailure, match="index is damaged"):
        store.settle(force=True)
    assert index.read_bytes() == b"DIRCgarbage"
    assert not project.lock.exists()
    index.unlink()
    assert store.settle(force=True) is None
    project.assert_sound()


def test_an_index_that_a_commit_by_hand_put_back_is_mended(project, store, change, commit):
    """`git commit -- <paths>` reads the index before it locks it."""
    project.write("v/a.md", "1\n")
    project.write("v/b.md", "1\n")
    commit(store, change("v/a.md", "v/b.md"))
    index = project.root / ".git/index"
    before = index.read_bytes()
    project.write("v/a.md", "2\n")
    project.write("v/c.md")
    (project.root / "v/b.md").unlink()
    commit(store, change("v/a.md", "v/b.md", "v/c.md"))
    index.write_bytes(before)
    assert project.status() != ""
    assert store.recheck_index() is True
    project.assert_sound()


def test_what_a_person_does_to_the_index_later_stays(project, store, change, commit):
    project.write("v/a.md", "1\n")
    commit(store, change("v/a.md"))
    project.write("v/a.md", "2\n")
    commit(store, change("v/a.md"))
    project.write("v/a.md", "3\n")
    project.git("add", "v/a.md")
    assert store.recheck_index() is True
    assert project.status() == "M  v/a.md\n"


def written_later(project):
    """The index as if it had been written a second after ours."""
    index = project.root / ".git/index"
    now = index.stat().st_mtime + 1
    os.utime(index, (now, now))


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (("rm", "-q", "--cached", "v/new.md"), "D  v/new.md\n?? v/new.md\n"),
        (("reset", "-q", "HEAD~1", "--", "v/a.md"), "MM v/a.md\n"),
        (("restore", "--staged", "--source=HEAD~1", "v/a.md"), "MM v/a.md\n"),
    ],
)
def test_what_a_person_takes_out_of_the_index_stays_out(
    project, store, change, commit, command, state
):
    project.write("v/a.md", "1\n")
    commit(store, change("v/a.md"))
    project.git("commit", "-q", "--allow-empty", "-m", "the trees of the index are whole")
    project.write("v/a.md", "2\n")
    project.write("v/new.md")
    commit(store, change("v/a.md", "v/new.md"))
    project.git(*command)
    written_later(project)
    project.write("v/b.md")
    commit(store, change("v/b.md"))
    assert store.recheck_index() is True
    assert project.status() == state


def test_what_a_commit_by_hand_writes_over_is_mended_however_late(project, store, change, commit):
    """A commit leaves whole trees in the index; it may have read it long before it wrote."""
    project.write("v/a.md", "1\n")
    commit(store, change("v/a.md"))
    project.git("commit", "-q", "--allow-empty", "-m", "by hand")
    index = project.root / ".git/index"
    before = index.read_bytes()
    project.write("v/a.md", "2\n")
    project.write("v/new.md")
    commit(store, change("v/a.md", "v/new.md"))
    index.write_bytes(before)
    written_later(project)
    assert store.recheck_index() is True
    project.assert_sound()


@pytest.mark.parametrize("reused", [False, True])
def test_a_lock_of_a_branch_that_a_dead_worker_left_is_removed_and_no_other(project, reused):
    git_dir = locate(str(project.root))
    child = subprocess.Popen(["true"])
    child.wait()
    mark = f"{os.getppid()}.1" if reused else str(child.pid)
    proof = project.root / f".git/maadd-ref.{mark}"
    proof.write_text(f"{project.head()}\n")
    ours = project.root / ".git/refs/heads/main.lock"
    os.link(proof, ours)
    theirs = project.root / ".git/refs/heads/other.lock"
    theirs.write_text(ours.read_text())
    assert reclaim_refs(git_dir) is True
    assert not ours.exists()
    assert not proof.exists()
    assert theirs.exists()


def test_a_move_writes_the_reflogs_as_git_does(project, store, change, commit):
    project.write("a.md")
    [done] = commit(store, change("a.md"))
    for name in ("HEAD", "main"):
        assert project.git("reflog", "-1", "--format=%H %gs %gn", name).startswith(
            f"{done.sha} commit: "
        )
    project.git("config", "core.logAllRefUpdates", "false")
    (project.root / ".git/logs/refs/heads/main").unlink()
    project.write("b.md")
    commit(store, change("b.md"))
    assert not (project.root / ".git/logs/refs/heads/main").exists()
