"""The token registry: issue, revoke, rotate, reload, and other processes (spec 04 §7)."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.auth import tokens_file
from maadd.auth.boot import check_bootable
from maadd.auth.issue import TokenSpec
from maadd.auth.record import ProjectGrant, TokenRecord, expiry_of, hash_plaintext, token_state
from maadd.auth.registry import RegistryCounts, TokenRegistry
from maadd.auth.scope import Requester
from maadd.auth.tokens_file import file_stamp
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role

ADMIN = TokenSpec(Role.ADMIN, (ProjectGrant("*"),), name="root")
READER = TokenSpec(
    Role.READER,
    (ProjectGrant("permits", Role.READER),),
    agent_id="agt-1",
    user_id="u-1",
    expires_at="2099-01-01T00:00:00+02:00",
)


def code(caught: pytest.ExceptionInfo[MaadError]) -> str:
    return caught.value.code


def load(path: Path, **options: object) -> TokenRegistry:
    return TokenRegistry.load(str(path), **options)


def test_an_absent_file_is_an_empty_registry(tokens_path: Path) -> None:
    registry = load(tokens_path)
    assert not registry.present
    assert registry.records() == ()
    assert registry.counts() == RegistryCounts(0, 0)
    assert not tokens_path.parent.exists()


def test_the_first_issue_makes_a_private_folder_and_file(tokens_path: Path) -> None:
    umask = os.umask(0o002)
    try:
        issued = load(tokens_path).issue(ADMIN)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(tokens_path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(tokens_path.stat().st_mode) == 0o600
    assert {entry.name for entry in tokens_path.parent.iterdir()} == {"tokens.yaml", "tokens.lock"}
    text = tokens_path.read_text()
    assert issued.plaintext not in text
    assert hash_plaintext(issued.plaintext) in text


def test_a_registry_behind_a_link_is_changed_where_it_lies(tokens_path: Path) -> None:
    elsewhere = tokens_path.parents[1] / "secrets/registry.yaml"
    elsewhere.parent.mkdir(mode=0o700)
    tokens_path.parent.mkdir(mode=0o700)
    tokens_path.symlink_to(elsewhere)
    registry = TokenRegistry.load(str(tokens_path))
    spec = TokenSpec(role=Role.READER, projects=(ProjectGrant("*"),))
    first = registry.issue(spec).record.id
    second = registry.issue(spec).record.id
    assert tokens_path.is_symlink()
    # One lock for all who find the registry by some link.
    assert set(os.listdir(elsewhere.parent)) == {"registry.yaml", "tokens.lock"}
    assert os.listdir(tokens_path.parent) == ["tokens.yaml"]
    stored = TokenRegistry.load(str(elsewhere)).records()
    assert [record.id for record in stored] == [first, second]


def test_a_registry_behind_a_link_is_kept_from_others_there_too(tokens_path: Path) -> None:
    elsewhere = tokens_path.parents[1] / "secrets"
    elsewhere.mkdir(mode=0o700)
    tokens_path.parent.mkdir(mode=0o700)
    tokens_path.symlink_to(elsewhere / "registry.yaml")
    TokenRegistry.load(str(tokens_path)).issue(ADMIN)
    elsewhere.chmod(0o755)
    assert TokenRegistry.load(str(tokens_path)).warnings == []
    for mode in (0o775, 0o1777):  # its lock, too, is nobody else's
        elsewhere.chmod(mode)
        with pytest.raises(
            MaadError, match=rf"may write in the folder {elsewhere} .* 'chmod go-w'"
        ):
            TokenRegistry.load(str(tokens_path))


@pytest.mark.parametrize("kind", [os.symlink, os.link])
def test_a_planted_lock_gives_nothing_away(tokens_path: Path, kind: Any) -> None:
    load(tokens_path).issue(ADMIN)
    lock, victim = tokens_path.with_name("tokens.lock"), tokens_path.parents[1] / "victim"
    victim.write_text("secret")
    os.chmod(victim, 0o640)
    lock.unlink()
    kind(victim, lock)
    before = os.stat(victim)
    tokens_path.parent.chmod(0o700)
    if kind is os.symlink:
        with pytest.raises(MaadError, match="cannot be locked: Too many levels of symbolic links"):
            load(tokens_path).issue(ADMIN)
    else:
        if os.geteuid() == 0:
            os.chown(tokens_path.parent, 4711, -1)
        load(tokens_path).issue(ADMIN)
    after = os.stat(victim)
    assert (after.st_uid, after.st_mode, victim.read_text()) == (
        before.st_uid, before.st_mode, "secret",
    )  # fmt: skip


def test_nobody_else_can_turn_a_link_on_the_way_to_the_registry(tokens_path: Path) -> None:
    secrets, between = tokens_path.parents[1] / "secrets", tokens_path.parents[1] / "between"
    for folder in (secrets, between, tokens_path.parent):
        folder.mkdir(mode=0o700)
    (between / "second").symlink_to("../secrets")
    (between / "first").symlink_to("second/registry.yaml")
    tokens_path.symlink_to("../between/./first")
    TokenRegistry.load(str(tokens_path)).issue(ADMIN)
    between.chmod(0o1777)
    assert TokenRegistry.load(str(tokens_path)).warnings == []
    between.chmod(0o777)
    open_to_others = TokenRegistry.load(str(tokens_path), lax_permissions=True).warnings
    assert [text.split(" from ")[0] for text in open_to_others] == [
        f"others may write in the folder {between}"
    ] * 2
    assert "(first)" in open_to_others[0]
    assert "(second)" in open_to_others[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_to_the_registry_belongs_to_nobody_else(tokens_path: Path) -> None:
    secrets, between = tokens_path.parents[1] / "secrets", tokens_path.parents[1] / "between"
    for folder in (secrets, between, tokens_path.parent):
        folder.mkdir(mode=0o700)
    (between / "link").symlink_to("../secrets/registry.yaml")
    tokens_path.symlink_to("../between/link")
    TokenRegistry.load(str(tokens_path)).issue(ADMIN)
    for place in (between, between / "link", secrets, secrets / "registry.yaml"):
        os.lchown(place, 4711, -1)
        (problem,) = TokenRegistry.load(str(tokens_path), lax_permissions=True).warnings
        assert problem.startswith(f"{place}, from where the path of the token registry leads on")
        assert problem.endswith("belongs to user 4711; run 'chown' on it")
        os.lchown(place, 0, -1)
    # Whoever has the folder of the instance has everything there.
    os.lchown(between, 4711, -1)
    os.lchown(tokens_path.parents[1], 4711, -1)
    assert TokenRegistry.load(str(tokens_path)).warnings == []
    os.lchown(tokens_path.parents[1], 0, -1)


def test_issue(tokens_path: Path) -> None:
    registry = load(tokens_path)
    issued = registry.issue(READER)
    record = issued.record
    assert re.fullmatch(r"tok-[0-9a-f]{12}", record.id)
    assert re.fullmatch(r"maad_pat_[0-9a-f]{32}", issued.plaintext)
    assert record.role is Role.READER
    assert record.projects == READER.projects
    assert (record.agent_id, record.user_id) == ("agt-1", "u-1")
    assert record.expires_at == "2098-12-31T22:00:00.000Z"
    assert record.revoked_at is None
    assert registry.find(record.id) == record
    assert load(tokens_path).records() == (record,)
    assert issued.plaintext not in repr(issued)
    assert record.hash not in repr(issued)


def test_revoke_is_idempotent_and_keeps_the_first_time(tokens_path: Path) -> None:
    registry = load(tokens_path)
    token_id = registry.issue(READER).record.id
    first = registry.revoke(token_id)
    written = tokens_path.read_bytes()
    assert first.revoked_at is not None
    assert registry.revoke(token_id) == first
    assert tokens_path.read_bytes() == written
    assert load(tokens_path).find(token_id) == first


def test_rotate_is_one_write(tokens_path: Path) -> None:
    registry = load(tokens_path)
    old = registry.issue(READER).record
    rotated = registry.rotate(old.id)
    before, after = load(tokens_path).records()
    assert before == registry.find(old.id)
    assert before.revoked_at is not None
    assert after == rotated.record
    assert after.id != old.id
    assert after.hash == hash_plaintext(rotated.plaintext)
    same = {"id": old.id, "hash": old.hash, "created_at": old.created_at}
    assert msgspec.structs.replace(after, **same) == old


@pytest.mark.parametrize("operation", ["revoke", "rotate"])
def test_an_unknown_id(tokens_path: Path, operation: str) -> None:
    registry = load(tokens_path)
    registry.issue(ADMIN)
    with pytest.raises(MaadError) as caught:
        getattr(registry, operation)("tok-000000000000")
    assert code(caught) == "TOKEN_NOT_FOUND"
    assert registry.find("tok-000000000000") is None


def test_a_dead_token_cannot_be_rotated(tokens_path: Path) -> None:
    registry = load(tokens_path)
    revoked = registry.revoke(registry.issue(READER).record.id)
    expired = registry.issue(msgspec.structs.replace(READER, expires_at="2001-01-01")).record
    for record, expected in ((revoked, "TOKEN_REVOKED"), (expired, "TOKEN_EXPIRED")):
        with pytest.raises(MaadError) as caught:
            registry.rotate(record.id)
        assert code(caught) == expected
    assert len(registry.records()) == 2


def test_the_last_admin_can_be_kept(tokens_path: Path) -> None:
    registry = load(tokens_path)
    first = registry.issue(ADMIN).record.id
    registry.issue(TokenSpec(Role.ADMIN, (ProjectGrant("permits"),)))
    registry.issue(TokenSpec(Role.ADMIN, (ProjectGrant("*", Role.WRITER),)))
    registry.issue(msgspec.structs.replace(ADMIN, expires_at="2001-01-01"))
    with pytest.raises(MaadError) as caught:
        registry.revoke(first, keep_last_admin=True)
    assert code(caught) == "LAST_ADMIN_TOKEN"
    second = registry.issue(ADMIN).record.id
    assert registry.revoke(first, keep_last_admin=True).revoked_at
    assert registry.revoke(second).revoked_at


def test_states_of_a_token(tokens_path: Path) -> None:
    registry = load(tokens_path)
    record = registry.issue(READER).record
    expiry = expiry_of(record)
    assert registry.death_of(record) is None
    assert registry.death_of(record, now=expiry) is None
    assert registry.death_of(record, now=expiry + 1) == "expired"
    assert registry.counts(now=expiry + 1) == RegistryCounts(1, 0)
    assert registry.death_of(msgspec.structs.replace(record, hash="0" * 64)) == "removed"
    registry.revoke(record.id)
    assert registry.death_of(record) == "revoked"
    tokens_path.unlink()
    registry.reload()
    assert registry.death_of(record) == "removed"


def test_an_expiry_that_cannot_be_read_has_passed() -> None:
    record = TokenRecord("tok-1", "0" * 64, Role.ADMIN, (), "2031-01-01", expires_at="sometime")
    assert expiry_of(record) == -math.inf
    assert token_state(record, 0.0) == "expired"


def test_a_change_applies_to_what_another_process_wrote(tokens_path: Path) -> None:
    server, command = load(tokens_path), load(tokens_path)
    first = command.issue(ADMIN).record
    second = server.issue(READER).record
    assert {record.id for record in server.records()} == {first.id, second.id}
    command.revoke(second.id)
    third = server.issue(ADMIN).record
    found = server.find(second.id)
    assert found is not None
    assert found.revoked_at is not None
    assert {record.id for record in load(tokens_path).records()} == {first.id, second.id, third.id}


WRITER_PROCESS = """
import sys
from maadd.auth.issue import TokenSpec
from maadd.auth.record import ProjectGrant
from maadd.auth.registry import TokenRegistry
from maadd.protocol.roles import Role

