"""Guarded create writes exactly what its caller expects, or nothing (spec 05 §6)."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contracts_project import Host, OpenHost, git, snapshot

from maadd.client import Fate, content_digest, new_document_digest, reconcile
from maadd.protocol.errors import WireError
from maadd.protocol.messages import Identity, ResultBudget
from maadd.protocol.strict_json import parse_json


def refused(host: Host, request: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The refusal of a create; nothing in the project is another than before."""
    host.catch_up()
    before = snapshot(host.root), host.engine.health(), host.engine._in_use.taken
    error = host.error("maad_create_guarded", request, **more)
    health = host.engine.health()
    assert snapshot(host.root) == before[0]
    assert health["lastWriteAt"] == before[1]["lastWriteAt"]
    assert health["history"] == before[1]["history"]
    assert host.engine._in_use.taken is before[2]
    return error


def test_the_document_is_written_and_committed_as_expected(open_host: OpenHost) -> None:
    host = open_host()
    request = host.request(fields={"topic": "Dues", "labels": ["north", "q3"]}, body="# Dues\n")
    identity = Identity("tok-1", "agent", None)
    reply = host.reply("maad_create_guarded", request, identity=identity)
    data = msgspec.json.decode(reply.body)
    assert data == {
        "docId": "me-1",
        "filePath": "memos/me-1.md",
        "version": 1,
        "validation": {"valid": True, "errors": [], "warnings": []},
        "writeDurable": True,
        "contract": "guarded-create-v1",
        "schemaDigest": request["expectedSchemaDigest"],
        "contentDigest": request["expectedContentDigest"],
        "effectiveHistoryMode": "audit",
        "contentHash": data["contentHash"],
    }
    assert reply.meta is not None
    assert reply.meta["write_durable"] is True
    assert reply.meta["history"]["outcome"] == "committed"
    assert reply.audit is not None
    assert reply.audit["changed_fields"] == []
    assert "token: tok-1" in git(host.root, "log", "-1", "--format=%B")
    (event,) = host.engine.poll_events()
    assert (event.action, event.doc_id, event.origin) == ("create", "me-1", "tool")
    assert (host.root / "memos/me-1.md").read_text() == (
        "---\ndoc_id: me-1\ndoc_type: memo\nschema: memo.v1\ntopic: Dues\n"
        "labels: [north, q3]\n---\n\n# Dues\n\n"
    )
    receipt = host.receipt()
    done = reconcile(
        receipt, doc_type="memo", doc_id="me-1", content_digest=request["expectedContentDigest"]
    )
    assert done.fate is Fate.COMMITTED


@pytest.mark.parametrize("body", ["a\r\r\nb", "\r\r\n\r\na\r\n\r\r\r\nb\r\r\n", "a\rb\n\rc"])
def test_the_receipt_of_a_create_proves_every_mix_of_line_ends(
    open_host: OpenHost, body: str
) -> None:
    host = open_host()
    request = host.request(body=body)
    host.create(request)
    digest = request["expectedContentDigest"]
    done = reconcile(host.receipt(), doc_type="memo", doc_id="me-1", content_digest=digest)
    assert done.fate is Fate.COMMITTED


def test_an_empty_body_never_becomes_the_template(open_host: OpenHost) -> None:
    host = open_host("feed")
    host.create(host.request(body=""))
    assert (host.root / "memos/me-1.md").read_text().endswith("topic: Harbour dues\n---\n")


@pytest.mark.parametrize(
    "body", ["---\ntitle: no\n---\ntext\n", "a\n---\nb\n---\n", "```\n---\n```"]
)
def test_rules_in_a_body_are_body(open_host: OpenHost, body: str) -> None:
    host = open_host()
    request = host.request(body=body)
    host.create(request)
    committed = host.receipt()["committed"]
    assert committed["contentDigest"] == request["expectedContentDigest"]
    assert committed["frontmatter"]["topic"] == "Harbour dues"


def test_defaults_of_the_schema_are_not_added(open_host: OpenHost, project: Path) -> None:
    schema = project / "_schema/memo.v1.yaml"
    schema.write_text(schema.read_text() + "")
    text = schema.read_text().replace("day: {type: date}", "day: {type: date, default: 2026-01-01}")
    schema.write_text(text)
    host = open_host("feed")
    host.create(host.request())
    assert "day" not in (host.root / "memos/me-1.md").read_text()


