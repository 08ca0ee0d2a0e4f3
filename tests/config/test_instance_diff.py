"""What a reload changes (spec 04 §3, step 3)."""

from __future__ import annotations

import pytest

from maadd.config.diff import InstanceDiff, diff_instances
from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role

FEED = HistorySettings("feed", None, "inferred")


def project(
    name: str,
    *,
    path: str | None = None,
    role: Role = Role.READER,
    description: str | None = None,
    history: HistorySettings = FEED,
) -> ProjectConfig:
    return ProjectConfig(name, path or f"/srv/{name}", role, description, history)


def instance(*projects: ProjectConfig, name: str = "i") -> Instance:
    by_name = {project.name: project for project in projects}
    return Instance(name, "file", "/etc/i.yaml", "/etc", by_name)


def test_an_identical_file_changes_nothing() -> None:
    same = instance(project("a"), project("b"))
    assert diff_instances(same, same) == InstanceDiff((), (), ())


def test_added_and_removed_projects() -> None:
    diff = diff_instances(
        instance(project("a"), project("b")), instance(project("c"), project("b"))
    )
    assert diff == InstanceDiff(added=("c",), removed=("a",), restarted=())


def test_description_name_and_order_are_accepted_silently() -> None:
    diff = diff_instances(
        instance(project("a"), project("b")),
        instance(project("b", description="new"), project("a"), name="other"),
    )
    assert diff == InstanceDiff((), (), ())


@pytest.mark.parametrize(
    "history",
    [
        HistorySettings("read", "read", "project"),
        HistorySettings("feed", None, "inferred", max_writes=5),
        HistorySettings("feed", None, "inferred", max_delay_ms=5),
    ],
)
def test_another_history_policy_restarts_that_project(history: HistorySettings) -> None:
    diff = diff_instances(
        instance(project("a"), project("b")), instance(project("a", history=history), project("b"))
    )
    assert diff == InstanceDiff((), (), ("a",))


def test_the_same_mode_from_another_source_restarts_nothing() -> None:
    explicit = project("a", history=HistorySettings("feed", "feed", "project"))
    assert diff_instances(instance(project("a")), instance(explicit)).restarted == ()


def test_a_moved_path_or_role_is_refused_with_every_project_named() -> None:
    old = instance(project("a"), project("b"), project("c"))
    new = instance(
        project("a", path="/elsewhere"), project("b", role=Role.ADMIN, path="/else"), project("d")
    )
    with pytest.raises(MaadError) as caught:
        diff_instances(old, new)
    assert caught.value.code == "INSTANCE_MUTATION_UNSUPPORTED"
    assert "a (path), b (path, role)" in caught.value.message
