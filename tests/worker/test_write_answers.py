"""What stands beside the data of a write: durability, history, audit, events, health, and the
order of refusals (spec 03 §2.3, §2.6, §2.7, §4, §5.1, §8, §9.1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maadd.protocol.messages import Reply


def create(project: Any, name: str, **more: Any) -> str:
    """A ship of that name; its id."""
    fields = {"name": name, **more}
    made: str = project.ok("maad_create", docType="ship", fields=fields, body="Text")["docId"]
    return made


def message(project: Any) -> str:
    return str(project.git("log", "-1", "--format=%B")).strip()


def events(project: Any) -> list[tuple[str, str, str, str]]:
    found = project.engine.poll_events()
    return [(one.action, one.doc_id, one.doc_type, one.updated_at) for one in found]


# Beside the data


def audit_of(project: Any, tool: str, **args: Any) -> tuple[Any, ...]:
    """Ids, versions, fields of the audit line; its commit is the one that the answer names."""
    reply = project.reply(tool, **args)
    assert reply.ok, reply.body
    audit = reply.audit
    assert audit["git_commit"] == reply.meta["history"]["sha"] == project.git_head()
    ids = audit.get("doc_ids", audit["doc_id"])
    versions = audit["version_before"], audit["version_after"]
    return ids, audit["doc_type"], *versions, audit["changed_fields"]


@pytest.fixture
def audited(shared: Any) -> Any:
    shared.git_head = lambda: shared.git("rev-parse", "HEAD").strip()
    return shared


def test_every_change_has_an_audit_line_with_its_versions_and_commit(audited: Any) -> None:
    for name in ("Aud", "Aue", "Auf"):
        create(audited, name)
    update = {"docId": "shp-aud", "fields": {"tonnage": 5, "tags": ["x"]}}
    assert audit_of(audited, "maad_update", **update) == (
        "shp-aud", "ship", 1, 2, ["tonnage", "tags"],
    )  # fmt: skip
    assert audit_of(audited, "maad_update", docId="shp-aud", appendBody="More") == (
        "shp-aud", "ship", 2, 3, [],
    )  # fmt: skip
    assert audit_of(audited, "maad_delete", docId="shp-aud") == ("shp-aud", "ship", 3, None, [])
    assert audit_of(audited, "maad_delete", docId="shp-aue", mode="hard") == (
        "shp-aue", "ship", 1, None, [],
    )  # fmt: skip
    assert audit_of(audited, "maad_bulk_delete", docIds=["shp-auf"], confirm=True) == (
        ["shp-auf"], "ship", None, None, [],
    )  # fmt: skip
    age_tombstones(audited)
    purge = {"olderThan": "2020-01-02", "confirm": True}
    purged = audit_of(audited, "maad_purge_soft_deleted", **purge)
    assert purged == (["shp-aud", "shp-auf"], "ship", None, None, [])
    voyage = {"docType": "voyage", "docId": "voy-aud", "fields": {"ship": "s", "stops": ["shp-no"]}}
    voyage["fields"]["ship"] = create(audited, "Aug")
    audited.ok("maad_create", **voyage)
    repair = {"docType": "voyage", "repairTypes": ["prune_orphan_refs"], "confirm": True}
    assert audit_of(audited, "maad_repair_where", **repair) == (
        ["voy-aud"], "voyage", None, None, ["stops"],
    )  # fmt: skip


def age_tombstones(project: Any) -> None:
    project.engine._index.writer().connection.execute(
        "UPDATE documents SET updated_at = '2020-01-01T00:00:00.000Z' WHERE deleted = 1"
    )


def test_a_refused_write_and_a_preview_leave_no_audit_line(shared: Any) -> None:
    create(shared, "Quiet")
    assert shared.reply("maad_update", docId="shp-quiet", expectedVersion=9).audit is None
    assert shared.reply("maad_bulk_delete", docIds=["shp-quiet"]).audit is None


def test_who_listens_hears_of_each_change_once(shared: Any) -> None:
    events(shared)
    create(shared, "Heard")
    shared.ok("maad_update", docId="shp-heard", fields={"tonnage": 2})
    shared.ok("maad_update", docId="shp-heard", appendBody="More")
    [*_, last] = told = events(shared)
    assert [one[:3] for one in told] == [
        ("create", "shp-heard", "ship"),
        ("update", "shp-heard", "ship"),
        ("update", "shp-heard", "ship"),
    ]
    assert last[3] == shared.ok("maad_get", docId="shp-heard")["updatedAt"]
    for nothing in ({}, {"fields": {}}, {"fields": {"tonnage": 2}}, {"unsetFields": ["no"]}):
        shared.ok("maad_update", docId="shp-heard", **nothing)
    assert shared.error("maad_update", docId="shp-heard", fields={"name": ""})
    assert events(shared) == []
    shared.ok("maad_delete", docId="shp-heard", mode="hard")
    assert [one[:2] for one in events(shared)] == [("delete", "shp-heard")]


def test_feed_tells_of_changes_that_no_commit_holds(open_project: Any) -> None:
    project = open_project("feed")
    create(project, "Fed")
    assert [one[:2] for one in events(project)] == [("create", "shp-fed")]


def test_a_write_that_runs_is_in_health_and_its_end_is_remembered(shared: Any) -> None:
    seen: list[dict[str, Any]] = []

    def look(_reply: Reply) -> None:
        seen.append(shared.engine.health())

    call = shared.request("maad_create", {"docType": "ship", "fields": {"name": "Running"}})
    shared.begin(look, call)
    running = seen[0]["lastWriteOp"]
    assert running["op"] == "maad_create"
    assert set(running) == {"op", "startedAt", "elapsedMs"}
    assert running["elapsedMs"] >= 0
    health = shared.ok("maad_health")
    assert health["lastWriteOp"] is None
    ended = health["lastWriteAt"]
    assert ended >= running["startedAt"]
    assert set(health["writeLatencyMs"]) == {"p50", "p95"}
    # An answer that is an error is an end, too.
    assert shared.error("maad_update", docId="shp-none", fields={})
    assert shared.ok("maad_health")["lastWriteAt"] >= ended


# Keys


def test_a_replay_has_the_answer_of_then_and_the_durability_of_now(shared: Any) -> None:
    args = {
        "docType": "voyage",
        "docId": "voy-rep",
        "fields": {"ship": "shp-nowhere"},
        "idempotencyKey": "replayed",
    }
    first = shared.reply("maad_create", **args)
    assert first.meta.keys() == {"write_durable", "history", "warnings"}
    again = shared.reply("maad_create", **args)
    assert again.body == first.body
    assert again.meta.keys() == first.meta.keys() | {
        "replayed", "original_request_id", "original_completed_at",
    }  # fmt: skip
    assert again.meta["warnings"] == first.meta["warnings"]
    assert again.meta["history"] == first.meta["history"]
    assert len(first.meta["history"]["sha"]) == 40
    created = shared.ok("maad_get", docId="voy-rep")["createdAt"]
    assert created <= again.meta["original_completed_at"]


def test_the_replays_of_a_group_and_of_a_bulk_call_name_their_commits(shared: Any) -> None:
    calls = [
        shared.request(
            "maad_create", {"docType": "ship", "fields": {"name": name}, "idempotencyKey": name}
        )
        for name in ("Group one", "Group two")
    ]
    records = [{"docType": "ship", "fields": {"name": f"Bulk {n}"}} for n in range(2)]
    calls.append(shared.request("maad_bulk_create", {"records": records, "idempotencyKey": "bulk"}))
    first = [reply.meta["history"] for reply in shared.group(*calls)]
    again = [reply.meta["history"] for reply in shared.group(*calls)]
    assert len({one["sha"] for one in first}) == 3
    assert again == first


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("maad_update", {"docId": "shp-still", "fields": {"name": "Still"}}),
        ("maad_bulk_update", {"updates": [{"docId": "shp-still", "fields": {}}]}),
        ("maad_bulk_create", {"records": []}),
        ("maad_delete_where", {"docType": "ship", "filters": {"name": "Nobody"}, "confirm": True}),
    ],
)
def test_a_repeated_call_that_changed_nothing_committed_nothing(
    shared: Any, tool: str, args: dict[str, Any]
) -> None:
    shared.reply("maad_create", docType="ship", fields={"name": "Still"})
    first = shared.reply(tool, **args, idempotencyKey="nothing")
    again = shared.reply(tool, **args, idempotencyKey="nothing")
    assert again.meta["replayed"] is True
    assert again.meta["history"] == first.meta["history"]
    assert first.meta["history"]["outcome"] == "none"


def test_a_delete_with_a_key_is_done_once(shared: Any) -> None:
    create(shared, "Once")
    args = {"docId": "shp-once", "idempotencyKey": "once"}
    first = shared.reply("maad_delete", **args)
    again = shared.reply("maad_delete", **args)
    assert (again.meta["replayed"], again.body) == (True, first.body)


def test_a_key_has_at_most_128_characters_and_none_is_no_key(shared: Any) -> None:
    args = {"docType": "ship", "fields": {"name": "Keyed"}}
    error = shared.error("maad_create", **args, idempotencyKey="k" * 129)
    assert error["code"] == "INVALID_ARGS"
    shared.ok("maad_create", **args, idempotencyKey="")
    assert shared.error("maad_create", **args, idempotencyKey="")["code"] == "DUPLICATE_DOC_ID"
    shared.ok("maad_delete", docId="shp-keyed", idempotencyKey="k" * 128)


# Commits


@pytest.mark.parametrize(
    ("fields", "doc_id", "summary"),
    [
        ({"name": "Cog", "title": "Ship"}, "shp-cog", "Cog"),
        ({"name": "7", "title": "Seven"}, "shp-seven", "7"),
    ],
)
def test_a_create_is_summed_up_by_its_name(
    shared: Any, fields: dict[str, Any], doc_id: str, summary: str
) -> None:
    shared.ok("maad_create", docType="ship", docId=doc_id, fields=fields)
    assert message(shared) == f"maad:create {doc_id} [ship] — {summary}"


@pytest.mark.parametrize(("fields", "summary"), [({"title": "First"}, "First"), ({}, "voy-{}")])
def test_without_a_name_by_its_title_or_its_id(
    shared: Any, fields: dict[str, Any], summary: str
) -> None:
    doc_id = f"voy-{len(fields)}"
    shared.ok("maad_create", docType="voyage", docId=doc_id, fields={"ship": "shp-a", **fields})
    assert message(shared) == f"maad:create {doc_id} [voyage] — {summary.format(len(fields))}"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"fields": {"tonnage": 7, "tags": ["a"]}}, "fields:tonnage,tags — tonnage: 7, tags: a"),
        ({"fields": {"tonnage": None}, "body": "Both"}, "fields:tonnage — tonnage: null"),
        ({"unsetFields": ["tonnage"]}, "fields:tonnage — tonnage: null"),
        ({"appendBody": "More"}, "body:append — Body updated"),
        ({"body": "New"}, "body:replace — Body updated"),
    ],
)  # fmt: skip
def test_an_update_names_what_it_changed(shared: Any, args: dict[str, Any], said: str) -> None:
    shared.reply("maad_create", docType="ship", fields={"name": "Told"})
    shared.ok("maad_update", docId="shp-told", fields={"tonnage": 1, "tags": []})
    shared.ok("maad_update", docId="shp-told", **args)
    assert message(shared) == f"maad:update shp-told [ship] {said}"


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_delete_names_its_mode_and_the_record(shared: Any, mode: str) -> None:
    doc_id = create(shared, f"Gone {mode}")
    shared.ok("maad_delete", docId=doc_id, mode=mode)
    assert message(shared) == f"maad:delete {doc_id} [ship] {mode} — {mode} delete of {doc_id}"


def test_a_purge_names_its_threshold(shared: Any) -> None:
    shared.ok("maad_delete", docId=create(shared, "Purged"))
    age_tombstones(shared)
    shared.ok("maad_purge_soft_deleted", olderThan="2020-01-02", confirm=True)
    subject = message(shared).splitlines()[0]
    assert subject.endswith("purged, soft-deleted before 2020-01-02T00:00:00.000Z")


# The order of refusals: each call has every fault that may come after the first one


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"docType": "barge", "fields": None, "docId": "../x"}, "INVALID_FIELDS"),
        ({"docType": "barge", "fields": 7, "docId": "../x"}, "INVALID_FIELDS"),
        ({"docType": "barge", "fields": {"schema": "x"}, "docId": "../x"}, "FRONTMATTER_GUARD"),
        ({"docType": "barge", "fields": '{"doc_type": "x"}'}, "FRONTMATTER_GUARD"),
        ({"docType": "barge", "fields": {}, "docId": "../x"}, "UNKNOWN_TYPE"),
        ({"docType": "ship", "fields": {}, "docId": "../x"}, "INVALID_DOC_ID"),
        ({"docType": "ship", "fields": {}, "docId": "shp-taken"}, "DUPLICATE_DOC_ID"),
        ({"docType": "ship", "fields": {}, "docId": "shp-on-disk"}, "VALIDATION_FAILED"),
        ({"docType": "ship", "fields": {"name": "x"}, "docId": "shp-on-disk"}, "DUPLICATE_DOC_ID"),
    ],
)
def test_a_create_is_refused_for_its_first_fault(
    shared: Any, args: dict[str, Any], code: str
) -> None:
    shared.reply("maad_create", docType="ship", fields={"name": "Taken"})
    (shared.root / "ships/shp-on-disk.md").write_text("mine\n")
    assert shared.error("maad_create", **args)["code"] == code


def test_a_folder_that_leads_outside_is_told_after_what_is_wrong_with_the_call(
    open_project: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = open_project()
    create(project, "Inside")
    outside = tmp_path_factory.mktemp("outside") / "ships"
    (project.root / "ships").rename(outside)
    (project.root / "ships").symlink_to(outside)
    bad, good = ({"docType": "ship", "fields": {"name": "x" * n}} for n in (41, 1))
    assert project.error("maad_create", **bad)["code"] == "VALIDATION_FAILED"
    assert project.error("maad_create", **good)["code"] == "PATH_OUTSIDE_PROJECT"
    stale = {"docId": "shp-inside", "expectedVersion": 9}
    for tool in ("maad_update", "maad_delete"):
        assert project.error(tool, **stale)["code"] == "VERSION_CONFLICT"
        assert project.error(tool, docId="shp-inside")["code"] == "PATH_OUTSIDE_PROJECT"
    assert [path.name for path in outside.iterdir()] == ["shp-inside.md"]


EVERYTHING = {"expectedVersion": 9, "fields": {"doc_id": "x"}}


@pytest.mark.parametrize(
    ("doc_id", "args", "code"),
    [
        ("shp-none", {"body": "a", "appendBody": "b", "fields": None}, "INVALID_FIELDS"),
        ("shp-none", {"expectedVersion": 9, "fields": None}, "INVALID_FIELDS"),
        ("shp-none", {"expectedVersion": 9, "fields": [1]}, "INVALID_FIELDS"),
        ("shp-none", {"expectedVersion": 9, "fields": "[1]"}, "INVALID_FIELDS"),
        ("shp-none", EVERYTHING, "FILE_NOT_FOUND"),
        ("shp-lost", EVERYTHING, "VERSION_CONFLICT"),
        ("shp-lost", {"fields": {"doc_id": "x"}}, "FILE_READ_ERROR"),
        ("shp-broken", {"fields": {"doc_id": "x"}}, "PARSE_ERROR"),
        ("shp-other", {"fields": {"a\nb": 1, "name": ""}}, "FRONTMATTER_GUARD"),
        ("shp-fine", {"fields": {"a\nb": 1, "name": ""}}, "INVALID_FIELDS"),
        ("shp-fine", {"fields": {"name": "", "tonnage": "x"}}, "FRONTMATTER_GUARD"),
        ("shp-fine", {"unsetFields": ["schema"]}, "FRONTMATTER_GUARD"),
        ("shp-fine", {"fields": {"tonnage": "x"}}, "VALIDATION_FAILED"),
    ],
)
def test_an_update_is_refused_for_its_first_fault(
    faulty: Any, doc_id: str, args: dict[str, Any], code: str
) -> None:
    assert faulty.error("maad_update", docId=doc_id, **args)["code"] == code


@pytest.mark.parametrize(
    ("doc_id", "args", "code"),
    [
        ("shp-none", {"expectedVersion": 9}, "FILE_NOT_FOUND"),
        ("shp-lost", {"expectedVersion": 9}, "VERSION_CONFLICT"),
        ("shp-fine", {"expectedHash": "0" * 64}, "VERSION_CONFLICT"),
        ("shp-lost", {}, "FILE_READ_ERROR"),
        ("shp-broken", {}, "FILE_READ_ERROR"),
        ("shp-other", {}, "FRONTMATTER_GUARD"),
        ("shp-fine", {"mode": "gone"}, "INVALID_ARGS"),
    ],
)
def test_a_delete_is_refused_for_its_first_fault(
    faulty: Any, doc_id: str, args: dict[str, Any], code: str
) -> None:
    assert faulty.error("maad_delete", docId=doc_id, **args)["code"] == code


@pytest.fixture(scope="module")
def faulty(shared: Any) -> Any:
    """One sound record, and one for each thing that can be wrong with its file."""
    for name in ("Fine", "Lost", "Broken", "Other"):
        shared.reply("maad_create", docType="ship", fields={"name": name})
    ships = shared.root / "ships"
    (ships / "shp-lost.md").unlink()
    (ships / "shp-broken.md").write_text("---\nname: [\n---\n")
    other = (ships / "shp-other.md").read_text().replace("doc_type: ship", "doc_type: boat")
    (ships / "shp-other.md").write_text(other)
    return shared


# Deletes


def test_a_delete_counts_all_refs_and_names_ten_records(shared: Any) -> None:
    target = create(shared, "Port")
    records = [
        {"docType": "voyage", "docId": f"voy-in-{number:02}", "fields": {"ship": target}}
        for number in range(12)
    ]
    records[0]["fields"] = {"ship": target, "stops": [target]}
    assert len(shared.ok("maad_bulk_create", records=records)["succeeded"]) == 12
    inbound = shared.ok("maad_delete", docId=target)["inboundRefs"]
    assert inbound == {"count": 13, "sample": [f"voy-in-{number:02}" for number in range(10)]}


def test_a_known_hash_lets_a_delete_through(shared: Any) -> None:
    doc_id = create(shared, "Hashed")
    found = shared.ok("maad_get", docId=doc_id)["contentHash"]
    shared.ok("maad_delete", docId=doc_id, expectedHash=found, expectedVersion=1)


# Writes that the index refuses


@pytest.fixture
def fallible(open_project: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project whose index refuses every record named Bo, and can take no file back."""
    monkeypatch.setenv("MAADD_FAILPOINTS", "file.withdraw=error:EIO@2")
    project = open_project()
    project.index_trigger(
        "BEFORE INSERT ON documents WHEN new.doc_id = 'shp-bo' BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    yield project
    monkeypatch.delenv("MAADD_FAILPOINTS")
    project.reopen()


def test_a_file_that_cannot_be_indexed_is_taken_back_or_told(fallible: Any) -> None:
    bo = {"docType": "ship", "fields": {"name": "Bo"}}
    path = {"docId": "shp-bo", "filePath": "ships/shp-bo.md"}
    error = fallible.error("maad_create", **bo)
    assert (error["code"], error["details"]) == ("BACKEND_ERROR", {**path, "fileWritten": False})
    assert not (fallible.root / "ships/shp-bo.md").exists()
    stays = fallible.error("maad_create", **bo)["details"]
    assert "maad_reindex" in stays.pop("recoveryHint")
    assert stays == {**path, "fileWritten": True, "indexed": False}
    assert (fallible.root / "ships/shp-bo.md").exists()


DEEP = {"a": {"b": {"c": 1}}}


def test_a_record_that_would_not_be_read_back_names_its_file(shared: Any) -> None:
    shared.reply("maad_create", docType="ship", fields={"name": "Shallow"})
    calls = {
        "shp-deep": ("maad_create", {"docType": "ship", "fields": {"name": "Deep", "x": DEEP}}),
        "shp-shallow": ("maad_update", {"docId": "shp-shallow", "fields": {"x": DEEP}}),
    }
    for doc_id, (tool, args) in calls.items():
        error = shared.error(tool, **args)
        assert error["code"] == "YAML_PROFILE_VIOLATION"
        details = error["details"]
        assert details.items() >= {
            "docId": doc_id, "filePath": f"ships/{doc_id}.md", "fileWritten": False,
        }.items()  # fmt: skip
        assert error["message"].startswith(f"ships/{doc_id}.md:{details['line']}:")
    assert not (shared.root / "ships/shp-deep.md").exists()


def test_answers_are_json_objects(shared: Any) -> None:
    """The whole answer of each single write, member by member."""
    made = shared.ok("maad_create", docType="ship", fields={"name": "Whole"})
    assert list(made) == [
        "docId", "filePath", "version", "validation", "contentHash", "writeDurable",
    ]  # fmt: skip
    changed = shared.ok("maad_update", docId="shp-whole", fields='{"tonnage": 4}')
    assert list(changed) == [
        "docId", "docType", "version", "changedFields", "validation", "contentHash", "writeDurable",
    ]  # fmt: skip
    assert changed["contentHash"] == shared.ok("maad_get", docId="shp-whole")["contentHash"]
    gone = shared.ok("maad_delete", docId="shp-whole")
    assert list(gone) == [
        "docId", "docType", "mode", "filePath", "inboundRefs", "tombstonePath", "writeDurable",
    ]  # fmt: skip


def test_what_a_schema_advises_against_is_in_the_answer_twice(open_project: Any) -> None:
    project = open_project()
    schema = project.root / "_schema/ship.v1.yaml"
    text = schema.read_text().replace("max_length: 40", "soft_max_length: 3")
    schema.write_text(text.replace("type: date", "type: date, format: loose"))
    reply = project.reply("maad_create", docType="ship", fields={"name": "Long", "built": "2031"})
    [length, precision] = reply.meta["warnings"]
    assert set(length) == {"field", "message", "code", "location"}
    assert (length["field"], length["code"]) == ("name", "FIELD_SOFT_MAX_LENGTH_EXCEEDED")
    assert (precision["field"], precision["code"]) == ("built", "PRECISION_COARSER_THAN_DECLARED")
    validation = msgspec.json.decode(reply.body)["validation"]
    assert validation == {"valid": True, "errors": [], "warnings": reply.meta["warnings"]}
    # Neither is told again by a change of something else.
    other = project.reply("maad_update", docId="shp-long", fields={"tonnage": 1})
    assert "warnings" not in other.meta