registry = TokenRegistry.load(sys.argv[1], lock_wait_s=60)
spec = TokenSpec(Role.READER, (ProjectGrant("*"),), name=sys.argv[2])
for step in range(50):
    token_id = registry.issue(spec).record.id
    print(token_id)
    (registry.revoke if step % 2 else registry.rotate)(token_id)
"""


def test_two_processes_that_change_the_registry_100_times_each_lose_nothing(
    tokens_path: Path,
) -> None:
    load(tokens_path).issue(ADMIN)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER_PROCESS, str(tokens_path), name],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    issued: set[str] = set()
    for writer in writers:
        issued.update(writer.communicate()[0].split())
        assert writer.returncode == 0
    records = load(tokens_path).records()
    assert len(issued) == 100
    assert len(records) == 1 + 100 + 50
    by_id = {record.id: record for record in records}
    assert all(by_id[token_id].revoked_at for token_id in issued)
    assert sum(record.revoked_at is None for record in records) == 1 + 50
    assert {entry.name for entry in tokens_path.parent.iterdir()} == {"tokens.yaml", "tokens.lock"}


def test_threads_of_one_process_lose_nothing(tokens_path: Path) -> None:
    registry = load(tokens_path)
    threads = [threading.Thread(target=registry.issue, args=(READER,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.records()) == len(load(tokens_path).records()) == 8
    assert not registry.changed_on_disk()


def test_a_held_lock_is_waited_for_and_then_reported(tokens_path: Path) -> None:
    registry = load(tokens_path, lock_wait_s=0.05)
    registry.issue(ADMIN)
    with open(tokens_path.parent / "tokens.lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MaadError) as caught:
            registry.issue(READER)
    assert code(caught) == "TOKENS_FILE_BUSY"
    assert len(registry.records()) == 1
    registry.issue(READER)


def test_reload_sees_changes_and_only_changes(tokens_path: Path) -> None:
    server, command = load(tokens_path), load(tokens_path)
    assert not server.changed_on_disk()
    issued = command.issue(ADMIN)
    assert server.changed_on_disk()
    assert not command.changed_on_disk()
    assert server.authenticate([f"Bearer {issued.plaintext}"]).failure == "unknown"
    assert server.reload() == RegistryCounts(1, 1)
    assert not server.changed_on_disk()
    assert server.authenticate([f"Bearer {issued.plaintext}"]).token == issued.record
    command.revoke(issued.record.id)
    assert server.reload() == RegistryCounts(1, 0)


def test_a_bad_file_keeps_the_old_state_and_is_reported_once(tokens_path: Path) -> None:
    registry = load(tokens_path)
    issued = registry.issue(ADMIN)
    good = tokens_path.read_bytes()
    tokens_path.write_text("tokens: [")
    assert registry.changed_on_disk()
    with pytest.raises(MaadError) as caught:
        registry.reload()
    assert code(caught) == "TOKENS_FILE_INVALID"
    assert not registry.changed_on_disk()
    assert registry.authenticate([f"Bearer {issued.plaintext}"]).token == issued.record
    with pytest.raises(MaadError) as caught:
        registry.issue(READER)
    assert code(caught) == "TOKENS_FILE_INVALID"
    tokens_path.write_bytes(good)
    assert registry.changed_on_disk()
    assert registry.reload() == RegistryCounts(1, 1)


def test_a_vanished_file_empties_the_registry(tokens_path: Path) -> None:
    registry = load(tokens_path)
    issued = registry.issue(ADMIN)
    tokens_path.unlink()
    assert registry.changed_on_disk()
    assert registry.reload() == RegistryCounts(0, 0)
    assert not registry.present
    assert registry.authenticate([f"Bearer {issued.plaintext}"]).failure == "unknown"


def test_a_failed_write_changes_nothing(tokens_path: Path) -> None:
    registry = load(tokens_path)
    before = registry.issue(ADMIN).record
    stamp = file_stamp(str(tokens_path))
    tokens_path.with_name("tokens.yaml.1.dead.tmp").mkdir()  # makes the step before the write fail
    with pytest.raises(MaadError) as caught:
        registry.issue(READER)
    assert code(caught) == "TOKENS_FILE_INVALID"
    assert "cannot be written" in caught.value.message
    assert registry.records() == (before,)
    assert file_stamp(str(tokens_path)) == stamp


def test_a_disk_that_takes_no_more_is_told_with_its_reason(tokens_path: Path) -> None:
    registry = load(tokens_path)
    registry.issue(ADMIN)
    written = tokens_path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(MaadError) as caught:
            registry.issue(READER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (code(caught), caught.value.details) == ("TOKENS_FILE_INVALID", {"errno": "EFBIG"})
    assert caught.value.message.endswith("written: File too large; check _auth/ and the disk")
    assert tokens_path.read_bytes() == written
    assert sorted(os.listdir(tokens_path.parent)) == ["tokens.lock", "tokens.yaml"]


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free some space on the disk of the instance"),
        (errno.EROFS, "mount the file system of the instance for writing"),
        (errno.EACCES, "run this as the owner of _auth/"),
    ],
)
def test_what_refuses_the_lock_is_told_with_what_to_do(
    tokens_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    registry = load(tokens_path)
    monkeypatch.setattr(tokens_file, "_ensure_folder", refuse)
    with pytest.raises(MaadError) as caught:
        registry.issue(ADMIN)
    assert caught.value.details == {"errno": errno.errorcode[number]}
    assert caught.value.message.endswith(f"cannot be locked: {os.strerror(number)}; {hint}")


def test_what_a_killed_writer_left_is_removed(tokens_path: Path) -> None:
    registry = load(tokens_path)
    registry.issue(ADMIN)
    litter = tokens_path.with_name("tokens.yaml.1234.abcdef.tmp")
    litter.write_text("tokens:\n- half")
    registry.issue(READER)
    assert not litter.exists()


def test_an_instance_folder_that_is_gone(tokens_path: Path) -> None:
    registry = load(tokens_path.parent / "gone" / "deeper" / "tokens.yaml")
    with pytest.raises(MaadError) as caught:
        registry.issue(ADMIN)
    assert code(caught) == "TOKENS_FILE_INVALID"


def test_an_unreadable_file(auth_folder: Path, tokens_path: Path) -> None:
    tokens_path.mkdir(mode=0o700)
    with pytest.raises(MaadError) as caught:
        load(tokens_path)
    assert code(caught) == "TOKENS_FILE_INVALID"


@pytest.mark.parametrize(("folder", "file"), [(0o750, 0o600), (0o701, 0o600), (0o700, 0o640)])
def test_loose_permissions_refuse_the_load(tokens_path: Path, folder: int, file: int) -> None:
    load(tokens_path).issue(ADMIN)
    tokens_path.parent.chmod(folder)
    tokens_path.chmod(file)
    with pytest.raises(MaadError) as caught:
        load(tokens_path)
    assert code(caught) == "TOKENS_FILE_INVALID"
    assert "chmod" in caught.value.message
    assert "MAAD_AUTH_LAX_PERMS" in caught.value.message
    lax = load(tokens_path, lax_permissions=True)
    assert len(lax.warnings) == 1
    assert len(lax.records()) == 1


def test_a_file_that_was_refused_as_open_is_read_after_its_chmod(tokens_path: Path) -> None:
    registry = load(tokens_path)
    registry.issue(ADMIN)
    load(tokens_path).issue(READER)
    tokens_path.chmod(0o644)
    assert registry.changed_on_disk()
    with pytest.raises(MaadError):
        registry.reload()
    assert not registry.changed_on_disk()
    tokens_path.chmod(0o600)
    assert registry.changed_on_disk()
    assert registry.reload() == RegistryCounts(2, 2)


def test_an_open_folder_without_a_registry_hinders_only_the_first_issue(
    auth_folder: Path, tokens_path: Path
) -> None:
    auth_folder.chmod(0o755)
    registry = load(tokens_path)
    with pytest.raises(MaadError) as caught:
        registry.issue(ADMIN)
    assert code(caught) == "TOKENS_FILE_INVALID"
    auth_folder.chmod(0o700)
    assert registry.issue(ADMIN)


@pytest.mark.parametrize(
    ("tokens", "legacy", "expected"),
    [
        (None, True, "LEGACY_BEARER_REMOVED"),
        (None, False, "TOKENS_FILE_MISSING"),
        ([], True, "TOKENS_FILE_EMPTY"),
        ([], False, "TOKENS_FILE_EMPTY"),
        (["2001-01-01"], False, "TOKENS_FILE_EMPTY"),
        (["2001-01-01", "2099-01-01"], False, None),
        (["2099-01-01"], True, None),
    ],
)
def test_the_boot_matrix(
    auth_folder: Path,
    tokens_path: Path,
    tokens: list[str] | None,
    legacy: bool,
    expected: str | None,
) -> None:
    registry = load(tokens_path)
    if tokens is not None:
        tokens_path.touch(mode=0o600)
        for expiry in tokens:
            registry.issue(msgspec.structs.replace(ADMIN, expires_at=expiry))
    registry = load(tokens_path)
    if expected is None:
        check_bootable(registry, legacy_token=legacy)
        return
    with pytest.raises(MaadError) as caught:
        check_bootable(registry, legacy_token=legacy)
    assert code(caught) == expected


def test_a_revoked_token_does_not_make_a_registry_bootable(tokens_path: Path) -> None:
    registry = load(tokens_path)
    registry.revoke(registry.issue(ADMIN).record.id)
    with pytest.raises(MaadError) as caught:
        check_bootable(registry, legacy_token=False)
    assert code(caught) == "TOKENS_FILE_EMPTY"


def test_what_root_writes_stays_readable_for_the_owner_of_the_instance(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        assert load(tmp_path / "_auth" / "tokens.yaml").issue(ADMIN)
        return
    root = tmp_path / "instance"
    root.mkdir()
    os.chown(root, 4242, 4343)
    load(root / "_auth" / "tokens.yaml").issue(ADMIN)
    for path in (root / "_auth", root / "_auth" / "tokens.yaml", root / "_auth" / "tokens.lock"):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (4242, 4343)


def requester(record: TokenRecord) -> Requester:
    return Requester(record)


@pytest.mark.parametrize("operation", ["revoke", "rotate"])
def test_a_token_out_of_reach_is_as_good_as_unknown(tokens_path: Path, operation: str) -> None:
    registry = load(tokens_path)
    root = registry.issue(ADMIN).record
    small = registry.issue(TokenSpec(Role.ADMIN, (ProjectGrant("permits"),))).record
    change = getattr(registry, operation)
    texts = []
    for token_id in (root.id, "tok-000000000000"):
        with pytest.raises(MaadError) as caught:
            change(token_id, requester=requester(small))
        texts.append((code(caught), caught.value.message, caught.value.details))
    assert texts[0] == texts[1]
    assert texts[0][0] == "TOKEN_NOT_FOUND"
    assert change(small.id, requester=requester(small))


def test_what_is_beyond_the_issuer_is_not_issued(tokens_path: Path) -> None:
    registry = load(tokens_path)
    small = registry.issue(TokenSpec(Role.ADMIN, (ProjectGrant("permits"),))).record
    with pytest.raises(MaadError) as caught:
        registry.issue(ADMIN, requester=requester(small))
    assert code(caught) == "TOKEN_PROJECT_FORBIDDEN"
    assert registry.records() == (small,)


def test_a_rotation_never_hands_out_more_time_than_the_caller_has(tokens_path: Path) -> None:
    registry = load(tokens_path)
    lasting = registry.issue(ADMIN).record
    ending = registry.issue(msgspec.structs.replace(ADMIN, expires_at="2099-01-01")).record
    with pytest.raises(MaadError) as caught:
        registry.rotate(lasting.id, requester=requester(ending))
    assert code(caught) == "ROLE_UPGRADE_DENIED"
    own = registry.rotate(ending.id, requester=requester(ending)).record
    assert own.expires_at == ending.expires_at


def test_a_caller_that_another_process_revoked_changes_nothing(tokens_path: Path) -> None:
    registry = load(tokens_path)
    caller = registry.issue(ADMIN).record
    other = registry.issue(READER).record
    load(tokens_path).revoke(caller.id)
    with pytest.raises(MaadError) as caught:
        registry.revoke(other.id, requester=requester(caller))
    assert code(caught) == "TOKEN_REVOKED"
    assert load(tokens_path).find(other.id) == other


def test_a_rehearsal_judges_and_writes_nothing(tokens_path: Path) -> None:
    registry = load(tokens_path)
    root = registry.issue(ADMIN).record
    written = tokens_path.read_bytes()
    registry.issue(READER, rehearse=True)
    registry.rotate(root.id, rehearse=True)
    registry.revoke(root.id, rehearse=True)
    with pytest.raises(MaadError) as caught:
        registry.revoke(root.id, keep_last_admin=True, rehearse=True)
    assert code(caught) == "LAST_ADMIN_TOKEN"
    assert tokens_path.read_bytes() == written
    assert registry.records() == (root,)
