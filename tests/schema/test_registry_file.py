from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.schema.primitives import BUILTIN_SUBTYPES, PRIMITIVES
from maadd_worker.schema.registry import REGISTRY_PATH, TypeEntry, load_registry

Make = Callable[[Mapping[str, str]], ProjectRoot]


def entry(**members: object) -> str:
    values = {"path": "tasks", "id_prefix": "tsk", "schema": "task.v1", **members}
    lines = [f"    {key}: {value}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def one_type(name: str = "task", **members: object) -> str:
    return f"types:\n  {name}:\n{entry(**members)}"


def refusals(root: ProjectRoot) -> list[MaadError]:
    with pytest.raises(MaadErrors) as caught:
        load_registry(root)
    return caught.value.errors


def test_the_types_keep_their_order_and_lose_the_slash(library: ProjectRoot) -> None:
    registry = load_registry(library)
    assert list(registry.types.values()) == [
        TypeEntry("author", "people/authors", "aut", "author.v1"),
        TypeEntry("book", "books", "bok", "book.v2"),
    ]
    assert registry.subtypes == {"shelfmark": "identifier"}
    assert registry.subtype_map == {**BUILTIN_SUBTYPES, "shelfmark": "identifier"}
    assert registry.id_prefixes == {"aut", "bok"}
    assert registry.advisories == ()


def test_loading_creates_nothing(library: ProjectRoot) -> None:
    before = sorted(Path(library.path).rglob("*"))
    load_registry(library)
    assert sorted(Path(library.path).rglob("*")) == before


def test_there_are_eleven_primitives_and_46_annotation_types() -> None:
    assert len(PRIMITIVES) == 11
    assert len(BUILTIN_SUBTYPES) == 46
    assert all(BUILTIN_SUBTYPES[primitive] == primitive for primitive in PRIMITIVES)
    assert BUILTIN_SUBTYPES["invoice"] == "identifier"


@pytest.mark.parametrize(
    "text", ["types: {}\n", "---\ntypes: {}\n", "\ufefftypes: {}\n", "---\ntypes: {}\n---\n\n"]
)
def test_a_project_may_have_no_types(make_project: Make, text: str) -> None:
    assert load_registry(make_project({REGISTRY_PATH: text})).types == {}


def test_a_line_of_dashes_in_a_bare_registry_hides_nothing(make_project: Make) -> None:
    text = 'types: {}\nnote: "\n  ---\n  "\nextraction: {subtypes: {ticket: identifier}}\n'
    assert load_registry(make_project({REGISTRY_PATH: text})).subtypes == {"ticket": "identifier"}


def test_a_missing_registry_has_its_own_code(make_project: Make) -> None:
    (error,) = refusals(make_project({"notes/readme.md": "x"}))
    assert error.code == "REGISTRY_NOT_FOUND"
    assert REGISTRY_PATH in error.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("types: [", "PARSE_ERROR"),
        ("types: {}\ntypes: {}\n", "PARSE_ERROR"),
        ("", "REGISTRY_INVALID"),
        ("# nothing\n", "REGISTRY_INVALID"),
        ("extraction: {}\n", "REGISTRY_INVALID"),
        ("types: [task]\n", "REGISTRY_INVALID"),
        ("types:\n", "REGISTRY_INVALID"),
        ("- types\n", "REGISTRY_INVALID"),
    ],
)
def test_a_file_without_a_types_mapping_is_refused(
    make_project: Make, text: str, code: str
) -> None:
    assert [error.code for error in refusals(make_project({REGISTRY_PATH: text}))] == [code]


def test_bytes_that_are_no_utf8_are_refused(make_project: Make) -> None:
    root = make_project({REGISTRY_PATH: ""})
    Path(root.path, REGISTRY_PATH).write_bytes(b"types: {}\n# \xff\n")
    (error,) = refusals(root)
    assert error.code == "PARSE_ERROR"
    assert "byte 12" in error.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (one_type(name="Task"), "type name"),
        (one_type(name="1task"), "type name"),
        ("types:\n  task: tasks\n", "must be a mapping"),
        (one_type(path=None), "path is missing"),
        (one_type(path='""'), "path is missing"),
        (one_type(path="../tasks"), "relative path"),
        (one_type(path="/tasks"), "relative path"),
        (one_type(path="a/../b"), "relative path"),
        (one_type(path="my tasks"), "relative path"),
        (one_type(path=".git/x"), "relative path"),
        (one_type(path="5"), "quotes"),
        (one_type(path="_backend/x"), "belongs to the engine"),
        (one_type(path="_schema"), "belongs to the engine"),
        (one_type(id_prefix=None), "id_prefix is missing"),
        (one_type(id_prefix="t"), "2 to 5"),
        (one_type(id_prefix="tasks1"), "2 to 5"),
        (one_type(id_prefix="TSK"), "2 to 5"),
        (one_type(id_prefix="t-k"), "2 to 5"),
        (one_type(id_prefix="123"), "quotes"),
        (one_type(schema=None), "schema is missing"),
        (one_type(schema="task"), "task.v1"),
        (one_type(schema="task.v0"), "task.v1"),
        (one_type(schema="Task.v1"), "task.v1"),
        (one_type(schema="../task.v1"), "task.v1"),
        (one_type(template="../x.md"), "template"),
        (one_type(template="7"), "template"),
        (one_type(shard="3"), "shard"),
        (one_type(shard="true"), "shard"),
        (one_type(shard='"2"'), "shard"),
        ("types: {}\nextraction: {subtypes: {ticket: identifer}}\n", 'did you mean "identifier"'),
        ("types: {}\nextraction: {subtypes: {ticket: 5}}\n", "entity, date, duration"),
    ],
)
def test_a_broken_rule_is_refused_by_name(make_project: Make, text: str, part: str) -> None:
    (error,) = refusals(make_project({REGISTRY_PATH: text}))
    assert error.code == "REGISTRY_INVALID"
    assert part in error.message
    assert error.location is not None
    assert error.location.file == REGISTRY_PATH


