"""`maad_create` through an open project (spec 01 §13.1, 03 §4.1)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Identity
from maadd_worker.disk.journal import Journal


def subjects(root: Path) -> list[str]:
    log = subprocess.run(
        ["git", "log", "--reverse", "--format=%s"], cwd=root, check=True, capture_output=True
    )
    return log.stdout.decode().splitlines()


def test_a_record_is_written_indexed_and_committed(open_project: Any) -> None:
    project = open_project()
    reply = project.reply(
        "maad_create", docType="ship", fields={"name": "Ingrid", "tonnage": 120.0}
    )
    data = msgspec.json.decode(reply.body)
    assert data["docId"] == "shp-ingrid"
    assert data["filePath"] == "ships/shp-ingrid.md"
    assert data["version"] == 1
    assert data["writeDurable"] is True
    assert data["validation"] == {"valid": True, "errors": [], "warnings": []}
    assert project.text("ships/shp-ingrid.md") == (
        "---\ndoc_id: shp-ingrid\ndoc_type: ship\nschema: ship.v1\nname: Ingrid\n"
        "tonnage: 120\n---\n\n# Ingrid {#top}\n"
    )
    assert reply.meta["write_durable"] is True
    assert reply.meta["history"]["outcome"] == "committed"
    assert len(reply.meta["history"]["sha"]) == 40
    assert subjects(project.root)[-1] == "maad:create shp-ingrid [ship] — Ingrid"
    assert project.ok("maad_get", docId="shp-ingrid")["version"] == 1


def test_the_audit_members_name_the_commit_and_the_versions(open_project: Any) -> None:
    project = open_project()
    reply = project.reply("maad_create", docType="ship", fields={"name": "A"})
    assert reply.audit == {
        "doc_id": "shp-a",
        "doc_type": "ship",
        "version_before": None,
        "version_after": 1,
        "changed_fields": ["name"],
        "git_commit": reply.meta["history"]["sha"],
    }


def test_a_token_stands_in_the_commit_body(open_project: Any) -> None:
    project = open_project()
    project.reply(
        "maad_create",
        Identity("tok-1", agent_id="agt-7"),
        docType="ship",
        fields={"name": "B"},
    )
    body = subprocess.run(
        ["git", "log", "-1", "--format=%b"], cwd=project.root, check=True, capture_output=True
    )
    assert body.stdout.decode().strip() == "role: admin\ntoken: tok-1\nagent: agt-7"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"docType": "ship", "fields": ["name"]}, "INVALID_FIELDS"),
        ({"docType": "ship", "fields": "not json"}, "INVALID_FIELDS"),
        ({"docType": "ship", "fields": {"doc_id": "x"}}, "FRONTMATTER_GUARD"),
        ({"docType": "barge", "fields": {"name": "x"}}, "UNKNOWN_TYPE"),
        ({"docType": "ship", "fields": {"name": "x"}, "docId": "../x"}, "INVALID_DOC_ID"),
        ({"docType": "ship", "fields": {}}, "VALIDATION_FAILED"),
        ({"docType": "ship", "fields": {"name": "x" * 41}}, "VALIDATION_FAILED"),
        ({"docType": "voyage", "fields": {"ship": "cow-1"}}, "VALIDATION_FAILED"),
        ({"docType": "ship", "fields": {"name": "x", "a\nb": 1}}, "INVALID_FIELDS"),
    ],
)
def test_what_breaks_a_rule_is_refused_and_nothing_is_written(
    open_project: Any, args: dict[str, Any], code: str
) -> None:
    project = open_project()
    assert project.error("maad_create", **args)["code"] == code
    assert not (project.root / "ships").exists()
    assert subjects(project.root) == ["fixture"]


def test_every_finding_is_an_error_of_its_own(open_project: Any) -> None:
    project = open_project()
    reply = project.reply(
        "maad_create", docType="ship", fields={"name": "x" * 41, "tonnage": "heavy"}
    )
    errors = msgspec.json.decode(reply.body)
    assert [(e["code"], e["details"]["field"]) for e in errors] == [
        ("VALIDATION_FAILED", "name"),
        ("VALIDATION_FAILED", "tonnage"),
    ]
    assert errors[0]["details"] == {
        "field": "name",
        "code": "FIELD_MAX_LENGTH_EXCEEDED",
        "actual": 41,
        "limit": 40,
    }


def test_an_id_that_is_taken_names_a_free_one(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ingrid"})
    error = project.error("maad_create", docType="ship", fields={"name": "Ingrid"})
    assert error["code"] == "DUPLICATE_DOC_ID"
    assert error["details"] == {
        "docId": "shp-ingrid",
        "tombstone": False,
        "onDisk": True,
        "suggestedDocId": "shp-ingrid-2",
    }


def test_a_tombstone_holds_its_id(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ingrid"})
    project.ok("maad_delete", docId="shp-ingrid")
    error = project.error("maad_create", docType="ship", fields={"name": "Ingrid"})
    assert error["code"] == "DUPLICATE_DOC_ID"
    assert error["details"]["tombstone"] is True
    assert (project.root / "ships/_deleted_shp-ingrid.md").exists()


def test_a_file_that_is_not_indexed_is_never_overwritten(open_project: Any) -> None:
    project = open_project()
    (project.root / "ships").mkdir()
    (project.root / "ships/shp-ingrid.md").write_text("mine\n")
    error = project.error("maad_create", docType="ship", fields={"name": "Ingrid"})
    assert error["code"] == "DUPLICATE_DOC_ID"
    assert error["message"].startswith("the file ships/shp-ingrid.md, which is not indexed")
    assert project.text("ships/shp-ingrid.md") == "mine\n"


def test_numbers_continue_over_tombstones_and_files(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Base"})
    first = project.ok("maad_create", docType="voyage", fields={"ship": "shp-base"})["docId"]
    assert first.endswith("-001")
    project.ok("maad_delete", docId=first)
    second = project.ok("maad_create", docType="voyage", fields={"ship": "shp-base"})["docId"]
    assert second.endswith("-002")
    third = second.removesuffix("002") + "003"
    (project.root / f"voyages/{third}.md").write_text("unindexed\n")
    assert project.ok("maad_create", docType="voyage", fields={"ship": "shp-base"})[
        "docId"
    ].endswith("-004")


def test_a_group_gives_what_one_after_the_other_would(open_project: Any) -> None:
    project = open_project()
    calls = [
        project.request("maad_create", {"docType": "ship", "fields": {"name": "One"}}),
        project.request("maad_create", {"docType": "ship", "fields": {"name": "One"}}),
        project.request("maad_create", {"docType": "voyage", "fields": {"ship": "shp-one"}}),
        project.request("maad_create", {"docType": "voyage", "fields": {"ship": "shp-one"}}),
        project.request("maad_update", {"docId": "shp-one", "fields": {"tonnage": 3}}),
        project.request("maad_delete", {"docId": "shp-one"}),
        project.request("maad_update", {"docId": "shp-one", "fields": {"tonnage": 4}}),
    ]
    replies = project.group(*calls)
    assert [reply.error_code for reply in replies] == [
        None,
        "DUPLICATE_DOC_ID",
        None,
        None,
        None,
        None,
        "FILE_NOT_FOUND",
    ]
    ids = [msgspec.json.decode(replies[n].body)["docId"] for n in (2, 3)]
    assert ids[0].endswith("-001")
    assert ids[1].endswith("-002")
    assert msgspec.json.decode(replies[4].body)["version"] == 2
    project.settle()
    words = [subject.split()[0] for subject in subjects(project.root)]
    assert words == [
        "fixture",
        "maad:create",
        "maad:create",
        "maad:create",
        "maad:update",
        "maad:delete",
    ]


def test_a_ref_to_nothing_is_a_warning_and_one_of_the_same_group_is_none(
    open_project: Any,
) -> None:
    project = open_project()
    calls = [
        project.request("maad_create", {"docType": "ship", "fields": {"name": "One"}}),
        project.request("maad_create", {"docType": "voyage", "fields": {"ship": "shp-one"}}),
        project.request("maad_create", {"docType": "voyage", "fields": {"ship": "shp-two"}}),
    ]
    _, near, far = project.group(*calls)
    assert "warnings" not in near.meta
    assert [w["code"] for w in far.meta["warnings"]] == ["REF_TARGET_MISSING"]


def test_the_template_is_used_only_without_a_body(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "One"}, body="")
    project.ok("maad_create", docType="ship", fields={"name": "Two"}, body="Text")
    assert project.text("ships/shp-one.md").endswith("name: One\n---\n")
    assert project.text("ships/shp-two.md").endswith("---\n\nText\n")


def test_feed_mode_writes_without_a_commit(open_project: Any) -> None:
    project = open_project("feed")
    reply = project.reply("maad_create", docType="ship", fields={"name": "One"})
    assert reply.meta["history"]["outcome"] == "none"
    assert reply.meta["write_durable"] is True
    assert subjects(project.root) == ["fixture"]


def test_a_dry_run_tells_what_would_happen(open_project: Any) -> None:
    project = open_project()
    good = project.request(
        "maad_create", {"docType": "ship", "fields": {"name": "One"}}, dry_run=True
    )
    bad = project.request("maad_create", {"docType": "ship", "fields": {}}, dry_run=True)
    first, second = (msgspec.json.decode(reply.body) for reply in project.group(good, bad))
    assert first["valid"] is True
    assert first["docId"] == "shp-one"
    assert first["filePath"] == "ships/shp-one.md"
    assert second["valid"] is False
    assert second["errors"][0]["code"] == "VALIDATION_FAILED"
    assert not (project.root / "ships").exists()


def test_without_a_journal_nothing_is_published_and_nothing_left_behind(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = open_project(fsync=True)

    def refuse(*_: object) -> None:
        raise MaadError("BACKEND_ERROR", "the write journal failed: disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "begin", refuse)
        error = project.error("maad_create", docType="ship", fields={"name": "Ada"})
    assert error["code"] == "BACKEND_ERROR"
    assert not list(project.root.glob("ships/*"))
    assert project.ok("maad_create", docType="ship", fields={"name": "Ada"})["version"] == 1