def test_the_documents_of_the_format_come_out_byte_for_byte(
    open_host: OpenHost, project: Path, vectors: Callable[[str], dict[str, Any]]
) -> None:
    values = vectors("guarded-create-documents")
    registry = project / "_registry/object_types.yaml"
    registry.write_text("types:\n  note: {path: notes, id_prefix: nt, schema: note.v1}\n")
    schema = project / "_schema/note.v1.yaml"
    host = None
    for row in values["documents"]:
        fields = "".join(
            f"  {name}: {{type: {_kind(row, name)}}}\n" for name in row["schemaFields"]
        )
        required = ", ".join(row["schemaRequired"])
        schema.write_text(f"type: note\nrequired: [{required}]\nfields:\n{fields}")
        host = host or open_host("feed")
        done = host.create(_note(host, row["docId"], row["fields"], row["body"]))
        assert done["contentDigest"] == row["contentDigest"], row["name"]
        written = (project / f"notes/{row['docId']}.md").read_bytes()
        assert written == base64.b64decode(row["rawBase64"]), row["name"]


def _kind(row: dict[str, Any], name: str) -> str:
    kinds = {list: "list", bool: "boolean", int: "number", float: "number"}
    return kinds.get(type(row["fields"].get(name)), "string")


def _note(host: Host, doc_id: str, fields: dict[str, Any], body: str) -> dict[str, Any]:
    asked = {"contract": "create-contract-v1", "docType": "note"}
    return {
        "contract": "guarded-create-v1",
        "docType": "note",
        "docId": doc_id,
        "fields": fields,
        "body": body,
        "expectedSchemaDigest": host.ok("maad_create_contract", asked)["schemaDigest"],
        "expectedContentDigest": new_document_digest(doc_id, "note", "note.v1", fields, body),
        "allowedHistoryModes": ["feed"],
    }


def test_what_a_file_cannot_hold_is_refused(
    open_host: OpenHost, vectors: Callable[[str], dict[str, Any]]
) -> None:
    host = open_host("feed")
    for row in vectors("guarded-create-documents")["mustReject"]:
        fields = {
            "topic" if k == "title" else k: v for k, v in parse_json(row["fieldsJson"]).items()
        }
        request = host.request(fields=fields, body=parse_json(row["bodyJson"]))
        error = refused(host, request)
        assert error["code"] == "INVALID_FIELDS", row["name"]
        assert error["details"]["cause"] == "not_preserved"


def test_what_survives_exactly_is_accepted_whatever_its_shape(
    open_host: OpenHost, vectors: Callable[[str], dict[str, Any]]
) -> None:
    host = open_host("feed")
    for number, row in enumerate(vectors("guarded-create-documents")["writerDependent"]):
        fields = {
            "topic" if k == "title" else k: v for k, v in parse_json(row["fieldsJson"]).items()
        }
        if "newline" in row["name"]:
            continue
        host.create(host.request(f"me-{number}", fields, parse_json(row["bodyJson"])))


@pytest.mark.parametrize(
    ("fields", "body", "path"),
    [
        ({"extra": {"a": {"b": {"c": 1}}}}, "", "extra"),
        ({"extra": {"a": {"b": {"c": [1]}}}}, "", "extra"),
        ({"extra": "\ud800"}, "", "extra"),
        ({}, "half \ud800", "body"),
    ],
)
def test_what_would_not_survive_is_named_as_the_client_knows_it(
    open_host: OpenHost, fields: dict[str, Any], body: str, path: str
) -> None:
    host = open_host("feed")
    error = refused(host, host.request(fields={"topic": "x", **fields}, body=body))
    assert error["code"] == "INVALID_FIELDS"
    assert error["details"] == {"cause": "not_preserved", "path": path}
    assert error["message"].startswith(f"{path}: ")
    assert "new record" not in error["message"]
    assert ("nested" in error["message"]) is isinstance(fields.get("extra"), dict)


def test_a_refused_id_is_told_which_part_of_it_is_meant(open_host: OpenHost) -> None:
    host = open_host("feed")
    error = refused(host, host.request("a-.b"))
    assert error["details"] == {"field": "docId", "cause": "INVALID_CHARS"}
    assert "the part before the first dot" in error["message"]


