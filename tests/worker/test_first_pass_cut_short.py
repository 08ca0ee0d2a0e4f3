"""When a new index is whole enough to be served (spec 01 §14.6)."""

from __future__ import annotations

from typing import Any

import pytest

from maadd_worker.index import full_pass


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("load_from", [2, 1000])
def test_half_an_index_is_refused_until_the_reindex_has_ended(
    open_project: Any, monkeypatch: pytest.MonkeyPatch, load_from: int
) -> None:
    monkeypatch.setattr(full_pass, "_WORTH_A_LOAD", load_from)
    monkeypatch.setattr(full_pass, "_BATCH_FILES", 2)
    project = open_project()
    for name in ("Ada", "Bo", "Cy", "Dee", "Eve"):
        project.ok("maad_create", docType="ship", fields={"name": name})
    project.close()
    for path in (project.root / "_backend").glob("maad.db*"):
        path.unlink()

    reopen(project)
    assert project.error("maad_summary")["code"] == "INDEX_EMPTY"
    stores = 0
    store = full_pass.store_batch

    def killed_at_the_second(*arguments: Any) -> Any:
        nonlocal stores
        stores += 1
        if stores == 2:
            raise _Killed
        return store(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(full_pass, "store_batch", killed_at_the_second)
        with pytest.raises(_Killed):
            project.reply("maad_reindex")
    for _ in range(2):
        project.close()
        reopen(project)
        refused = project.error("maad_query", docType="ship")
        assert refused["code"] == "INDEX_EMPTY"
        assert refused["details"] == {"onDiskMarkdownFiles": 5}
    assert project.ok("maad_reindex")["indexed"] == 3
    assert project.ok("maad_query", docType="ship")["total"] == 5
    project.close()
    reopen(project)
    assert project.ok("maad_query", docType="ship")["total"] == 5


def test_one_broken_file_does_not_keep_the_others_from_being_served(open_project: Any) -> None:
    project = open_project()
    for name in ("Ada", "Bo"):
        project.ok("maad_create", docType="ship", fields={"name": name})
    project.close()
    for path in (project.root / "_backend").glob("maad.db*"):
        path.unlink()
    (project.root / "ships/broken.md").write_text("---\ndoc_id: [\n---\n")
    reopen(project)
    project.ok("maad_reindex", path="ships/shp-ada.md")
    assert project.error("maad_summary")["code"] == "INDEX_EMPTY"
    assert [error["code"] for error in project.ok("maad_reindex")["errors"]] == ["PARSE_ERROR"]
    assert project.ok("maad_query", docType="ship")["total"] == 2


def reopen(project: Any) -> None:
    project.engine = project.open()
    project._reader = project.engine.open_reader()
