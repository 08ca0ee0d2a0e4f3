"""Mode `snapshot`: the commit of each boundary gets an annotated tag, whatever comes between."""

import pytest

from maadd.protocol.errors import MaadError

NEVER = {"history_fallback_delay_ms": 0}


def tags(project):
    return project.git("tag", "--list").split()


def history(controller):
    return controller.health()["history"]


def test_a_boundary_gets_an_annotated_tag_of_the_engine(project, journal, controller, begun):
    snapshot = controller("snapshot", **NEVER)
    snapshot.commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    report = snapshot.flush()
    [tag] = tags(project)
    assert tag.startswith("maad-snapshot-")
    assert len(tag) == len("maad-snapshot-2031-02-03-04-05-06-007")
    assert project.git("cat-file", "-t", tag) == "tag\n"
    assert project.git("rev-parse", f"{tag}^{{commit}}").strip() == report.sha
    assert project.git("show", f"{tag}:vendors/ven-a.md") == "text\n"
    assert project.git("tag", "--list", "--format=%(taggername)|%(taggeremail)") == (
        "maadb-engine|<engine@maadb.local>\n"
    )
    assert snapshot.flush().status == "noop"
    assert len(tags(project)) == 1
    project.assert_sound()


def test_boundaries_in_the_same_moment_have_tags_of_their_own(project, journal, controller, begun):
    snapshot = controller("snapshot", max_writes=1)
    snapshot.commit([begun(journal, f"ven-{number}") for number in range(4)])
    assert len(tags(project)) == 4


def test_a_boundary_without_a_commit_gets_no_tag(project, journal, controller, begun):
    snapshot = controller("snapshot", **NEVER)
    snapshot.commit([begun(journal, "ven-a"), begun(journal, "ven-a", None, action="delete")])
    assert snapshot.flush().status == "noop"
    assert tags(project) == []


def test_a_failed_tag_keeps_the_boundary_and_its_name(project, journal, controller, begun):
    snapshot = controller("snapshot", **NEVER)
    snapshot.commit([begun(journal, "ven-a")])
    in_the_way = project.root / ".git/refs/tags"
    in_the_way.rmdir()
    in_the_way.write_text("")
    with pytest.raises(MaadError) as failure:
        snapshot.flush()
    assert failure.value.code == "GIT_ERROR"
    assert failure.value.details is not None
    assert failure.value.details["historyCode"] == "GIT_TAG_FAILED"
    head = project.head()
    assert project.subjects()[-1] == "maad:create ven-a [vendor] — ven-a"
    [entry] = journal.pending()
    assert entry.boundary_sha == head
    assert history(snapshot)["pendingWrites"] == 1
    assert history(snapshot)["lastFlushError"]["code"] == "GIT_TAG_FAILED"
    snapshot.commit([begun(journal, "ven-b")])
    in_the_way.unlink()
    report = snapshot.flush()
    assert project.git("rev-parse", f"{entry.snapshot_tag}^{{commit}}").strip() == head
    assert report.sha == project.head() != head
    assert len(tags(project)) == 2
    assert journal.pending() == []
    project.assert_sound()


def test_a_tag_that_a_dead_process_owed_is_made_at_the_start(project, journal, controller, begun):
    snapshot = controller("snapshot", **NEVER)
    snapshot.commit([begun(journal, "ven-a")])
    in_the_way = project.root / ".git/refs/tags"
    in_the_way.rmdir()
    in_the_way.write_text("")
    with pytest.raises(MaadError):
        snapshot.flush()
    in_the_way.unlink()
    head = project.head()
    [entry] = journal.pending()
    later = controller("snapshot", **NEVER)
    assert later.recover(journal.pending()) == ["history_recovery_completed:snapshot"]
    assert tags(project) == [entry.snapshot_tag]
    assert project.head() == head
    assert journal.pending() == []


def test_a_commit_whose_process_died_before_it_was_noted_is_tagged(
    project, journal, controller, begun, monkeypatch
):
    snapshot = controller("snapshot", **NEVER)
    snapshot.commit([begun(journal, "ven-a"), begun(journal, "ven-b")])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("maadd_worker.disk.journal.Journal.set_boundary", die)
        with pytest.raises(KeyboardInterrupt):
            snapshot.flush()
    head = project.head()
    snapshot._committer._store.close()
    later = controller("snapshot", **NEVER)
    later.recover(journal.pending())
    [tag] = tags(project)
    assert project.git("rev-parse", f"{tag}^{{commit}}").strip() == project.head() == head
    assert journal.pending() == []


def test_a_tag_of_that_name_on_another_commit_is_an_error(
    project, journal, controller, begun, monkeypatch
):
    name = "maad-snapshot-2031-02-03-04-05-06-007"
    monkeypatch.setattr("maadd_worker.history.snapshot.SnapshotTags.next_name", lambda _: name)
    project.git("tag", name)
    snapshot = controller("snapshot", max_writes=1)
    [outcome] = snapshot.commit([begun(journal, "ven-a")])
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.details) == (
        "GIT_TAG_FAILED",
        {"reason": "tag-exists"},
    )
    project.git("tag", "--delete", name)
    assert snapshot.flush().sha == project.head()
    assert tags(project) == [name]


def test_tags_are_signed_only_if_the_repository_itself_asks(
    project, journal, controller, begun, tmp_path, monkeypatch
):
    signer = tmp_path / "signer"
    signer.write_text("#!/bin/sh\nexit 1\n")
    signer.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[tag]\n\tgpgsign = true\n[gpg]\n\tprogram = {signer}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    snapshot = controller("snapshot", max_writes=1)
    assert snapshot.commit([begun(journal, "ven-a")])[0].outcome == "committed"
    project.git("config", "tag.gpgsign", "true")
    [outcome] = snapshot.commit([begun(journal, "ven-b")])
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.details) == (
        "GIT_TAG_FAILED",
        {"reason": "signing"},
    )
    assert len(tags(project)) == 1
