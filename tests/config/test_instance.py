"""instance.yaml and single-project mode: each row of spec 04 §2."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from maadd.config.instance import Instance, load_instance, synthesize_instance
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role

STRICT = Settings()
LENIENT = Settings(config_lenient=True)


def load(folder: Path, text: str | bytes, settings: Settings = STRICT) -> Instance:
    file = folder / "instance.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_instance(str(file), settings)


def failures(folder: Path, text: str | bytes, settings: Settings = STRICT) -> list[MaadError]:
    with pytest.raises(MaadErrors) as caught:
        load(folder, text, settings)
    return caught.value.errors


def messages(folder: Path, text: str, settings: Settings = STRICT) -> list[str]:
    errors = failures(folder, text, settings)
    assert {error.code for error in errors} == {"INSTANCE_CONFIG_INVALID"}
    return [error.message for error in errors]


def entry(text: str) -> str:
    """An instance with one otherwise good entry."""
    return f"name: i\nprojects:\n  - {{name: a, path: a, {text}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_full_file(folder: Path) -> None:
    (folder / "permits" / ".git").mkdir(parents=True)
    (folder / "roads").mkdir()
    instance = load(
        folder,
        f"""\
name: field-office
projects:
  - name: permits
    path: ./permits
    role: writer
    description: Building permits
    history_mode: batch
    history_options: {{ max_writes: 25, max_delay_ms: 2000 }}
    external_edits: commit
  - name: roads_2
    path: {folder}/x/../roads
