"""Receipts: the ordered observations, each made to happen (spec 05 §7)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contracts_project import Host, OpenHost, git, make_project, snapshot

from maadd.client import Fate, ReceiptError, reconcile
from maadd_worker.contracts import git_reader, receipt, safe_read

_VALUES = Path(__file__).parents[1] / "vectors/values/receipt-matrix.json"
_MATRIX = json.loads(_VALUES.read_text())
RECORD = "memos/me-1.md"
MALFORMED = b"---\ndoc_id: [me-1\n---\n"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose one memo is committed, to be copied."""
    root = make_project(tmp_path_factory.mktemp("committed") / "project")
    host = Host(root, "audit")
    host.create(host.request(body="Kept.\n"))
    host.close()
    return root


@pytest.fixture
def project(committed: Path, tmp_path: Path) -> Path:
    """A copy of the project with the committed memo."""
    return shutil.copytree(committed, tmp_path / "project", symlinks=True)


class Situation:
    """Brings a project into one situation of the matrix."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = host
        self.root = host.root
        self.patch = monkeypatch
        self.file = host.root / RECORD

    def index(self, how: str) -> None:
        writer = self.host.engine._index.writer()
        change = {
            "other-doc-type": "doc_type = 'other'",
            "other-schema-ref": "schema_ref = 'memo.v2'",
            "other-path": "file_path = 'memos/other.md'",
        }.get(how)
        if change is not None:
            writer.connection.execute(f"UPDATE documents SET {change} WHERE doc_id = 'me-1'")
        elif how == "missing":
            self._unindex()
        elif how == "soft-deleted":
            writer.connection.execute("UPDATE documents SET deleted = 1 WHERE doc_id = 'me-1'")
        elif how == "present-then-missing":
            self._at_the_end(self._unindex)

    def head(self, how: str) -> None:
        blob = git(self.root, "rev-parse", f"HEAD:{RECORD}").strip()
        commit = git(self.root, "rev-parse", "HEAD").strip()
        loose = self.root / f".git/objects/{blob[:2]}/{blob[2:]}"
        match how:
            case "path-absent":
                self._commit_instead("rm", "-q", "--cached", RECORD)
            case "symlink-120000":
                self._stage(f"120000,{blob},{RECORD}")
            case "gitlink-160000":
                self._stage(f"160000,{commit},{RECORD}")
            case "tree-040000":
                git(self.root, "rm", "-q", "--cached", RECORD)
                self._stage(f"100644,{blob},{RECORD}/inside")
            case "blob-100755":
                self._stage(f"100755,{blob},{RECORD}")
            case "malformed":
                self._commit_content(MALFORMED)
            case "identity-conflict":
                self._commit_content(self.file.read_bytes().replace(b"me-1", b"me-2"))
            case "blob-262145-bytes":
                text = self.file.read_bytes()
                self._commit_content(text + b"x" * (262_145 - len(text)))
            case "no-.git-directory":
                (self.root / ".git").rename(self.root / "moved")
            case ".git-is-a-file":
                (self.root / ".git").rename(self.root / "moved")
                (self.root / ".git").write_text("gitdir: moved\n")
            case "unborn":
                git(self.root, "symbolic-ref", "HEAD", "refs/heads/nothing")
            case "object-missing":
                loose.unlink()
            case "object-corrupt":
                loose.chmod(0o644)
                loose.write_bytes(zlib.compress(b"blob 5\0other"))

    def working(self, how: str) -> None:
        file = self.file
        text = file.read_bytes()
        match how:
            case "same-content-other-bytes":
                file.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n") + b" \r\n")
            case "missing":
                file.unlink()
            case "other-content":
                file.write_bytes(text.replace(b"Kept.", b"Edited."))
            case "262145-bytes":
                file.write_bytes(text + b"x" * (262_145 - len(text)))
            case "malformed":
                file.write_bytes(MALFORMED)
            case "symlink":
                file.rename(self.root / "elsewhere.md")
                file.symlink_to("../elsewhere.md")
            case "parent-symlink":
                (self.root / "memos").rename(self.root / "moved-memos")
                (self.root / "memos").symlink_to("moved-memos")
            case "directory":
                file.unlink()
                file.mkdir()
            case "fifo":
                file.unlink()
                os.mkfifo(file)
            case "eacces":
                self._fail_at("_regular", PermissionError(errno.EACCES, "denied"))
            case "eio":
                self._fail_at("_read", OSError(errno.EIO, "broken"))
            case "replaced-between-stat-and-open":
                self._after("_regular", lambda: self._replace(text))
            case "modified-during-read":
                self._within_read(lambda: file.write_bytes(text + b"more\n"))

    def cancel(self, when: str) -> None:
        gate = self.host.gate

        def withdraw() -> None:
            gate.on_wanted = lambda _: False

        match when:
            case "queued":
                withdraw()
            case "git":
                self._before(git_reader.GitReader, "_object_format", withdraw)
            case "finish":
                self._at_the_end(withdraw)

    def stale(self, when: Any) -> None:
        def edit() -> None:
            schema = self.root / "_schema/memo.v1.yaml"
            schema.write_text(schema.read_text() + "# edited\n")

        if when == "then-stale":
            self._at_the_end(edit)
        else:
            edit()

    # -- how ----------------------------------------------------------------------------

    def _at_the_end(self, act: Callable[[], None]) -> None:
        self._after("_observe", act, receipt)

    def _before(self, owner: Any, name: str, act: Callable[[], None]) -> None:
        real = getattr(owner, name)

        def first(*arguments: Any) -> Any:
            act()
            return real(*arguments)

        self.patch.setattr(owner, name, first)

    def _unindex(self) -> None:
        writer = self.host.engine._index.writer()
        with writer.transaction():
            writer.remove_document("me-1")

    def _commit_instead(self, *arguments: str) -> None:
        git(self.root, *arguments)
        git(self.root, "commit", "-q", "-m", "by a person")

    def _stage(self, entry: str) -> None:
        self._commit_instead("update-index", "--add", "--cacheinfo", entry)

    def _commit_content(self, data: bytes) -> None:
        source = self.root / "_import-content"
        source.write_bytes(data)
        blob = git(self.root, "hash-object", "-w", "--no-filters", str(source)).strip()
        source.unlink()
        self._stage(f"100644,{blob},{RECORD}")

    def _replace(self, text: bytes) -> None:
        other = self.root / "memos/other.tmp"
        other.write_bytes(text)
        other.rename(self.file)

    def _fail_at(self, name: str, failure: OSError) -> None:
        def fail(*_: object) -> None:
            raise failure

        self.patch.setattr(safe_read, name, fail)

    def _after(self, name: str, act: Callable[[], None], owner: Any = safe_read) -> None:
        real = getattr(owner, name)

        def then(*arguments: Any) -> Any:
            result = real(*arguments)
            act()
            return result

        self.patch.setattr(owner, name, then)

    def _within_read(self, act: Callable[[], object]) -> None:
        real = safe_read._read

        def read(fd: int, seen: os.stat_result, rel: str, check: safe_read.Check) -> bytes:
            def meddle() -> None:
                act()
                check()

            return real(fd, seen, rel, meddle)

        self.patch.setattr(safe_read, "_read", read)


@pytest.mark.parametrize("row", _MATRIX["rows"], ids=lambda row: row["name"])
def test_the_first_observation_that_hits_decides(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    given = row["given"]
    host = open_host(given["mode"])
    situation = Situation(host, monkeypatch)
    if not given["gitLayer"]:
        around = host.engine._contracts._around
        host.engine._contracts._around = msgspec.structs.replace(around, git=None)
    if not given["readyAfterLock"]:
        host.engine.index_empty = 1
    arguments = host.receipt_request()
    if given.get("expected") in ("equal", "different"):
        digest = host.request(body="Kept.\n")["expectedContentDigest"]
        arguments["expectedContentDigest"] = digest if given["expected"] == "equal" else "0" * 64
    if given["mode"] != "read":
        situation.index(given["index"])
    if "cancel" in given:
        situation.cancel(given["cancel"])
    if given["schemasFresh"] is not True:
        situation.stale(given["schemasFresh"])
    situation.head(given["head"])
    situation.working(given["working"])

    reply = host.reply("maad_document_receipt", arguments)
    if not row["ok"]:
        assert reply.error_code == row["code"], reply.body
        return
    assert reply.ok, reply.body
    data = msgspec.json.decode(reply.body)
    assert (data["status"], data["reason"]) == (row["status"], row["reason"])
    assert data["index"] == {"state": row["indexState"]}
    working = data["workingTree"]
    assert working["state"] == row["workingState"]
    assert (working["rawSha256"] is not None) is row["workingHashes"]
    assert (working["contentDigest"] is not None) is row["workingHashes"]
    assert (data["committed"] is not None) is row["committed"]
    assert data["expectedDigestMatch"] is row["expectedDigestMatch"]


def test_every_member_of_a_receipt(open_host: OpenHost) -> None:
    host = open_host()
    before = snapshot(host.root), host.engine.health()["lastWriteAt"]
    data = host.receipt()
    assert set(data) == {
        "contract", "engineVersion", "project", "docId", "docType", "observedAt",
        "effectiveHistoryMode", "projection", "expectedContentDigest", "status", "reason",
        "index", "workingTree", "committed", "expectedDigestMatch",
    }  # fmt: skip
    committed = data["committed"]
    assert set(committed) == {
        "evidenceKind", "objectFormat", "commitOid", "treeOid", "blobOid", "rawSha256",
        "byteLength", "rawMarkdown", "frontmatter", "body", "contentDigest",
    }  # fmt: skip
    assert committed["commitOid"] == git(host.root, "rev-parse", "HEAD").strip()
    assert committed["treeOid"] == git(host.root, "rev-parse", "HEAD^{tree}").strip()
    assert committed["rawMarkdown"] == (host.root / RECORD).read_text()
    assert committed["body"] == "Kept."
    assert data["observedAt"].endswith("Z")
    assert snapshot(host.root) == before[0]
    assert host.engine.health()["lastWriteAt"] == before[1]


def test_a_diverged_file_tells_its_keys_beside_the_data(open_host: OpenHost) -> None:
    host = open_host()
    file = host.root / RECORD
    file.write_text(file.read_text().replace("Harbour", "Market").replace("Kept.", "Other."))
    reply = host.reply("maad_document_receipt", host.receipt_request())
    assert reply.meta == {"workingTree": {"changedKeys": ["topic", "body"]}}


@pytest.mark.parametrize("mode", ["batch", "snapshot"])
def test_what_waits_for_its_commit_is_not_committed(open_host: OpenHost, mode: str) -> None:
    host = open_host(mode)
    host.create(host.request("me-2"))
    assert host.receipt("me-2")["reason"] == "uncommitted"
    host.ok("maad_update", {"docId": "me-1", "fields": {"topic": "Other"}})
    assert host.receipt("me-1")["reason"] == "working_tree_diverged"
    host.ok("maad_flush")
    assert host.receipt("me-2")["status"] == "committed_content_available"


def test_a_receipt_after_a_restart_and_on_a_read_only_engine(open_host: OpenHost) -> None:
    host = open_host()
    before = host.receipt()["committed"]
    host.reopen()
    assert host.receipt()["committed"] == before
    host.reopen("read")
    assert host.receipt()["committed"] == before


def test_a_repository_of_sha256_objects(tmp_path: Path) -> None:
    root = tmp_path / "project"
    shutil.rmtree(make_project(root) / ".git")
    git(root, "init", "-q", "-b", "main", "--object-format=sha256", "--template=")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "fixture")
    host = Host(root, "feed")
    request = host.request()
    host.create(request)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "by a person")
    host.reopen("read")
    data = host.receipt()
    assert data["committed"]["objectFormat"] == "sha256"
    assert len(data["committed"]["blobOid"]) == 64
    digest = request["expectedContentDigest"]
    found = reconcile(data, doc_type="memo", doc_id="me-1", content_digest=digest)
    assert found.fate is Fate.COMMITTED
    host.close()


def test_a_sharded_type_has_two_places(open_host: OpenHost) -> None:
    host = open_host()
    registry = host.root / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().replace("memo.v1}", "memo.v1, shard: 2}"))
    host.ok("maad_reload")
    assert host.receipt()["status"] == "committed_content_available"
    host.create(host.request("me-2"))
    assert host.receipt("me-2")["status"] == "committed_content_available"


@pytest.mark.parametrize(
    ("cause", "spoil"),
    [
        ("git_dir_missing", lambda root: shutil.rmtree(root / ".git")),
        ("unborn_head", lambda root: git(root, "symbolic-ref", "HEAD", "refs/heads/none")),
    ],
)
def test_a_storage_error_names_its_cause(
    open_host: OpenHost, cause: str, spoil: Callable[[Path], object]
) -> None:
    host = open_host()
    spoil(host.root)
    error = host.error("maad_document_receipt", host.receipt_request())
    assert (error["code"], error["details"]["cause"]) == ("RECEIPT_STORAGE_ERROR", cause)


def test_the_configuration_of_the_user_has_no_say(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = open_host()
    (tmp_path / "hooks.cfg").write_text("[core]\n  fsmonitor = exit 1\n[broken\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "hooks.cfg"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert host.receipt()["status"] == "committed_content_available"


def test_names_have_the_strict_grammar(open_host: OpenHost, vectors: Any) -> None:
    host = open_host()
    values = vectors("contract-requests")
    for row in values["docIds"]:
        reply = host.reply("maad_document_receipt", host.receipt_request(row["id"]))
        if row["receiptOk"]:
            assert reply.ok, row
        else:
            # Beyond the wire's bounds it is the form that is wrong, not yet the name.
            expected = ("INVALID_DOC_ID",) if row["id"] else ("INVALID_FIELDS",)
            assert reply.error_code in expected, row
            if row["id"]:
                (error,) = msgspec.json.decode(reply.body)
                assert error["details"]["reason"] == row["reason"]
    for row in values["receiptDocTypes"]:
        arguments = host.receipt_request() | {"docType": row["docType"]}
        code = host.error("maad_document_receipt", arguments)["code"]
        assert code == ("UNKNOWN_TYPE" if row["ok"] else "INVALID_FIELDS"), row


def test_a_receipt_that_was_tampered_with_proves_nothing(open_host: OpenHost) -> None:
    host = open_host()
    taken = host.receipt()
    digest = taken["committed"]["contentDigest"]
    asked = {"doc_type": "memo", "doc_id": "me-1", "content_digest": digest}
    assert reconcile(taken, **asked).fate is Fate.COMMITTED
    other = reconcile(taken, **asked | {"content_digest": "0" * 64})
    assert other.fate is Fate.OTHER_CONTENT
    for change in (
        {"rawMarkdown": "x"},
        {"body": "x"},
        {"frontmatter": {}},
        {"contentDigest": "0" * 64},
        {"blobOid": "0" * 40},
        {"byteLength": 1},
        {"objectFormat": "md5"},
    ):
        spoiled = taken | {"committed": taken["committed"] | change}
        with pytest.raises(ReceiptError):
            reconcile(spoiled, **asked)
    with pytest.raises(ReceiptError):
        reconcile(taken | {"docId": "me-2"}, **asked)
    unverified = taken | {"status": "unverified", "reason": "uncommitted", "committed": None}
    found = reconcile(unverified, **asked)
    assert (found.fate, found.reason) == (Fate.UNKNOWN, "uncommitted")
