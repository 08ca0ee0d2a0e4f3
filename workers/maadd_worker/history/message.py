"""Commit messages: one line for people and for `maad_history` (spec 03 §9.1, §7.3)."""

from __future__ import annotations

import re

import msgspec

from maadd_worker.history.outcome import CommitIdentity, CommitRequest, LogicalWrite

SUMMARY_LENGTH = 120
INIT_SUMMARY = "Initialize MAAD project"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_SUBJECT = re.compile(
    r"maad:(?P<action>\w+)[ \t]+(?P<doc_id>[A-Za-z0-9_.-]+)[ \t]+\[(?P<doc_type>[\w.-]+)\]"
    r"(?: (?P<detail>[^—]+?))? —(?: (?P<summary>.*))?"
)
_TRAILER = re.compile(
    r"(?P<action>\w+) (?P<doc_id>[A-Za-z0-9_.-]+) \[(?P<doc_type>[\w.-]+)\](?: (?P<rest>.*))?"
)
_IDENTITY_LINES = (
    ("role", "role"),
    ("token", "token_id"),
    ("agent", "agent_id"),
    ("user", "user_id"),
)
WRITE_KEY = "Maad-Write"


class ParsedSubject(msgspec.Struct, frozen=True):
    """The parts of a subject that this product or the reference wrote."""

    action: str
    doc_id: str
    doc_type: str
    detail: str
    summary: str


class ParsedBody(msgspec.Struct, frozen=True):
    """Identity lines and `Maad-Write:` trailers of a commit body."""

    identity: CommitIdentity | None
    writes: tuple[LogicalWrite, ...]


def one_line(text: str) -> str:
    """`text` without line breaks, control characters and lone surrogates."""
    return _CONTROL.sub(" ", text).strip()


def shorten(text: str) -> str:
    """One line of at most 120 characters, cut with an ellipsis."""
    line = one_line(text)
    return line if len(line) <= SUMMARY_LENGTH else line[: SUMMARY_LENGTH - 1].rstrip() + "…"


def format_subject(action: str, doc_id: str, doc_type: str, detail: str, summary: str) -> str:
    """`maad:<action> <docId> [<docType>] <detail> — <summary>`, without the parts that are empty.

    The detail never holds an em dash, so that the summary starts at the first one.
    """
    parts = [f"maad:{action}"]
    if doc_id:
        parts.append(doc_id)
    if doc_type:
        parts.append(f"[{doc_type}]")
    if clean := one_line(detail).replace("—", "-"):
        parts.append(clean)
    return f"{' '.join(parts)} — {shorten(summary)}"


def format_message(request: CommitRequest, *, with_identity: bool = True) -> str:
    """The whole message; `with_identity` is the setting `MAAD_COMMIT_IDENTITY`."""
    subject = format_subject(
        request.action, request.doc_id, request.doc_type, request.detail, request.summary
    )
    identity = request.identity if with_identity else None
    lines = [
        f"{key}: {one_line(value)}"
        for key, name in _IDENTITY_LINES
        if (value := getattr(identity, name, None))
    ]
    trailers = [_format_trailer(write, with_identity=with_identity) for write in request.writes]
    paragraphs = [subject, "\n".join(lines), "\n".join(trailers)]
    return "\n\n".join(text for text in paragraphs if text) + "\n"


def _format_trailer(write: LogicalWrite, *, with_identity: bool) -> str:
    parts = [f"{WRITE_KEY}: {write.action} {write.doc_id} [{write.doc_type}]"]
    if clean := one_line(write.detail):
        parts.append(clean)
    if with_identity and write.identity is not None:
        parts += [
            f"{key}={one_line(value).replace(' ', '_')}"
            for key, name in _IDENTITY_LINES
            if (value := getattr(write.identity, name))
        ]
    return " ".join(parts)


def parse_subject(subject: str) -> ParsedSubject | None:
    """The parts of a subject, None for a commit of somebody else."""
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        return None
    return ParsedSubject(
        match["action"],
        match["doc_id"],
        match["doc_type"],
        match["detail"] or "",
        match["summary"] or "",
    )


def parse_body(body: str) -> ParsedBody:
    """What the body of one of our commits says; other lines are ignored."""
    known = dict(_IDENTITY_LINES)
    identity: dict[str, str] = {}
    writes: list[LogicalWrite] = []
    for line in body.splitlines():
        key, separator, value = line.partition(": ")
        if not separator:
            continue
        if key == WRITE_KEY:
            if (match := _TRAILER.fullmatch(value.strip())) is not None:
                writes.append(_parse_trailer(match))
        elif key in known:
            identity.setdefault(known[key], value.strip())
    return ParsedBody(CommitIdentity(**identity) if identity else None, tuple(writes))


def _parse_trailer(match: re.Match[str]) -> LogicalWrite:
    known = dict(_IDENTITY_LINES)
    words = (match["rest"] or "").split(" ")
    identity: dict[str, str] = {}
    while words and (pair := words[-1].partition("="))[0] in known and pair[2]:
        identity[known[pair[0]]] = pair[2]
        words.pop()
    return LogicalWrite(
        match["action"],
        match["doc_id"],
        match["doc_type"],
        " ".join(words),
        CommitIdentity(**identity) if identity else None,
    )
