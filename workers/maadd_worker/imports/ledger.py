"""What an import has done so far: it can be interrupted, and be run again (ours).

`_import/.state/<name>-<digest>/` holds the plan, one line of JSON for each record, and those lines
of the portion that is being written. Without it nothing is lost: records that are there already, as
they would be written, count as imported.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterable

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.root import errno_name

STATE_FOLDER = "_import/.state"

_PLAN = "plan.yaml"
_DONE = "done.jsonl"
_INTENDED = "intended.jsonl"
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Done(msgspec.Struct, frozen=True, rename="camel"):
    """One imported item: its digest then, its record, and the content hash of that then.

    `doc_type` is the type of the record, `made` the digest of what the plan made of the item;
    both are empty where an earlier version noted it.
    """

    key: str
    digest: str
    doc_id: str
    content_hash: str
    doc_type: str = ""
    made: str = ""


_decoder = msgspec.json.Decoder(Done)


class Ledger:
    """The state of the import of one source into one project."""

    def __init__(self, root: str, source: str, name: str) -> None:
        digest = hashlib.sha256(os.fsencode(source)).hexdigest()[:8]
        short = _NO_NAME.sub("-", name).strip("-.") or "source"
        self._root = root
        self.folder = os.path.join(root, STATE_FOLDER, f"{short}-{digest}")
        self._done: dict[str, Done] | None = None

    def plan(self) -> str | None:
        """The text of the plan that the import was begun with."""
        try:
            with open(os.path.join(self.folder, _PLAN), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise self._failed("read", failure) from None

    def keep_plan(self, text: str) -> None:
        """Begin, or go on under another plan; WRITE_ERROR."""
        self._replace(_PLAN, text.encode())

    def intend(self, entries: Iterable[Done]) -> None:
        """Note the items of a portion as they will be, before their records are written, so that
        these are known when the run ends before `add`; WRITE_ERROR."""
        self._replace(_INTENDED, b"".join(msgspec.json.encode(one) + b"\n" for one in entries))

    def intended(self) -> list[Done]:
        """The portion that a run was at when it was cut short, written or not."""
        return list(self._lines(_INTENDED))

    def settle(self) -> None:
        """The noted portion is dealt with; WRITE_ERROR."""
        try:
            os.unlink(os.path.join(self.folder, _INTENDED))
        except FileNotFoundError:
            return
        except OSError as failure:
            raise self._failed("written", failure) from None

    def done(self) -> dict[str, Done]:
        """The imported items by key; of an item that was updated the last state counts."""
        if self._done is None:
            self._done = {one.key: one for one in self._lines(_DONE)}
        return self._done

    def add(self, done: Iterable[Done]) -> None:
        """Note items once their records are stored; WRITE_ERROR."""
        entries = list(done)
        if not entries:
            return
        # A line feed first: the last line may have been cut short by a crash.
        text = b"\n" + b"".join(msgspec.json.encode(one) + b"\n" for one in entries)
        try:
            self._make_folder()
            with open(os.path.join(self.folder, _DONE), "ab", opener=_never_by_link) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as failure:
            raise self._failed("written", failure) from None
        self.done().update((one.key, one) for one in entries)

    def _replace(self, name: str, data: bytes) -> None:
        path = os.path.join(self.folder, name)
        try:
            self._make_folder()
            with open(f"{path}.new", "wb", opener=_never_by_link) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.new", path)
        except OSError as failure:
            raise self._failed("written", failure) from None

    def _lines(self, name: str) -> Iterable[Done]:
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as failure:
            raise self._failed("read", failure) from None
        for line in lines:
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                # A line that a crash cut short: its record counts by what lies in the project.
                continue

    def _make_folder(self) -> None:
        names = os.path.relpath(self.folder, self._root).split(os.sep)
        make_folders(self._root, *names)
        for depth in range(len(names)):
            folder = os.path.join(self._root, *names[: depth + 1])
            if os.path.islink(folder):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)

    def _failed(self, what: str, failure: OSError) -> MaadError:
        code = "WRITE_ERROR" if what == "written" else "FILE_READ_ERROR"
        why = os.strerror(failure.errno or 0)
        details = {"errno": errno_name(failure)}
        return MaadError(code, f"{self.folder} cannot be {what}: {why}", details)


def _never_by_link(path: str, flags: int) -> int:
    """Opens what this program has made: a link there came with the project."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
