from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.schema.model import Model, load_model, refresh_model, stale_files
from maadd_worker.schema.registry import REGISTRY_PATH as REGISTRY
from maadd_worker.schema.registry import TypeEntry

Make = Callable[[Mapping[str, str]], ProjectRoot]
AUTHOR = "_schema/author.v1.yaml"
BOOK = "_schema/book.v2.yaml"


def write(root: ProjectRoot, path: str, text: str) -> None:
    Path(root.path, path).write_text(text, encoding="utf-8")


def load_errors(root: ProjectRoot) -> list[MaadError]:
    with pytest.raises(MaadErrors) as caught:
        load_model(root)
    return caught.value.errors


def test_a_type_finds_its_entry_and_schema(library_model: Model) -> None:
    assert library_model.entry("book").id_prefix == "bok"
    assert library_model.schema("book").ref == "book.v2"
    assert list(library_model.schemas) == ["author.v1", "book.v2"]
    assert library_model.advisories == ()


def test_an_unknown_type_is_answered_with_near_and_known_names(library_model: Model) -> None:
    with pytest.raises(MaadError) as caught:
        library_model.schema("bok")
    assert caught.value.code == "UNKNOWN_TYPE"
    assert 'did you mean "book"' in caught.value.message
    assert "author, book" in caught.value.message


def test_an_empty_registry_loads(make_project: Make) -> None:
    model = load_model(make_project({REGISTRY: "types: {}\n"}))
    assert model.schemas == {}
    with pytest.raises(MaadError, match="no type is registered yet"):
        model.entry("book")


def test_every_broken_file_is_reported_at_once(make_project: Make, files: dict[str, str]) -> None:
    registry = files[REGISTRY].replace(
        "extraction:",
        "  shelf:\n    path: shelves\n    id_prefix: shl\n    schema: shelf.v1\nextraction:",
    )
    root = make_project({REGISTRY: registry, BOOK: "type: [", AUTHOR: "type: author\nfields: 5\n"})
    errors = load_errors(root)
    assert [error.code for error in errors] == ["SCHEMA_INVALID", "PARSE_ERROR", "SCHEMA_NOT_FOUND"]
    assert "_schema/shelf.v1.yaml" in errors[2].message
    assert '"shelf"' in errors[2].message


def test_an_unreadable_schema_is_not_found(library: ProjectRoot) -> None:
    Path(library.path, BOOK).unlink()
    Path(library.path, BOOK).mkdir()
    (error,) = load_errors(library)
    assert error.code == "SCHEMA_NOT_FOUND"


def test_a_schema_linked_out_of_the_project_is_refused(
    library: ProjectRoot, tmp_path: Path, files: dict[str, str]
) -> None:
    outside = tmp_path / "book.yaml"
    outside.write_text(files[BOOK])
    Path(library.path, BOOK).unlink()
    Path(library.path, BOOK).symlink_to(outside)
    (error,) = load_errors(library)
    assert error.code == "REGISTRY_INVALID"
    assert "link" in error.message


def test_a_schema_linked_inside_the_project_is_read(library: ProjectRoot) -> None:
    Path(library.path, BOOK).rename(Path(library.path, "_schema/book-now.yaml"))
    Path(library.path, BOOK).symlink_to("book-now.yaml")
    model = load_model(library)
    assert model.schema("book").required == ("doc_id", "title", "author")
    assert stale_files(library, model) == []


def test_a_schema_of_another_type_is_advised_and_unusable(library: ProjectRoot) -> None:
    write(library, BOOK, "type: pamphlet\nversion: 2\nfields: {}\n")
    model = load_model(library)
    (advisory,) = model.advisories
    assert (advisory.code, advisory.type, advisory.file) == ("SCHEMA_TYPE_MISMATCH", "book", BOOK)
    with pytest.raises(MaadError) as caught:
        model.schema("book")
    assert caught.value.code == "SCHEMA_NOT_FOUND"
    assert "pamphlet" in caught.value.message
    assert model.schema("author").type == "author"


def test_another_version_number_is_advised_and_changes_nothing(
    library: ProjectRoot, files: dict[str, str]
) -> None:
    write(library, AUTHOR, files[AUTHOR].replace("version: 1", "version: 9"))
    model = load_model(library)
    assert [advisory.code for advisory in model.advisories] == ["SCHEMA_VERSION_MISMATCH"]
    assert "9" in model.advisories[0].message
    assert model.schema("author").version == 9


def test_two_types_cannot_use_one_schema_file(make_project: Make, files: dict[str, str]) -> None:
    registry = files[REGISTRY].replace("book.v2", "author.v1")
    model = load_model(make_project({**files, REGISTRY: registry}))
    assert [advisory.type for advisory in model.advisories] == ["book"]
    assert model.schema("author").ref == "author.v1"


