"""The body of a record as tools see and change it (spec 01 §9.1)."""

from __future__ import annotations

from maadd_worker.markdown.frontmatter import SplitFile
from maadd_worker.markdown.text import JS_WHITESPACE, js_trim


def current_body(split: SplitFile) -> str:
    """The body as tools see it: CRLF as LF, trimmed at both ends."""
    return js_trim(split.body.replace("\r\n", "\n"))


def update_body(split: SplitFile, body: str | None, append_body: str | None) -> str | None:
    """The body after an update, None when the update does not touch it.

    `body` replaces the current one, `append_body` follows it after one blank line. An empty
    result is an empty body, not an absent one.
    """
    if body is not None:
        return js_trim(body)
    if append_body is None:
        return None
    return js_trim(f"{current_body(split)}\n\n{append_body}")


def rewritten_body(split: SplitFile, body: str) -> str:
    """Everything after the closing fence once `body` is the record's body.

    What stands in the file already keeps its characters; the blank lines before the body and
    the line ends after it stay as found, and new text takes the file's own line end.
    """
    current = current_body(split)
    if body.replace("\r\n", "\n") == current:
        return split.body
    if not body:
        return ""
    old = split.body
    if not current:
        return split.newline + _with_newline(body, split.newline) + split.newline
    text_end = len(old.rstrip(JS_WHITESPACE))
    final = split.newline * old.count("\n", text_end)
    if body.startswith(current):
        return old[:text_end] + _with_newline(body[len(current) :], split.newline) + final
    text_start = len(old) - len(old.lstrip(JS_WHITESPACE))
    return old[: old.rfind("\n", 0, text_start) + 1] + _with_newline(body, split.newline) + final


def _with_newline(text: str, newline: str) -> str:
    return text if newline == "\n" else text.replace("\r\n", "\n").replace("\n", newline)
