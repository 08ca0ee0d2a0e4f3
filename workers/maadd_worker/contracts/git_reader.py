"""What the HEAD commit holds at one path, read so that nobody can mislead it (spec 05 §7.4).

By the `git` program in a cleaned environment; every output is bounded, every object proven
by its own name. HEAD is resolved once, all that follows are immutable names.
"""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import stat
import subprocess
import time
from collections.abc import Sequence

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.contracts.safe_read import MAX_FILE_BYTES, Check
from maadd_worker.history.command import stop_group

TOTAL_S = 30.0
STDERR_CAP = 8_192
_OID_CAP = 128
_FORMAT_CAP = 32
_LS_TREE_CAP = 4_096
_BATCH_CAP = 192 + MAX_FILE_BYTES + 1
"""Header line, bytes and line end of one answer of `cat-file --batch`."""
_POLL_S = 0.05
_CHUNK = 65_536
_OID_DIGITS = {"sha1": 40, "sha256": 64}
_FILE_MODES = ("100644", "100755")
_ENTRY = re.compile(rb"([0-7]{6}) ([a-z]+) ([0-9a-f]+)\t([^\0]+)\0")
_HEADER = re.compile(rb"([0-9a-f]+) ([a-z]+) ([0-9]+)\n")

_FIXED = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C",
}


class CommittedBlob(msgspec.Struct, frozen=True):
    """A file as the HEAD commit holds it."""

    object_format: str
    commit_oid: str
    tree_oid: str
    blob_oid: str
    data: bytes