def test_record_paths_follow_the_shard(library_model: Model) -> None:
    flat = library_model.entry("author")
    assert library_model.record_paths(flat, "aut-ann") == ("people/authors/aut-ann.md",)
    sharded = TypeEntry("book", "books", "bok", "book.v2", shard=2)
    digest = hashlib.sha256(b"bok-emma").hexdigest()
    expected = (f"books/{digest[:2]}/bok-emma.md", "books/bok-emma.md")
    assert library_model.record_paths(sharded, "bok-emma") == expected
    assert library_model.record_path(sharded, "bok-emma") == expected[0]


def test_untouched_files_are_not_stale(library: ProjectRoot, library_model: Model) -> None:
    assert stale_files(library, library_model) == []


def test_changed_and_vanished_files_are_stale(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    write(library, REGISTRY, files[REGISTRY] + "# edited\n")
    Path(library.path, BOOK).unlink()
    assert stale_files(library, library_model) == [REGISTRY, BOOK]


def test_the_same_bytes_under_a_new_time_or_inode_are_not_stale(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    os.utime(Path(library.path, BOOK), ns=(1, 1))
    replacement = Path(library.path, "_schema/new.yaml")
    replacement.write_text(files[AUTHOR])
    replacement.replace(Path(library.path, AUTHOR))
    assert stale_files(library, library_model) == []


def test_an_edit_of_equal_size_and_time_is_noticed_by_its_inode(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    target = Path(library.path, AUTHOR)
    before = target.stat()
    replacement = Path(library.path, "_schema/new.yaml")
    replacement.write_text(files[AUTHOR].replace("name", "nama"))
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))
    replacement.replace(target)
    assert target.stat().st_size == before.st_size
    assert stale_files(library, library_model) == [AUTHOR]


def test_a_refresh_takes_good_edits(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    write(library, AUTHOR, files[AUTHOR] + "  born: {type: date}\n")
    refresh = refresh_model(library, library_model)
    assert refresh.refused == {}
    assert "born" in refresh.model.schema("author").fields
    assert stale_files(library, refresh.model) == []


def test_a_broken_schema_keeps_the_last_good_one_and_refuses_its_type(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    write(library, BOOK, "type: book\nfields: {title: {type: txt}}\n")
    write(library, AUTHOR, files[AUTHOR] + "  born: {type: date}\n")
    refresh = refresh_model(library, library_model)
    assert list(refresh.refused) == ["book"]
    assert refresh.refused["book"][0].code == "SCHEMA_INVALID"
    assert refresh.model.schema("book") == library_model.schema("book")
    assert "born" in refresh.model.schema("author").fields
    assert stale_files(library, refresh.model) == []
    write(library, BOOK, files[BOOK])
    assert stale_files(library, refresh.model) == [BOOK]
    assert refresh_model(library, refresh.model).refused == {}


def test_a_type_that_moves_to_a_missing_schema_keeps_its_old_one_for_reads(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    write(library, REGISTRY, files[REGISTRY].replace("book.v2", "book.v3"))
    refresh = refresh_model(library, library_model)
    assert [error.code for error in refresh.refused["book"]] == ["SCHEMA_NOT_FOUND"]
    assert refresh.model.schema("book").ref == "book.v2"
    assert stale_files(library, refresh.model) == []


def test_a_new_type_without_a_good_schema_has_none(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    shelf = "  shelf: {path: shelves, id_prefix: shl, schema: shelf.v1}\nextraction:"
    write(library, REGISTRY, files[REGISTRY].replace("extraction:", shelf))
    refresh = refresh_model(library, library_model)
    assert list(refresh.refused) == ["shelf"]
    with pytest.raises(MaadError, match="SCHEMA_NOT_FOUND"):
        refresh.model.schema("shelf")


def test_a_broken_registry_keeps_everything_and_refuses_all_types(
    library: ProjectRoot, library_model: Model
) -> None:
    write(library, REGISTRY, "types: [")
    refresh = refresh_model(library, library_model)
    assert list(refresh.refused) == ["author", "book"]
    assert refresh.model.registry == library_model.registry
    assert refresh.model.schemas == library_model.schemas
    assert stale_files(library, refresh.model) == []


def test_a_vanished_registry_is_noticed_once_and_again_when_it_returns(
    library: ProjectRoot, library_model: Model, files: dict[str, str]
) -> None:
    Path(library.path, REGISTRY).unlink()
    refresh = refresh_model(library, library_model)
    assert refresh.refused["book"][0].code == "REGISTRY_NOT_FOUND"
    assert stale_files(library, refresh.model) == []
    write(library, REGISTRY, files[REGISTRY])
    assert REGISTRY in stale_files(library, refresh.model)