def test_all_problems_come_together(make_project: Make) -> None:
    text = (
        one_type(id_prefix="T")
        + "  note:\n"
        + entry(path="/x", schema="note")
        + "  memo:\n"
        + entry(template="none.md")
        + "  memoir:\n"
        + entry(path="memoirs")
    )
    codes = [error.code for error in refusals(make_project({REGISTRY_PATH: text}))]
    assert sorted(codes) == [
        "DUPLICATE_PREFIX",
        "FILE_NOT_FOUND",
        "REGISTRY_INVALID",
        "REGISTRY_INVALID",
        "REGISTRY_INVALID",
    ]


def test_a_shared_prefix_names_both_types(make_project: Make) -> None:
    text = one_type() + "  chore:\n" + entry(path="chores")
    (error,) = refusals(make_project({REGISTRY_PATH: text}))
    assert error.code == "DUPLICATE_PREFIX"
    assert '"task" and "chore"' in error.message


def test_shard_and_template_are_kept(make_project: Make) -> None:
    text = one_type(shard=2, template="templates/task.md", colour="ignored")
    root = make_project({REGISTRY_PATH: text, "templates/task.md": "# Task\n"})
    assert load_registry(root).types["task"] == TypeEntry(
        "task", "tasks", "tsk", "task.v1", "templates/task.md", 2
    )


def test_project_subtypes_win_over_the_built_in_ones(make_project: Make) -> None:
    text = "types: {}\nextraction: {subtypes: {person: identifier, date: entity}}\n"
    registry = load_registry(make_project({REGISTRY_PATH: text}))
    assert registry.subtype_map["person"] == "identifier"
    assert registry.subtype_map["date"] == "entity"
    assert registry.subtype_map["org"] == "entity"


@pytest.mark.parametrize("extraction", ["extraction: text", "extraction: {subtypes: [a]}"])
def test_an_extraction_that_is_no_mapping_is_ignored(make_project: Make, extraction: str) -> None:
    assert (
        load_registry(make_project({REGISTRY_PATH: f"types: {{}}\n{extraction}\n"})).subtypes == {}
    )


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (one_type(path="_notes"), ["TYPE_PATH_UNDERSCORE"]),
        (one_type() + "  chore:\n" + entry(id_prefix="chr"), ["TYPE_PATHS_OVERLAP"]),
        (
            one_type() + "  chore:\n" + entry(id_prefix="chr", path="tasks/small/"),
            ["TYPE_PATHS_OVERLAP"],
        ),
        (one_type() + "  chore:\n" + entry(id_prefix="chr", path="tasks-small"), []),
        ("types: {}\nextraction: {subtypes: {go-live: date}}\n", ["SUBTYPE_UNREACHABLE"]),
        ("types: {}\nextraction: {subtypes: {go_live: date}}\n", []),
    ],
)
def test_what_a_project_may_do_but_should_not_is_advised(
    make_project: Make, text: str, codes: list[str]
) -> None:
    registry = load_registry(make_project({REGISTRY_PATH: text}))
    assert [advisory.code for advisory in registry.advisories] == codes


@pytest.mark.parametrize("linked", ["tasks", "templates", "_registry"])
def test_links_out_of_the_project_are_refused(
    make_project: Make, tmp_path: Path, linked: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    text = one_type(template="templates/task.md")
    (outside / "task.md").write_text("# Task\n")
    (outside / "object_types.yaml").write_text("types: {}\n")
    root = make_project({REGISTRY_PATH: text, "templates/task.md": "# Task\n", "tasks/a.md": "x"})
    inside = Path(root.path, linked)
    inside.rename(tmp_path / "moved-away")
    inside.symlink_to(outside)
    (error,) = refusals(root)
    assert error.code == "REGISTRY_INVALID"
    assert "link" in error.message


def test_links_inside_the_project_are_fine(make_project: Make) -> None:
    root = make_project({REGISTRY_PATH: one_type(), "real/a.md": "x"})
    Path(root.path, "tasks").symlink_to("real")
    assert load_registry(root).types["task"].path == "tasks"


def test_a_type_path_that_is_a_file_is_refused(make_project: Make) -> None:
    (error,) = refusals(make_project({REGISTRY_PATH: one_type(), "tasks": "x"}))
    assert "not a folder" in error.message


def test_a_link_that_leads_nowhere_is_refused(make_project: Make) -> None:
    root = make_project({REGISTRY_PATH: one_type()})
    Path(root.path, "tasks").symlink_to("tasks")
    (error,) = refusals(root)
    assert error.code == "REGISTRY_INVALID"