@pytest.mark.parametrize(
    ("source", "details"),
    [
        ('{"topic":"x","n":9007199254740993}', {"path": "fields.n", "cause": "inexact_integer"}),
        ('{"topic":"x","n":[1,{"m":-9007199254740993}]}', {"path": "fields.n[1].m"}),
        ('{"topic":"x","topic":"y"}', {"path": "topic", "cause": "duplicate_member"}),
        ('{"topic":"x","m":{"a":1,"a":1}}', {"path": "a", "cause": "duplicate_member"}),
    ],
)
def test_numbers_and_names_count_as_they_were_written(
    open_host: OpenHost, source: str, details: dict[str, Any]
) -> None:
    host = open_host("feed")
    request = host.request()
    rest = json.dumps({k: v for k, v in request.items() if k != "fields"})
    text = f'{rest[:-1]},"fields":{source},"_progress":1}}'.encode()
    before = snapshot(host.root)
    error = host.error("maad_create_guarded", {}, source=text)
    assert error["code"] == "INVALID_FIELDS"
    assert error["details"].items() >= details.items()
    assert snapshot(host.root) == before


@pytest.mark.parametrize(
    "number", [10**21, 12345678901234567890 // 2048 * 2048, -(2**53), 1e-7, -0.0, 5e-324, 2**70]
)
def test_every_double_survives(open_host: OpenHost, number: float) -> None:
    host = open_host("feed")
    fields = {"topic": "x", "n": number}
    request = host.request(fields=fields)
    data = host.ok("maad_create_guarded", {}, source=json.dumps(request).encode())
    assert data["contentDigest"] == request["expectedContentDigest"]


def test_an_endless_integer_is_no_number(open_host: OpenHost) -> None:
    host = open_host("feed")
    request = json.dumps(host.request()).replace('"Harbour dues"', "9" * 5000)
    error = host.error("maad_create_guarded", {}, source=request.encode())
    assert error["code"] == "INVALID_FIELDS"


def test_requests_that_break_the_form_are_refused_before_anything(
    open_host: OpenHost, vectors: Callable[[str], dict[str, Any]]
) -> None:
    host = open_host("feed")
    values = vectors("contract-requests")["guardedCreate"]
    for row in values["accept"]:
        # The digests are invented, so what is well-formed fails by its contract.
        request = values["base"] | row["set"] | {"allowedHistoryModes": ["feed"]}
        assert refused(host, request)["code"] == "SCHEMA_CONTRACT_CHANGED", row["name"]
    for row in values["reject"]:
        request = values["base"] | row["set"]
        for name in row["unset"]:
            del request[name]
        error = host.error("maad_create_guarded", request)
        assert error["code"] == row["engineCode"], row["name"]


def test_the_size_of_a_request_is_bounded(
    open_host: OpenHost, vectors: Callable[[str], dict[str, Any]]
) -> None:
    host = open_host("feed")
    values = vectors("contract-requests")["guardedCreate"]
    base = values["base"] | {"allowedHistoryModes": ["feed"]}
    bare = len(json.dumps(base, separators=(",", ":")).encode())
    for row in values["sizes"]:
        request = dict(base)
        if "bodyPadToCanonicalBytes" in row:
            request["body"] = "x" * (row["bodyPadToCanonicalBytes"] - bare)
        elif "bodyBytes" in row:
            request["body"] = "x" * row["bodyBytes"]
        elif "fieldsNestedArrays" in row:
            value: list[Any] = []
            for _ in range(row["fieldsNestedArrays"] - 1):
                value = [value]
            request["fields"] = {"v": value}
        else:
            request["fields"] = {"v": [0] * row["fieldsZeros"]}
        code = host.error("maad_create_guarded", request)["code"]
        # The digests are invented: what is within the bounds is judged by its contract next.
        assert code == (row["engineCode"] or "SCHEMA_CONTRACT_CHANGED"), row["name"]


def test_ids_have_the_strict_grammar(
    open_host: OpenHost, vectors: Callable[[str], dict[str, Any]]
) -> None:
    host = open_host("feed")
    digest = host.contract()["schemaDigest"]
    for row in vectors("contract-requests")["docIds"]:
        request = host.request(row["id"], schema=digest, expectedSchemaDigest="0" * 64)
        error = host.error("maad_create_guarded", request)
        expected = "SCHEMA_CONTRACT_CHANGED" if row["guardedOk"] else "INVALID_FIELDS"
        assert error["code"] == expected, row


def test_names_of_the_engine_are_not_for_callers(open_host: OpenHost) -> None:
    host = open_host("feed")
    fields = {"topic": "x", "doc_type": "memo"}
    assert refused(host, host.request(fields=fields))["code"] == "FRONTMATTER_GUARD"


def test_hidden_names_are_unknown_to_the_engine_itself(open_host: OpenHost) -> None:
    host = open_host("feed")
    assert refused(host, host.request(_trace=1))["code"] == "INVALID_FIELDS"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"expectedSchemaDigest": "0" * 64}, "SCHEMA_CONTRACT_CHANGED"),
        ({"expectedContentDigest": "0" * 64}, "CONTENT_DIGEST_MISMATCH"),
        ({"allowedHistoryModes": ["batch"]}, "HISTORY_MODE_MISMATCH"),
        ({"docType": "Memo"}, "UNKNOWN_TYPE"),
        ({"fields": {}}, "VALIDATION_FAILED"),
        ({"fields": {"topic": "x", "day": "not a day"}}, "VALIDATION_FAILED"),
    ],
)
def test_each_disagreement_has_its_code_and_leaves_no_trace(
    open_host: OpenHost, changed: dict[str, Any], code: str
) -> None:
    host = open_host("audit")
    assert refused(host, host.request(**changed))["code"] == code


