"""Links in bodies: `[[wiki links]]` and `[relative](links.md)`, outside of code."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote

from maadd_worker.imports.source import Link
from maadd_worker.markdown.verbatim import VerbatimZones

_WIKI = re.compile(r"(!?)\[\[([^\[\]|#\n]*)(#[^\[\]|\n]*)?(?:\|([^\[\]\n]*))?\]\]")
_INLINE = re.compile(r"(!?)\[([^\[\]\n]*)\]\((<[^<>\n]*>|[^()\s]*)(?:[ \t]+\"[^\"\n]*\")?\)")
_ANNOTATION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*:.")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")


def find_links(body: str, body_start_line: int, zones: VerbatimZones) -> Iterator[Link]:
    """The links of a body in order; annotations, addresses and links within a file are none."""
    if "[" not in body:
        return
    found = []
    for match in _WIKI.finditer(body):
        target, heading, label = match[2].strip(), (match[3] or "")[1:], match[4]
        is_annotation = label is not None and _ANNOTATION.match(match[2])
        if target and not is_annotation:
            found.append((match, target, heading, (label or "").strip(), True))
    for match in _INLINE.finditer(body):
        address = match[3].removeprefix("<").removesuffix(">")
        path, _, heading = address.partition("#")
        if path and not _SCHEME.match(path):
            found.append((match, unquote(path), unquote(heading), match[2].strip(), False))
    found.sort(key=lambda one: one[0].start())
    line, counted = body_start_line, 0
    for match, target, heading, label, wiki in found:
        start = match.start()
        line += body.count("\n", counted, start)
        counted = start
        if not zones.covers(start):
            yield Link(start, match.end(), line, target, heading, label, wiki, match[1] == "!")


def link_path(link: Link, folder: str) -> str:
    """The path that a link names, from the top of the source; empty when it leads out of it.

    A leading slash is the top; others start at `folder`, wiki links with a path at the top too.
    """
    target = link.target
    if target.startswith("/") or link.wiki:
        path = posixpath.normpath(target.lstrip("/"))
    else:
        path = posixpath.normpath(posixpath.join(folder, target))
    return "" if path.startswith("..") or path == "." else path


def with_mentions(
    body: str, links: Sequence[Link], mention: Callable[[Link], tuple[str, str] | None]
) -> str:
    """The body with annotations in place of the links that `mention` gives a (type, id) for.

    Embeddings and links into a place of a file have no form of their own and stay.
    """
    parts: list[str] = []
    copied = 0
    for link in links:
        named = None if link.embeds or link.heading else mention(link)
        if named is None:
            continue
        label = (link.label or link.target).replace("]", ")").replace("[", "(")
        parts += [body[copied : link.start], f"[[{named[0]}:{named[1]}|{label}]]"]
        copied = link.end
    return "".join([*parts, body[copied:]])
