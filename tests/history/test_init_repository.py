import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.history import init_repository

PATHS = [".gitignore", "_registry/object_types.yaml", "MAAD.md"]


@pytest.fixture
def scaffold(bare_project):
    for path in PATHS:
        bare_project.write(path, "_backend/\n" if path == ".gitignore" else "x\n")
    bare_project.write("_backend/maad.db")
    return bare_project


def test_a_new_project_is_one_commit_with_the_whole_scaffold(scaffold):
    sha = init_repository(str(scaffold.root), WorkerSettings(), PATHS)
    assert sha == scaffold.head()
    assert scaffold.subjects() == ["maad:init — Initialize MAAD project"]
    assert scaffold.git("log", "-1", "--format=%an <%ae> %cn") == (
        "maadb-engine <engine@maadb.local> maadb-engine\n"
    )
    assert scaffold.git("ls-files").split() == sorted(PATHS)
    assert scaffold.git("config", "core.looseCompression") == "0\n"
    scaffold.assert_sound()


def test_an_existing_repository_keeps_its_settings_and_history(scaffold):
    scaffold.git("init", "-q")
    scaffold.person_commits("mine.md")
    sha = init_repository(str(scaffold.root), WorkerSettings(), PATHS)
    assert sha == scaffold.head()
    assert len(scaffold.subjects()) == 2
    assert scaffold.git("config", "--get", "core.looseCompression", check=False) == ""
    scaffold.assert_sound()


def test_a_second_time_nothing_happens(scaffold):
    init_repository(str(scaffold.root), WorkerSettings(), PATHS)
    assert init_repository(str(scaffold.root), WorkerSettings(), PATHS) is None
    assert len(scaffold.subjects()) == 1


def test_a_parent_repository_does_not_count(scaffold):
    inner = scaffold.root / "inner"
    inner.mkdir()
    (inner / "a.md").write_text("x")
    scaffold.git("init", "-q")
    assert init_repository(str(inner), WorkerSettings(), ["a.md"]) is not None
    assert (inner / ".git").is_dir()


def test_a_held_lock_is_reported(scaffold):
    scaffold.git("init", "-q")
    scaffold.lock.touch()
    with pytest.raises(MaadError) as failure:
        init_repository(str(scaffold.root), WorkerSettings(), PATHS)
    assert failure.value.code == "GIT_ERROR"
    assert failure.value.details is not None
    assert failure.value.details["reason"] == "index-lock"
