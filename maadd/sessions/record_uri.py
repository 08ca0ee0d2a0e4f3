"""The uris of records as MCP resources: `maad://<project>/<docId>` (spec 04 §11)."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import msgspec

from maadd.protocol.doc_ids import describe_fault, doc_id_fault
from maadd.protocol.errors import MaadError

SCHEME = "maad://"

_MAX_ECHO = 200

_URI = re.compile(r"maad://(?P<project>[a-z][a-z0-9_-]*)(?:/(?P<doc_id>[^/?#]+)?)?")


class RecordUri(msgspec.Struct, frozen=True):
    """A record of a project, or with `doc_id` None the project as a whole."""

    project: str
    doc_id: str | None = None

    @classmethod
    def parse(cls, text: str) -> RecordUri:
        """The record or project that `text` names; INVALID_ARGS when it is no such uri."""
        found = _URI.fullmatch(text)
        if found is None:
            raise MaadError(
                "INVALID_ARGS",
                f"{text[:_MAX_ECHO]!r} names no record; the form is maad://<project>/<docId>",
                {"uri": text[:_MAX_ECHO]},
            )
        doc_id = found["doc_id"]
        return cls(found["project"], None if doc_id is None else unquote(doc_id))

    def check(self) -> None:
        """INVALID_ARGS for an id that no record can have, so that nothing waits for it."""
        reason = None if self.doc_id is None else doc_id_fault(self.doc_id)
        if reason is not None:
            shown = str(self)[:_MAX_ECHO]
            raise MaadError(
                "INVALID_ARGS",
                f"{shown} names no record that can be: its id {describe_fault(reason)}",
                {"uri": shown},
            )

    def __str__(self) -> str:
        if self.doc_id is None:
            return SCHEME + self.project
        return f"{SCHEME}{self.project}/{quote(self.doc_id, safe='')}"
