"""The body a schema's template gives a new record (spec 01 §9.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from maadd_worker.markdown.text import JS_WHITESPACE, js_text
from maadd_worker.markdown.value_calls import VALUE_CALL

_LINE_BREAK = re.compile("\r\n|[\n\v\f\r\x85\u2028\u2029]")


class Heading(Protocol):
    """A heading of a template: `level` 1 to 6, `text` with value calls, `id` as anchor."""

    @property
    def level(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def id(self) -> str | None: ...


def render_template(headings: Iterable[Heading], frontmatter: Mapping[str, Any]) -> str:
    """The headings as Markdown, each followed by a blank line, the end trimmed.

    `{{key}}` becomes the text of that field on one line; a field that is absent or null
    leaves its name. A level outside 1 to 6 is brought to the nearest bound.
    """

    def field_text(match: re.Match[str]) -> str:
        value = frontmatter.get(match[1])
        return match[1] if value is None else _LINE_BREAK.sub(" ", js_text(value))

    lines = []
    for heading in headings:
        marks = "#" * min(max(int(heading.level), 1), 6)
        anchor = f" {{#{heading.id}}}" if heading.id else ""
        lines.append(f"{marks} {VALUE_CALL.sub(field_text, heading.text)}{anchor}\n\n")
    return "".join(lines).rstrip(JS_WHITESPACE)
