"""A worker that is killed at each step of a commit, and what the next one finds."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from maadd_worker.disk.journal import JournalEntry
from maadd_worker.history import encode_request
from maadd_worker.history.lost_versions import past_of
from maadd_worker.markdown.frontmatter import content_hash

WRITER = """
import os, signal, sys
from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.disk.journal import Journal, JournalEntry
from maadd_worker.history import CommitRequest, HistoryController, encode_request
from maadd_worker.history import index_file, index_lock, libgit2_store
from maadd_worker.markdown.frontmatter import content_hash

root, step = sys.argv[1:]
when, _, name = step.partition(" ")

def die_at(holder, attribute, matches=lambda *a: True):
    original = getattr(holder, attribute)
    def replaced(*arguments, **options):
        hit = matches(*arguments)
        if hit and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if hit and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(holder, attribute, replaced)

if name == "lock":
    die_at(os, "link")
elif name == "tree":
    die_at(libgit2_store.ObjectWriter, "flush")
elif name == "move":
    die_at(libgit2_store.Libgit2Store, "_move")
elif name == "index":
    die_at(os, "replace", lambda source, target: target.endswith("/index"))
elif name == "unlock":
    die_at(os, "unlink", lambda path: str(path).endswith("/index.lock"))
elif name == "complete":
    die_at(Journal, "complete")

journal = Journal.open(root, fsync=False)
controller = HistoryController.open(
    root, HistorySettings("audit", "audit", "project"), WorkerSettings(), journal
)
requests = []
for number in range(3):
    path = f"vendors/{number}.md"
    request = CommitRequest("create", f"v{number}", "vendor", "", "n", (path,))
    journal.begin([JournalEntry(f"j{number}", "create", f"v{number}", "vendor", path, None, None,
                                None, content_hash(b"text"), "pending", "",
                                encode_request(request))])
    os.makedirs(os.path.join(root, "vendors"), exist_ok=True)
    with open(os.path.join(root, path), "w") as file:
        file.write("text")
    journal.mark([f"j{number}"], "indexed")
    requests.append(CommitRequest("create", f"v{number}", "vendor", "", "n", (path,),
                                  journal_ids=(f"j{number}",)))
controller.commit(requests)
controller.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""

STEPS = [
    f"{when} {name}"
    for name in ("lock", "tree", "move", "index", "unlock", "complete")
    for when in ("before", "after")
]
LOCK_LEFT = {"after lock", "before unlock"} | {
    f"{when} {name}" for name in ("move", "index") for when in ("before", "after")
}


@pytest.mark.parametrize("step", [*STEPS, "never"])
def test_a_killed_worker_loses_nothing_and_leaves_no_lock(project, step):
    project.write("staged.md")
    project.git("add", "staged.md")
    child = subprocess.run(
        [sys.executable, "-c", WRITER, str(project.root), step],
        check=False,
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert project.lock.exists() == (step in LOCK_LEFT)

    journal = project.journal()
    controller = project.controller("audit", journal)
    notes = controller.recover(journal.pending())
    assert ("index_lock_stale_removed" in notes) == (step in LOCK_LEFT)
    assert not any("failed" in note for note in notes)
    assert journal.pending() == []
    assert controller.close() is True
    journal.close()

    assert project.subjects()[-3:] == [f"maad:create v{n} [vendor] — n" for n in range(3)]
    assert len(project.subjects()) == 5
    assert project.status() == "A  staged.md\n"
    assert not list((project.root / ".git").glob("maadd-*"))
    assert not project.lock.exists()
    project.git("commit", "-q", "-m", "by hand")
    project.assert_sound()
    assert project.git("ls-tree", "--name-only", "HEAD", "vendors/").count("\n") == 3


@pytest.mark.parametrize("step", ["after move", "before index", "before unlock"])
def test_the_index_is_right_before_the_left_lock_is_given_up(project, step, monkeypatch):
    subprocess.run(
        [sys.executable, "-c", WRITER, str(project.root), step], check=False, capture_output=True
    )
    assert project.lock.exists()
    staged: list[str] = []
    unlink = os.unlink

    def watched(path, **options):
        if str(path) == str(project.lock):
            staged.append(project.git("diff", "--cached", "--name-status"))
        unlink(path, **options)

    journal = project.journal()
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", watched)
        controller = project.controller("audit", journal)
    assert staged == [""]
    # Whoever commits now, ahead of the recovery, takes nothing away.
    project.person_commits("mine.md")
    assert project.git("show", "--name-status", "--format=", "HEAD") == "A\tmine.md\n"
    controller.recover(journal.pending())
    assert controller.close() is True
    journal.close()
    project.assert_sound()


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_a_write_that_a_stale_index_took_out_of_head_is_committed_again(
    project, journal, begun, mode
):
    first = project.controller(mode, journal)
    kept, undone, edited = (begun(journal, name) for name in ("kept", "undone", "edited"))
    first.commit([kept, undone, edited])
    first.flush()
    entries = [
        # As if the process had died before the journal could forget them.
        msgspec.structs.replace(entry, boundary_sha=project.head())
        for entry in (_entry(kept), _entry(undone), _entry(edited))
    ]
    assert first.close() is True
    project.git("rm", "-q", "--cached", "vendors/undone.md", "vendors/edited.md")
    project.git("commit", "-q", "-m", "by hand")
    project.write("vendors/edited.md", "by hand\n")

    second = project.controller(mode, journal)
    notes = second.recover(entries)
    assert notes == [f"history_recovery_completed:{mode}"]
    assert second.pending_writes == 0
    assert second.close() is True
    assert project.committed("vendors/undone.md") == "text\n"
    assert project.status() == "?? vendors/edited.md\n"
    assert project.subjects()[-1] == "maad:create undone [vendor] — undone"


def test_writes_of_one_record_that_wait_for_a_start_are_all_named(project, journal, begun):
    first = project.controller("audit", journal)
    project.lock.touch()
    first.commit([begun(journal, "a", "1\n"), begun(journal, "b", "1\n")])
    first.commit([begun(journal, "a", "2\n", action="update")])
    assert first.close() is False
    project.lock.unlink()
    second = project.controller("audit", journal)
    assert second.recover(journal.pending()) == ["history_recovery_completed:audit"]
    assert second.close() is True
    assert journal.pending() == []
    assert project.subjects()[-2:] == [
        "maad:create b [vendor] — b",
        "maad:create a [vendor] batch:2 — Flushed 2 writes",
    ]
    past = past_of(str(project.root))("a", "vendors/a.md")
    assert past is not None
    assert past.version == 2
    project.assert_sound()


def _entry(request):
    [entry_id] = request.journal_ids
    return JournalEntry(
        entry_id,
        request.action,
        request.doc_id,
        request.doc_type,
        request.paths[0],
        None,
        None,
        None,
        content_hash(b"text\n"),
        "indexed",
        "",
        encode_request(request),
    )


def test_a_lock_that_a_person_took_after_the_crash_stays(project):
    subprocess.run(
        [sys.executable, "-c", WRITER, str(project.root), "after move"],
        check=False,
        capture_output=True,
    )
    project.lock.unlink()
    project.lock.write_bytes(b"")
    journal = project.journal()
    controller = project.controller("audit", journal)
    assert controller.recover(journal.pending()) == ["history_recovery_failed:GIT_COMMIT_FAILED"]
    assert project.lock.exists()
    project.lock.unlink()
    assert controller.flush().pending_writes == 0
    assert controller.close() is True
    assert journal.pending() == []
    journal.close()
    project.assert_sound()