def test_a_digest_over_the_fields_alone_is_another(open_host: OpenHost) -> None:
    host = open_host("feed")
    digest = content_digest("me-1", "memo", {"topic": "Harbour dues"}, "")
    request = host.request(expectedContentDigest=digest)
    assert refused(host, request)["code"] == "CONTENT_DIGEST_MISMATCH"


def test_changed_fields_under_an_old_digest_are_another_document(open_host: OpenHost) -> None:
    host = open_host("feed")
    request = host.request() | {"fields": {"topic": "Something else"}}
    assert refused(host, request)["code"] == "CONTENT_DIGEST_MISMATCH"


def test_the_same_request_twice_creates_once(open_host: OpenHost) -> None:
    host = open_host()
    request = host.request()
    host.create(request)
    assert refused(host, request)["code"] == "DUPLICATE_DOC_ID"


def test_a_deleted_id_is_taken(open_host: OpenHost) -> None:
    host = open_host("feed")
    host.create(host.request())
    host.ok("maad_delete", {"docId": "me-1", "mode": "soft"})
    assert refused(host, host.request())["code"] == "DUPLICATE_DOC_ID"


def test_a_stray_file_is_left_alone(open_host: OpenHost) -> None:
    host = open_host("feed")
    (host.root / "memos/me-1.md").write_text("mine\n")
    assert refused(host, host.request())["code"] == "DUPLICATE_DOC_ID"


def test_a_read_only_project_is_read_only_whatever_is_allowed(open_host: OpenHost) -> None:
    host = open_host("feed")
    digest = host.contract()["schemaDigest"]
    host.reopen("read")
    request = host.request(schema=digest, allowedHistoryModes=["read"])
    assert host.error("maad_create_guarded", request)["code"] == "READ_ONLY"