class GitReader:
    """Reads one repository. `object_format` of a repository never changes, so it is asked once
    for each identity of its `.git` directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: tuple[tuple[int, int], str] | None = None

    def committed(self, rel: str, check: Check) -> CommittedBlob | None:
        """What HEAD has at a project-relative path; None when it has nothing there.

        Raises RECEIPT_STORAGE_ERROR (`cause`), RECEIPT_CONTENT_INVALID for anything but a file,
        RESPONSE_TOO_LARGE, PATH_OUTSIDE_PROJECT, REQUEST_TIMEOUT after 30 s, and what `check`
        raises.
        """
        _check_path(rel)
        git = _Git(self._root, check)
        object_format = self._object_format(git)
        commit = git.oid(object_format, "HEAD^{commit}", "unborn_head")
        tree = git.oid(object_format, f"{commit}^{{tree}}", "object_missing")
        listing = git.run(["ls-tree", "-z", tree, "--", rel], _LS_TREE_CAP)
        if not listing:
            return None
        blob = _blob_of(listing, rel, object_format)
        asked = f"{blob}\n".encode()
        answer = git.run(["cat-file", "--batch"], _BATCH_CAP, asked, cause="object_missing")
        data = _content(answer, blob)
        digest = hashlib.new(object_format, b"blob %d\0" % len(data), usedforsecurity=False)
        digest.update(data)
        if digest.hexdigest() != blob:
            raise storage_error("hash_mismatch", f"object {blob} is damaged")
        return CommittedBlob(object_format, commit, tree, blob, data)

    def _object_format(self, git: _Git) -> str:
        identity = _git_directory(self._root)
        if self._known is not None and self._known[0] == identity:
            return self._known[1]
        found = git.run(["rev-parse", "--show-object-format"], _FORMAT_CAP).decode().strip()
        if found not in _OID_DIGITS:
            raise storage_error("git_exit", f"object format {found!r} is unknown")
        self._known = (identity, found)
        return found


def storage_error(cause: str, message: str) -> MaadError:
    """RECEIPT_STORAGE_ERROR; `cause` is one of spec 05 §7.4."""
    return MaadError("RECEIPT_STORAGE_ERROR", message, {"cause": cause})


class _Git:
    """The runs of one question, which share 30 seconds."""

    def __init__(self, root: str, check: Check) -> None:
        self._root = root
        self._check = check
        self._deadline = time.monotonic() + TOTAL_S
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("GIT_")
        }
        self._environment |= _FIXED | {"GIT_CEILING_DIRECTORIES": os.path.dirname(root)}

    def oid(self, object_format: str, name: str, cause: str) -> str:
        """The full name of an object; `cause` tells why there is none."""
        output = self.run(["rev-parse", "--verify", "--quiet", name], _OID_CAP, cause=cause)
        oid = output.decode("ascii", "replace").strip()
        if not re.fullmatch(rf"[0-9a-f]{{{_OID_DIGITS[object_format]}}}", oid):
            raise storage_error("git_exit", "git named an object in a form that is unknown")
        return oid

    def run(
        self,
        arguments: Sequence[str],
        cap: int,
        stdin: bytes | None = None,
        *,
        cause: str = "git_exit",
    ) -> bytes:
        """The standard output of one command, at most `cap` bytes."""
        self._check()
        command = [
            "git",
            "--no-pager",
            "--literal-pathspecs",
            "-c", "maintenance.auto=false",
            "-c", "gc.auto=0",
            "-c", f"safe.directory={self._root}",
            "-c", "core.hooksPath=/dev/null",
            "-c", "core.fsmonitor=false",
            f"--git-dir={self._root}/.git",
            *arguments,
        ]  # fmt: skip
        try:
            child = subprocess.Popen(
                command,
                cwd=self._root,
                env=self._environment,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as failure:
            reason = os.strerror(failure.errno or 0)
            raise storage_error("git_exit", f"git cannot be started: {reason}") from None
        try:
            output = self._collect(child, cap, stdin)
        except BaseException:
            stop_group(child)
            raise
        if child.returncode != 0:
            raise storage_error(cause, f"git {arguments[0]} ended with {child.returncode}")
        return output

    def _collect(self, child: subprocess.Popen[bytes], cap: int, stdin: bytes | None) -> bytes:
        if child.stdin is not None and stdin is not None:
            # One line, which a pipe takes whatever the child does.
            child.stdin.write(stdin)
            child.stdin.close()
        assert child.stdout is not None
        assert child.stderr is not None
        output, complaint = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ, output)
            selector.register(child.stderr, selectors.EVENT_READ, complaint)
            while selector.get_map():
                self._look_at_the_clock()
                for key, _ in selector.select(_POLL_S):
                    chunk = os.read(key.fd, _CHUNK)
                    key.data.extend(chunk)
                    if not chunk:
                        selector.unregister(key.fileobj)
                if len(output) > cap:
                    raise MaadError(
                        "RESPONSE_TOO_LARGE",
                        f"git has more than {cap} bytes to say",
                        {"capBytes": cap},
                    )
                if len(complaint) > STDERR_CAP:
                    raise storage_error("git_exit", "git complains at length")
        while True:
            self._look_at_the_clock()
            try:
                child.wait(_POLL_S)
                break
            except subprocess.TimeoutExpired:
                continue
        child.stdout.close()
        child.stderr.close()
        return bytes(output)

    def _look_at_the_clock(self) -> None:
        self._check()
        if time.monotonic() > self._deadline:
            raise MaadError(
                "REQUEST_TIMEOUT",
                f"Git did not answer within {TOTAL_S:g} s",
                {"limitMs": round(TOTAL_S * 1000)},
            )


def _check_path(rel: str) -> None:
    names = rel.split("/")
    if any(name in ("", ".", "..") for name in names) or re.search(r"[\\:\0]", rel):
        raise MaadError("PATH_OUTSIDE_PROJECT", f"{rel!r} is no path that Git is asked for")


def _git_directory(root: str) -> tuple[int, int]:
    """The identity of the repository's own directory, which must be a real one."""
    try:
        found = os.lstat(os.path.join(root, ".git"))
    except FileNotFoundError:
        raise storage_error("git_dir_missing", "the project has no .git directory") from None
    except OSError as failure:
        raise storage_error("io", f".git: {os.strerror(failure.errno or 0)}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise storage_error("git_dir_not_directory", ".git is not a directory")
    return found.st_dev, found.st_ino


def _blob_of(listing: bytes, rel: str, object_format: str) -> str:
    """The name of the file's object in the one entry of a listing."""
    entry = _ENTRY.fullmatch(listing)
    if entry is None or entry[4] != rel.encode():
        raise storage_error("git_exit", "git lists the path in a form that is unknown")
    if entry[1].decode() not in _FILE_MODES or entry[2] != b"blob":
        raise MaadError(
            "RECEIPT_CONTENT_INVALID", f"{rel} is no file in the commit", {"cause": "not-regular"}
        )
    oid = entry[3].decode()
    if len(oid) != _OID_DIGITS[object_format]:
        raise storage_error("git_exit", "git names an object in a form that is unknown")
    return oid


def _content(output: bytes, blob: str) -> bytes:
    """The bytes of an object in the answer of `cat-file --batch`."""
    header = _HEADER.match(output)
    if header is None or header[1].decode() != blob:
        raise storage_error("object_missing", f"object {blob} cannot be read")
    size = int(header[3])
    if header[2] != b"blob":
        raise storage_error("hash_mismatch", f"object {blob} is no blob")
    if size > MAX_FILE_BYTES:
        raise MaadError(
            "RESPONSE_TOO_LARGE",
            f"the committed file has {size} bytes, at most {MAX_FILE_BYTES} are read",
            {"observedBytes": size, "capBytes": MAX_FILE_BYTES},
        )
    data = output[header.end() : header.end() + size]
    if len(data) != size:
        raise storage_error("object_missing", f"object {blob} ended too early")
    return data
