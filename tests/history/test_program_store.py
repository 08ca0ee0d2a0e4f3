import errno
import os
import select
import stat
from pathlib import Path

import pygit2
import pytest

from maadd_worker.history import program_store
from maadd_worker.history.choice import choose_store
from maadd_worker.history.command import GitResult, run_git
from maadd_worker.history.git_dir import locate
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.program_store import ProgramStore


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def wait_for_end(pid: int) -> None:
    """Fails when the process is still alive after ten seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], 10)
    os.close(descriptor)
    assert ended


@pytest.fixture
def hooked(project):
    """A repository that asks for its hooks."""
    project.git("config", "maad.hooks", "true")
    return project


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("commit.gpgsign", "true", "signed"),
        ("maad.hooks", "yes", "hooks"),
        ("extensions.objectFormat", "sha256", "sha256"),
        ("extensions.refStorage", "reftable", "reftable"),
    ],
)
def test_the_repository_chooses_the_program(project, key, value, named):
    git_dir = locate(str(project.root))
    assert git_dir is not None
    assert choose_store(git_dir, None)[1] is None
    project.git("config", key, value)
    store, note = choose_store(git_dir, None)
    assert store.name == "program"
    assert note is not None
    assert named in note


def test_the_wishes_of_a_user_do_not_count(project, monkeypatch, tmp_path):
    settings = tmp_path / "gitconfig"
    settings.write_text("[commit]\n\tgpgsign = true\n[maad]\n\thooks = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    git_dir = locate(str(project.root))
    assert git_dir is not None
    assert choose_store(git_dir, None)[0].name == "libgit2"


def test_create_change_remove_and_noop(hooked, change, commit):
    store = hooked.store()
    hooked.write("v/a.md", "1\n")
    hooked.write("other.md")
    [done] = commit(store, change("v/a.md", message="maad:create a [v] — A\n\nrole: w\n"))
    assert done.sha == hooked.head()
    assert hooked.git("log", "-1", "--format=%B|%an|%ce") == (
        "maad:create a [v] — A\n\nrole: w\n|maadb-engine|engine@maadb.local\n"
    )
    hooked.write("v/a.md", "2\n")
    commit(store, change("v/a.md"))
    head = hooked.head()
    assert commit(store, change("v/a.md", "never/was.md"))[0].sha is None
    assert commit(store, change("never/was.md"))[0].sha is None
    assert hooked.head() == head
    os.rename(hooked.root / "v/a.md", hooked.root / "v/_deleted_a.md")
    commit(store, change("v/_deleted_a.md", "v/a.md"))
    assert hooked.git("ls-tree", "-r", "--name-only", "HEAD", "v") == "v/_deleted_a.md\n"
    assert hooked.status() == "?? other.md\n"


def test_sha_256_repositories(bare_project, change, commit):
    bare_project.git("init", "-q", "--object-format=sha256")
    store = bare_project.store()
    bare_project.write("a.md")
    bare_project.write("b.md")
    done = commit(store, change("a.md"), change("b.md"))
    assert len(done[1].sha) == 64
    assert bare_project.git("rev-list", "HEAD").split() == [done[1].sha, done[0].sha]
    bare_project.assert_sound()


def test_a_person_s_changes_stay(hooked, change, commit):
    store = hooked.store()
    hooked.write("staged.md", "staged\n")
    hooked.git("add", "staged.md")
    hooked.write("README.md", "unstaged\n")
    hooked.write("v/a.md")
    commit(store, change("v/a.md"))
    assert hooked.status() == " M README.md\nA  staged.md\n"


def test_hooks_run_and_may_rewrite_the_message(hooked, change, commit):
    script(hooked.root / ".git/hooks/commit-msg", 'echo "Seen-By: hook" >> "$1"')
    hooked.write("a.md")
    [done] = commit(hooked.store(), change("a.md"))
    assert "Seen-By: hook" in hooked.git("log", "-1", "--format=%B")
    assert done.sha == hooked.head()


@pytest.mark.parametrize(
    ("step", "answer", "code"),
    [
        (("add",), GitResult(128, b"", b"fatal: no"), "GIT_ADD_FAILED"),
        (("diff",), GitResult(129, b"", b"fatal: no"), "GIT_STATUS_FAILED"),
        (("commit",), GitResult(128, b"", b"fatal: no"), "GIT_COMMIT_FAILED"),
        (("rev-parse", "--verify"), GitResult(0, b"", b""), "GIT_COMMIT_EMPTY"),
    ],
)
def test_each_step_that_fails_has_its_code(hooked, change, monkeypatch, step, answer, code):
    def run(root, arguments, **options):
        if tuple(arguments[: len(step)]) == step:
            return answer
        return run_git(root, arguments, **options)

    monkeypatch.setattr("maadd_worker.history.program_store.run_git", run)
    hooked.write("a.md")
    store = hooked.store()
    [done] = store.commit([change("a.md")], timeout_s=20)
    assert done.failure is not None
    assert done.failure.code == code
    # What was not committed is not left in the index.
    assert hooked.status() == ("" if code == "GIT_COMMIT_EMPTY" else "?? a.md\n")


def test_without_the_wish_no_hook_runs(project, change, commit):
    project.git("config", "commit.gpgsign", "false")
    ran = project.root / ".git/ran"
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction"):
        script(project.root / ".git/hooks" / name, f"touch {ran}; exit 1")
    project.write("a.md")
    [done] = commit(project.store(), change("a.md"))
    assert done.sha == project.head()
    assert not ran.exists()


def test_a_refusing_hook_is_reported_and_the_index_left_as_found(hooked, change, commit):
    script(hooked.root / ".git/hooks/pre-commit", "echo not today >&2; exit 1")
    hooked.write("staged.md")
    hooked.git("add", "staged.md")
    hooked.write("v/a.md")
    hooked.write("README.md", "changed\n")
    [done] = commit(hooked.store(), change("v/a.md", "README.md"))
    assert done.failure is not None
    assert (done.failure.code, done.failure.details) == ("GIT_COMMIT_FAILED", {"reason": "hook"})
    assert "not today" in done.failure.message
    assert hooked.status() == " M README.md\nA  staged.md\n?? v/a.md\n"
    assert not hooked.lock.exists()


def test_a_commit_that_fails_leaves_what_a_person_committed_meanwhile(
    hooked, change, commit, monkeypatch
):
    hooked.person_commits("v/a.md", "1\n")
    (hooked.root / "v/a.md").rename(hooked.root / "v/b.md")
    hooked.write("v/ours.md")

    def interfere(name: str) -> None:
        if name == "git.program.commit":
            hooked.git("rm", "-q", "--cached", "v/ours.md")
            hooked.git("commit", "-q", "-a", "-m", "all by hand")
            raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(program_store, "reach", interfere)
        [done] = commit(hooked.store(), change("v/a.md", "v/b.md", "v/ours.md"))
    assert done.failure is not None
    assert hooked.git("ls-tree", "-r", "--name-only", "HEAD", "v") == "v/b.md\n"
    assert hooked.status() == "?? v/ours.md\n"


def test_a_hook_that_never_returns_is_stopped(hooked, change):
    pid_file = hooked.root / ".git/pid"
    script(hooked.root / ".git/hooks/pre-commit", f"echo $$ > {pid_file}; exec sleep 1000")
    hooked.write("a.md")
    store = hooked.store()
    store.prepare(patient=False)
    [done] = store.commit([change("a.md")], timeout_s=1.0)
    assert done.failure is not None
    assert done.failure.details == {"reason": "hook"}
    wait_for_end(int(pid_file.read_text()))
    assert not hooked.lock.exists()
    assert hooked.status() == "?? a.md\n"


def test_signing_that_fails_is_reported(project, change, commit, tmp_path):
    project.git("config", "commit.gpgsign", "true")
    project.git("config", "gpg.program", str(script(tmp_path / "gpg", "echo no key >&2; exit 2")))
    project.write("a.md")
    head = project.head()
    [done] = commit(project.store(), change("a.md"))
    assert done.failure is not None
    assert (done.failure.code, done.failure.details) == (
        "GIT_COMMIT_FAILED",
        {"reason": "signing"},
    )
    assert project.head() == head
    assert project.status() == "?? a.md\n"


def test_signing_that_never_returns_is_stopped(project, change, tmp_path):
    project.git("config", "commit.gpgsign", "true")
    project.git("config", "gpg.program", str(script(tmp_path / "gpg", "exec sleep 1000")))
    project.write("a.md")
    store = project.store()
    store.prepare(patient=False)
    [done] = store.commit([change("a.md")], timeout_s=1.0)
    assert done.failure is not None
    assert done.failure.details == {"reason": "signing"}
    assert not project.lock.exists()


def test_a_signed_commit(project, change, commit, tmp_path):
    signer = script(
        tmp_path / "gpg",
        "cat > /dev/null\n"
        'echo "[GNUPG:] SIG_CREATED " >&2\n'
        'echo "-----BEGIN PGP SIGNATURE-----"; echo; echo x; echo "-----END PGP SIGNATURE-----"',
    )
    project.git("config", "commit.gpgsign", "true")
    project.git("config", "gpg.program", str(signer))
    project.write("a.md")
    [done] = commit(project.store(), change("a.md"))
    assert done.failure is None
    assert "gpgsig" in project.git("cat-file", "commit", "HEAD")


def test_a_lock_of_somebody_else(hooked, change):
    hooked.lock.touch()
    hooked.write("a.md")
    store = hooked.store()
    assert store.lock_is_held()
    with pytest.raises(GitFailure) as failure:
        store.prepare(patient=False)
    assert failure.value.details is not None
    assert failure.value.details["reason"] == "index-lock"
    [done] = store.commit([change("a.md")], timeout_s=20)
    assert done.failure is not None
    assert done.failure.details is not None
    assert done.failure.details["path"] == ".git/index.lock"
    assert hooked.lock.exists()


def test_a_merge_of_a_person(hooked, change, commit):
    hooked.git("checkout", "-q", "-b", "side")
    hooked.person_commits("README.md", "side\n")
    hooked.git("checkout", "-q", "main")
    hooked.person_commits("README.md", "main\n")
    hooked.git("merge", "side", check=False)
    hooked.write("v/a.md")
    store = hooked.store()
    with pytest.raises(GitFailure) as failure:
        store.prepare(patient=True)
    assert failure.value.details == {"reason": "merge"}
    hooked.git("merge", "--abort")
    commit(store, change("v/a.md"))
    hooked.assert_sound()


def test_ignored_and_linked_paths_are_left_out_and_named(hooked, change, commit):
    hooked.write("real/a.md")
    (hooked.root / "linked").symlink_to("real")
    hooked.write("_backend/x.md")
    [done] = commit(hooked.store(), change("_backend/x.md", "linked/a.md", "real/a.md"))
    assert dict(done.skipped) == {
        "_backend/x.md": "it is ignored by .gitignore",
        "linked/a.md": "it lies beyond a symbolic link",
    }
    assert done.sha == hooked.head()


@pytest.mark.parametrize("name", ["program", "libgit2"])
def test_a_repository_of_another_user(project, change, monkeypatch, name):
    if name == "program":
        # Git's own switch for testing this without a second user.
        environment = "maadd_worker.history.program_store.child_environment"
        monkeypatch.setattr(
            environment, lambda *_: os.environ | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
        )
        project.git("config", "maad.hooks", "true")
        project.write("a.md")
        store = project.store()
        assert isinstance(store, ProgramStore)
        [done] = store.commit([change("a.md")], timeout_s=20)
        failure = done.failure
    else:
        message = "repository path '/x/project/' is not owned by current user"

        def refuse(*_):
            raise pygit2.GitError(message)

        monkeypatch.setattr("pygit2.Repository", refuse)
        with pytest.raises(GitFailure) as caught:
            project.store()
        failure = caught.value
    assert failure is not None
    assert failure.details == {"reason": "safe-directory"}
    assert "safe.directory" in failure.message


def test_after_a_crash_the_index_follows(hooked, change):
    hooked.write("a.md")
    hooked.git("add", "a.md")
    hooked.git("commit", "-q", "-m", "a")
    hooked.git("update-index", "--force-remove", "a.md")
    hooked.store().refresh_index(["a.md", "never.md"])
    hooked.assert_sound()