def test_a_linked_type_folder_is_outside(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host("feed")
    request = host.request()
    (tmp_path / "elsewhere").mkdir()
    (host.root / "memos").rmdir()
    (host.root / "memos").symlink_to(tmp_path / "elsewhere")
    assert host.error("maad_create_guarded", request)["code"] == "PATH_OUTSIDE_PROJECT"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_missing_type_folder_is_made_by_the_create_alone(open_host: OpenHost) -> None:
    host = open_host("feed")
    (host.root / "memos").rmdir()
    request = host.request()
    assert not (host.root / "memos").exists()
    host.create(request)
    assert (host.root / "memos/me-1.md").exists()


def test_an_edit_of_equal_size_and_time_is_another_contract(open_host: OpenHost) -> None:
    host = open_host("feed")
    request = host.request()
    schema = host.root / "_schema/memo.v1.yaml"
    before = schema.stat()
    schema.write_text(schema.read_text().replace("max_length: 200", "max_length: 100"))
    os.utime(schema, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert refused(host, request)["code"] == "SCHEMA_CONTRACT_CHANGED"


def test_the_engine_goes_on_with_the_schema_of_the_create(open_host: OpenHost) -> None:
    host = open_host("feed")
    schema = host.root / "_schema/memo.v1.yaml"
    schema.write_text(schema.read_text().replace("max_length: 200", "max_length: 5"))
    fields = {"topic": "short"}
    host.create(host.request(fields=fields))
    error = host.error("maad_create", {"docType": "memo", "fields": {"topic": "longer"}})
    assert error["code"] == "VALIDATION_FAILED"
    # Later edits are noticed as ever.
    schema.write_text(schema.read_text().replace("max_length: 5", "max_length: 50"))
    host.ok("maad_create", {"docType": "memo", "fields": {"topic": "longer"}})


def test_a_refusal_leaves_the_schema_of_the_engine_alone(open_host: OpenHost) -> None:
    host = open_host("feed")
    schema = host.root / "_schema/memo.v1.yaml"
    stored = host.engine._in_use.taken
    schema.write_text(schema.read_text() + "# a remark\n")
    host.error("maad_create_guarded", host.request(expectedContentDigest="0" * 64))
    assert host.engine._in_use.taken is stored


def test_without_a_permit_nothing_is_published(open_host: OpenHost) -> None:
    host = open_host()
    host.gate.on_permit = lambda: WireError("TOKEN_REVOKED", "revoked meanwhile")
    assert refused(host, host.request())["code"] == "TOKEN_REVOKED"
    assert host.gate.permits == 1


def test_the_permit_is_asked_last(open_host: OpenHost) -> None:
    host = open_host()
    request = host.request()
    looks: list[int] = []

    def permit() -> None:
        looks.append(host.gate.looks)
        assert not (host.root / "memos/me-1.md").exists()

    host.gate.on_permit = permit
    host.create(request)
    assert looks == [host.gate.looks]


def test_a_schema_edited_before_the_permit_is_caught(open_host: OpenHost) -> None:
    """At every look of the create at its schema, an edit ends it or is part of it."""
    host = open_host("feed")
    schema = host.root / "_schema/memo.v1.yaml"
    original = schema.read_text()
    request = host.request()
    host.gate.looks = 0
    host.gate.on_wanted = lambda _: True
    probe = host.request("me-probe", schema=request["expectedSchemaDigest"])
    host.create(probe)
    steps = host.gate.looks
    codes = set()
    for step in range(1, steps + 1):
        host.gate.looks = 0

        def edit(look: int, at: int = step) -> bool:
            if look == at:
                schema.write_text(original.replace("max_length: 200", "max_length: 150"))
            return True

        host.gate.on_wanted = edit
        reply = host.reply("maad_create_guarded", request)
        if reply.ok:
            # The last looks come after everything was read: the create was before the edit.
            (host.root / "memos/me-1.md").unlink()
            host.gate.on_wanted = lambda _: True
            host.ok("maad_reindex", {"force": True})
        else:
            codes.add(reply.error_code)
        schema.write_text(original)
    assert codes <= {"SCHEMA_CONTRACT_CHANGED", "RECEIPT_OBSERVATION_CHANGED"}
    assert "SCHEMA_CONTRACT_CHANGED" in codes


def test_a_cancelled_create_reads_nothing_more(open_host: OpenHost) -> None:
    host = open_host("feed")
    request = host.request()
    host.gate.looks = 0
    host.gate.on_wanted = lambda look: look < 5
    assert refused(host, request)["code"] == "REQUEST_TIMEOUT"
    assert host.gate.looks == 5


def test_a_failed_commit_is_told_and_tried_once(open_host: OpenHost) -> None:
    host = open_host()
    request = host.request()
    (host.root / ".git/HEAD.lock").write_text("")
    (host.root / ".git/index.lock").write_text("")
    reply = host.reply("maad_create_guarded", request)
    data = msgspec.json.decode(reply.body)
    assert data["writeDurable"] is False
    assert data["commitFailure"]["action"] == "create"
    assert reply.meta is not None
    assert reply.meta["write_durable"] is False
    assert host.engine.poll_events() == []
    assert (host.root / "memos/me-1.md").exists()
    (host.root / ".git/index.lock").unlink()
    (host.root / ".git/HEAD.lock").unlink()


def test_a_published_document_stays_when_it_cannot_be_indexed(open_host: OpenHost) -> None:
    host = open_host("feed")
    request = host.request()
    connection = host.engine._index.writer().connection
    connection.execute(
        "CREATE TEMP TRIGGER meddle BEFORE INSERT ON documents "
        "BEGIN SELECT RAISE(ABORT, 'meddled'); END"
    )
    error = host.error("maad_create_guarded", request)
    assert (
        error["details"].items()
        >= {
            "docId": "me-1",
            "filePath": "memos/me-1.md",
            "fileWritten": True,
            "indexed": False,
            "writeOutcome": "unknown_reconcile",
        }.items()
    )
    assert "maad_reindex" in error["details"]["recoveryHint"]
    assert (host.root / "memos/me-1.md").exists()


def test_a_rehearsal_tells_what_would_be_admitted(open_host: OpenHost) -> None:
    host = open_host("feed")
    good = host.request()
    cases = [
        (good, True, True, True),
        (good | {"expectedSchemaDigest": "0" * 64}, False, False, True),
        (good | {"expectedContentDigest": "0" * 64}, True, False, True),
        (good | {"allowedHistoryModes": ["batch"]}, True, True, False),
        (good | {"fields": None}, False, False, False),
    ]
    before = snapshot(host.root)
    for request, schema, content, history in cases:
        data = host.ok("maad_create_guarded", request, dry_run=True)
        assert data == {
            "dryRun": True,
            "wouldAdmit": {"schema": schema, "content": content, "history": history},
        }
    assert snapshot(host.root) == before
    assert host.gate.permits == 0


def test_an_acknowledgement_loses_its_warnings_before_itself(
    open_host: OpenHost, project: Path
) -> None:
    schema = project / "_schema/memo.v1.yaml"
    fields = "".join(
        f"  f{i}: {{type: string, max_length: 900, soft_max_length: 1}}\n" for i in range(60)
    )
    schema.write_text(f"type: memo\nfields:\n  topic: {{type: string}}\n{fields}")
    host = open_host("feed")
    request = host.request(fields={"topic": "x", **{f"f{i}": "ab" for i in range(60)}})
    host.budget = ResultBudget(8_192)
    reply = host.reply("maad_create_guarded", request)
    data = msgspec.json.decode(reply.body)
    assert data["validation"] == {
        "valid": True,
        "errors": [],
        "warnings": [],
        "warningCount": 60,
    }
    assert reply.meta is not None
    assert "warnings" not in reply.meta
    assert len(reply.body) < 1_000


def test_ordinary_creates_know_nothing_of_contracts(open_host: OpenHost) -> None:
    host = open_host("feed")
    data = host.ok("maad_create", {"docType": "memo", "fields": {"topic": "x"}})
    assert not {"contract", "schemaDigest", "contentDigest"} & set(data)


def test_contract_and_create_judge_one_schema_once(open_host: OpenHost) -> None:
    host = open_host("feed")
    preparations = host.engine._contracts._around.preparations
    request = host.request()
    host.contract()
    host.create(request)
    assert preparations.compiled == 1
    host.ok("maad_reload")
    host.contract()
    host.contract()
    assert preparations.compiled == 2


def test_creates_from_threads_write_each_document_once(open_host: OpenHost) -> None:
    host = open_host("feed")
    request = host.request()
    digest = request["expectedSchemaDigest"]
    requests = [request, request, host.request("me-2", schema=digest)]
    lock = threading.Lock()
    outcomes: list[str | None] = []

    def create(one: dict[str, Any]) -> None:
        with lock:  # The worker has one writer; arrival order is up to the threads.
            outcomes.append(host.reply("maad_create_guarded", one).error_code)

    threads = [threading.Thread(target=create, args=(one,)) for one in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == ["DUPLICATE_DOC_ID", None, None]