""",
    )
    assert instance.name == "field-office"
    assert instance.source == "file"
    assert instance.config_path == str(folder / "instance.yaml")
    assert instance.root == str(folder)
    assert instance.tokens_path == str(folder / "_auth" / "tokens.yaml")
    assert instance.warnings == ()
    permits, roads = instance.projects.values()
    assert permits.path == str(folder / "permits")
    assert permits.role is Role.WRITER
    assert permits.description == "Building permits"
    assert permits.history == HistorySettings("batch", "batch", "project", 25, 2000, "commit")
    assert permits.advisories == ()
    assert roads.path == str(folder / "roads")
    assert roads.role is Role.READER
    assert roads.description is None
    assert roads.history == HistorySettings("feed", None, "inferred")
    assert [advisory.code for advisory in roads.advisories] == ["HISTORY_MODE_INFERRED"]


def test_a_relative_path_starts_at_the_file_not_at_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "b")
    (folder / "instance.yaml").write_text(entry(""))
    instance = load_instance("../instance.yaml", STRICT)
    assert instance.projects["a"].path == str(folder / "a")
    assert instance.config_path == str(folder / "instance.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "---\n" + entry(""),
        "# about us\n---\n" + entry(""),
        "\ufeff" + entry(""),
        "---\n" + entry("") + "---\n\tanything: [ at all\n",
        entry("") + "---  \nname: other\n",
        entry("").replace("\n", "\r\n") + "---\r\nx\r\n",
    ],
)
def test_one_document_is_read_and_what_follows_it_is_not(folder: Path, text: str) -> None:
    assert load(folder, text).name == "i"


def test_an_absent_file(folder: Path) -> None:
    for path in (folder / "none.yaml", folder / "none" / "instance.yaml"):
        with pytest.raises(MaadErrors) as caught:
            load_instance(str(path), STRICT)
        assert [error.code for error in caught.value.errors] == ["INSTANCE_CONFIG_NOT_FOUND"]


def test_an_unreadable_file(folder: Path) -> None:
    with pytest.raises(MaadErrors) as caught:
        load_instance(str(folder / "a"), STRICT)
    assert [error.code for error in caught.value.errors] == ["FILE_READ_ERROR"]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (b"name: i\nprojects: [\n", 3, 1),
        (b"name: i\nname: j\nprojects: []\n", 2, 1),
        (b"name: i\nprojects:\n  - {name: a, name: b}\n", 3, 15),
        (b"name: caf\xe9\n", 1, 10),
    ],
)
def test_a_yaml_error_has_its_place(folder: Path, text: bytes, line: int, column: int) -> None:
    (error,) = failures(folder, text)
    assert error.code == "PARSE_ERROR"
    assert error.details == {"file": "instance.yaml", "line": line, "col": column}
    assert f"line {line}, column {column}" in error.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("projects: [{name: a, path: a}]", ["name: "]),
        ("name: ''\nprojects: [{name: a, path: a}]", ["name: "]),
        ("name: 7\nprojects: [{name: a, path: a}]", ["name: "]),
        ("name: i", ["projects: "]),
        ("name: i\nprojects: {a: b}", ["projects: "]),
        ("name: i\nprojects: []", ["projects: "]),
        ("", ["name: ", "projects: "]),
        ("- a", ["the file must be a mapping"]),
        ("name: i\nprojects: [a, {name: A, path: a}]", ["projects[0]: ", "projects[1].name: 'A'"]),
        ("name: i\nprojects: [{path: a}]", ["projects[0].name: nothing"]),
        ("name: i\nprojects: [{name: 7, path: a}]", ["projects[0].name: 7"]),
        ("name: i\nprojects: [{name: a}]", ["projects[0].path: "]),
        ("name: i\nprojects: [{name: a, path: ''}]", ["projects[0].path: "]),
        ('name: i\nprojects: [{name: a, path: "x\\0y"}]', ["projects[0].path: "]),
        (
            "name: i\nprojects: [{name: a, path: a}, {name: a, path: b}]",
            ["projects[1].name: 'a' is already taken"],
        ),
        (
            "name: i\nprojects: [{name: a, path: ''}, {name: a, path: b}]",
            ["projects[0].path: ", "projects[1].name: 'a' is already taken"],
        ),
        (entry("role: owner"), ["projects[0].role: 'owner'"]),
        (entry("role: Writer"), ["projects[0].role: 'Writer'"]),
        (entry("role: [writer]"), ["projects[0].role: "]),
        (entry("description: 7"), ["projects[0].description: "]),
        (entry("history_mode: none"), ["projects[0].history_mode: 'none'"]),
        (entry("history_mode: [feed]"), ["projects[0].history_mode: "]),
        (entry("external_edits: keep"), ["projects[0].external_edits: 'keep'"]),
        (entry("history_options: fast"), ["projects[0].history_options: "]),
        (
            entry("history_options: {max_writes: 0, max_delay_ms: soon, max_write: 1}"),
            [
                "projects[0].history_options.max_writes: 0",
                "projects[0].history_options.max_delay_ms: 'soon'",
                "projects[0].history_options.max_write: unknown",
            ],
        ),
        (entry("history_options: {max_writes: 1.5}"), ["projects[0].history_options.max_writes: "]),
        (
            entry("history_options: {max_writes: true}"),
            ["projects[0].history_options.max_writes: "],
        ),
        (
            entry("history_options: {max_writes: .inf}"),
            ["projects[0].history_options.max_writes: "],
        ),
        (
            entry("history_options: {max_writes: 9007199254740992}"),
            ["projects[0].history_options.max_writes: "],
        ),
        (
            "title: x\n" + entry("rol: admin"),
            [
                "top level: unknown key 'title'",
                "projects[0]: unknown key 'rol', did you mean 'role'",
            ],
        ),
    ],
)
def test_broken_rules_are_all_reported(folder: Path, text: str, expected: list[str]) -> None:
    found = messages(folder, text)
    assert len(found) == len(expected)
    for message, beginning in zip(found, expected, strict=True):
        assert message.startswith(beginning)


def test_keys_without_a_value_count_as_absent(folder: Path) -> None:
    empty = (
        "name: i\nprojects:\n- name: a\n  path: a\n  role:\n  description:\n  history_options:\n"
    )
    project = load(folder, empty).projects["a"]
    assert (project.role, project.description) == (Role.READER, None)


def test_a_lenient_start_warns_of_unknown_keys(folder: Path) -> None:
    instance = load(folder, entry("rol: admin"), LENIENT)
    (warning,) = instance.warnings
    assert "'rol'" in warning
    assert instance.projects["a"].role is Role.READER


@pytest.mark.parametrize(
    ("first", "second", "relation"),
    [
        ("a", "./a/", "is the same as"),
        ("a", "link", "is the same as"),
        ("a", "a/deep", "lies inside"),
        ("a/deep", "a", "contains"),
        ("link/deep", "a", "contains"),
        (".", "a", "lies inside"),
    ],
)
def test_projects_must_not_overlap(folder: Path, first: str, second: str, relation: str) -> None:
    (folder / "a" / "deep").mkdir()
    (folder / "link").symlink_to(folder / "a")
    text = f"name: i\nprojects: [{{name: one, path: {first}}}, {{name: two, path: {second}}}]"
    (message,) = messages(folder, text)
    assert message.startswith(f"the directory of project 'two' {relation} that of project 'one'")


def test_siblings_with_one_prefix_do_not_overlap(folder: Path) -> None:
    (folder / "ab").mkdir()
    text = "name: i\nprojects: [{name: one, path: a}, {name: two, path: ab}]"
    assert list(load(folder, text).projects) == ["one", "two"]


def test_a_path_that_does_not_exist_is_warned_of(folder: Path) -> None:
    (warning,) = load(folder, "name: i\nprojects: [{name: a, path: nowhere}]").warnings
    assert "nowhere" in warning


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_a_mode_that_needs_git_is_refused_without_it(folder: Path, mode: str) -> None:
    (error,) = failures(folder, entry(f"history_mode: {mode}"))
    assert error.code == "GIT_NOT_INITIALIZED"
    project = {"project": "a"}
    assert error.details == {"historyMode": mode, "modeSource": "project", **project}
    (error,) = failures(folder, entry(""), Settings(history_mode_default=mode))
    assert error.details == {"historyMode": mode, "modeSource": "environment", **project}


def test_git_and_other_problems_are_reported_together(folder: Path) -> None:
    text = "projects: [{name: a, path: a, history_mode: audit}, {name: b, path: b, role: chief}]"
    codes = [error.code for error in failures(folder, text)]
    assert codes == ["INSTANCE_CONFIG_INVALID", "INSTANCE_CONFIG_INVALID", "GIT_NOT_INITIALIZED"]


def test_a_git_entry_may_be_a_file(folder: Path) -> None:
    (folder / "a" / ".git").write_text("gitdir: ../elsewhere\n")
    history = load(folder, entry("")).projects["a"].history
    assert history == HistorySettings("audit", None, "inferred")


@pytest.mark.parametrize(
    ("basename", "name"),
    [
        ("notes", "notes-legacy"),
        ("My Notes (2)", "my-notes--2--legacy"),
        ("a_b-c", "a_b-c-legacy"),
        ("Äpfel", "-pfel-legacy"),
    ],
)
def test_single_project_mode(tmp_path: Path, basename: str, name: str) -> None:
    root = tmp_path / basename
    root.mkdir()
    instance = synthesize_instance(f"{root}/", Role.WRITER, STRICT)
    assert instance.name == name
    assert instance.source == "synthetic"
    assert instance.config_path is None
    project = instance.projects["default"]
    assert list(instance.projects) == ["default"]
    assert project.path == str(root)
    assert project.role is Role.WRITER
    assert project.history.effective_mode == "feed"


def test_the_root_directory_is_called_default() -> None:
    instance = synthesize_instance("/", Role.READER, Settings(history_mode_default="read"))
    assert instance.name == "default-legacy"
    assert instance.projects["default"].history == HistorySettings("read", None, "environment")


def test_single_project_mode_refuses_a_mode_that_needs_git(tmp_path: Path) -> None:
    with pytest.raises(MaadErrors) as caught:
        synthesize_instance(str(tmp_path), Role.ADMIN, Settings(history_mode_default="audit"))
    assert [error.code for error in caught.value.errors] == ["GIT_NOT_INITIALIZED"]


def test_no_failure_shows_an_absolute_path(folder: Path) -> None:
    texts = ["", "a: [", "name: i\nprojects: [{name: a, path: a}, {name: b, path: a}]"]
    shown = [error for text in texts for error in failures(folder, text)]
    os.remove(folder / "instance.yaml")
    with pytest.raises(MaadErrors) as caught:
        load_instance(str(folder / "instance.yaml"), STRICT)
    shown += caught.value.errors
    assert all(str(folder) not in error.message for error in shown)
    assert all(str(folder) not in msgspec.json.encode(error.details).decode() for error in shown)
