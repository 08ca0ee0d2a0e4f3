"""HEAD and the snapshot tags of real repositories."""

import pytest

from maadd_worker.history.git_dir import locate
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.refs import create_tag, delete_tag, list_tags, read_head
from maadd_worker.history.snapshot import snapshot_name
from maadd_worker.history.store import Person

ENGINE = Person("maadb-engine", "engine@maadb.local")
MOMENT = 1_927_857_906  # 2031-02-03T04:05:06Z


@pytest.fixture
def git_dir(project):
    return locate(str(project.root))


def test_head_on_a_branch_detached_and_unborn(project, git_dir, bare_project):
    head = read_head(git_dir)
    assert head is not None
    assert (head.sha, head.branch, head.message) == (project.head(), "main", "setup")
    project.git("checkout", "-q", "--detach")
    assert read_head(git_dir).branch is None
    project.git("checkout", "-q", "--orphan", "empty")
    assert read_head(git_dir) is None


def test_a_tag_is_annotated_and_comes_back_in_the_list(project, git_dir):
    message = "first line\n\n# not a comment\nmore"
    assert create_tag(git_dir, "maad-snapshot-a", project.head(), message, ENGINE, MOMENT)
    [tag] = list_tags(git_dir)
    assert (tag.name, tag.sha) == ("maad-snapshot-a", project.head())
    assert (tag.message, tag.created_at) == ("first line", MOMENT)
    contents = project.git("tag", "--list", "--format=%(contents)")
    assert contents.strip() == message


def test_the_list_is_newest_first_and_of_snapshots_only(project, git_dir):
    head = project.head()
    for name, age in (("b", 30), ("a", 10), ("c", 20)):
        create_tag(git_dir, f"maad-snapshot-{name}", head, name, ENGINE, MOMENT - age)
    project.git("tag", "v1.0")
    project.git("tag", "maad-snapshot-light")
    assert [tag.name for tag in list_tags(git_dir)] == [
        "maad-snapshot-a",
        "maad-snapshot-c",
        "maad-snapshot-b",
        "maad-snapshot-light",
    ]
    assert {tag.sha for tag in list_tags(git_dir)} == {head}


def test_a_taken_name(project, git_dir):
    first = project.head()
    create_tag(git_dir, "maad-snapshot-a", first, "a", ENGINE, MOMENT)
    assert create_tag(git_dir, "maad-snapshot-a", first, "again", ENGINE, MOMENT) is False
    project.person_commits("x.md")
    with pytest.raises(GitFailure) as failure:
        create_tag(git_dir, "maad-snapshot-a", project.head(), "a", ENGINE, MOMENT)
    assert (failure.value.code, failure.value.reason) == ("GIT_TAG_FAILED", "tag-exists")


@pytest.mark.parametrize("name", ["maad-snapshot-*", "maad-snapshot-a~0", "maad-snapshot-x"])
def test_only_a_tag_of_exactly_that_name_is_deleted(project, git_dir, name):
    create_tag(git_dir, "maad-snapshot-a", project.head(), "a", ENGINE, MOMENT)
    assert delete_tag(git_dir, name) is False
    assert delete_tag(git_dir, "maad-snapshot-a") is True
    assert list_tags(git_dir) == []


def test_tags_in_a_sha_256_repository(bare_project):
    bare_project.git("init", "-q", "--object-format=sha256")
    bare_project.person_commits("a.md")
    git_dir = locate(str(bare_project.root))
    create_tag(git_dir, "maad-snapshot-a", bare_project.head(), "a", ENGINE, MOMENT)
    [tag] = list_tags(git_dir)
    assert tag.sha == bare_project.head()
    assert len(tag.sha) == 64


def test_the_name_of_an_automatic_tag():
    assert snapshot_name(MOMENT * 1000 + 7) == "maad-snapshot-2031-02-03-04-05-06-007"
