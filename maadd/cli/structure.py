"""`maad scan` and `maad parse`: Markdown anywhere, without a project (spec 01 §17, 02 §3.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from maadd.cli.output import fail, json_option, print_json, wants_json
from maadd.cli.tables import cell_text, print_facts, print_heading, print_list, print_table
from maadd.cli.targets import command_settings, target_options
from maadd.cli.texts import FILE_NAME
from maadd.protocol.errors import MaadError

if TYPE_CHECKING:
    from maadd_worker.disk.root import ProjectRoot

_ROWS = 20
"""Rows of a list that may be long; programs get all of them."""


@click.command("scan")
@target_options
@click.argument("path", metavar="FILE|DIR", type=FILE_NAME)
@json_option
def scan_command(path: str, as_json: bool) -> None:
    """Show the structure of a Markdown file, or what the files of a folder have in common.

    Needs no project: it reads what may become one.
    """
    settings = command_settings().worker()
    from maadd_worker.read.structure import scan_directory, scan_file

    try:
        with _place(path) as (root, name):
            if name:
                report = scan_file(root, name, path, settings)
            else:
                report = scan_directory(
                    root,
                    "",
                    path,
                    settings,
                    name=os.path.basename(root.path) or None,
                    check_time=lambda: None,
                )
    except MaadError as failure:
        fail(failure)
    if wants_json(as_json):
        print_json(report)
    elif "totalFiles" in report:
        _print_corpus(report)
    else:
        _print_structure(report)


@click.command("parse")
@target_options
@click.argument("path", metavar="FILE", type=FILE_NAME)
@json_option
def parse_command(path: str, as_json: bool) -> None:
    """Show how a Markdown file is read: its fields, blocks and annotations, with their lines.

    Exit code 1 when it cannot be read as a record, with the line and column. Needs no project.
    """
    settings = command_settings().worker()
    from maadd_worker.read.parsed_file import parsed_file

    try:
        with _place(path) as (root, name):
            if not name:
                raise MaadError(
                    "FILE_READ_ERROR", f"{path} is a folder; `maad scan` takes folders, too"
                )
            view = parsed_file(root, name, path, settings)
    except MaadError as failure:
        fail(failure)
    if wants_json(as_json):
        print_json(view)
    else:
        _print_parsed(view)


@contextmanager
def _place(path: str) -> Iterator[tuple[ProjectRoot, str]]:
    """The folder that a path leads to, and in it the name of a file; empty for the folder itself.

    Raises PATH_NOT_FOUND.
    """
    from maadd_worker.disk.root import ProjectRoot

    real = os.path.realpath(path)
    if os.path.isdir(real):
        folder, name = real, ""
    elif os.path.isfile(real):
        folder, name = os.path.split(real)
    else:
        raise MaadError("PATH_NOT_FOUND", f"{path} is no file and no folder")
    try:
        root = ProjectRoot.open(folder)
    except MaadError as failure:
        why = failure.message.partition(": ")[2].partition(";")[0]
        raise MaadError(failure.code, f"{folder} cannot be opened: {why}") from None
    with closing(root):
        yield root, name


def _print_structure(report: Mapping[str, Any]) -> None:
    print_facts(
        {
            "file": report["filePath"],
            "bytes": report["sizeBytes"],
            "lines": report["lineCount"],
            "blocks": report["blockCount"],
            "value calls": report["valueCalls"] or None,
        }
        | {name: found or None for name, found in report["detectedPatterns"].items()}
    )
    if report["frontmatter"] is not None:
        print_heading("frontmatter")
        print_facts({name: _shown(value) for name, value in report["frontmatter"].items()})
    else:
        click.echo("\nno frontmatter that can be read; `maad parse` tells why")
    columns = {"line": "line", "level": "level", "text": "text"}
    _print_part("headings", report["headings"], columns)
    columns = {"type": "type", "value": "value", "label": "label"}
    _print_part("annotations", report["annotations"], columns)


def _print_corpus(report: Mapping[str, Any]) -> None:
    print_facts(
        {
            "folder": report["directory"],
            "files": report["totalFiles"],
            "lines": report["totalLines"],
            "left out": report.get("skippedFiles"),
        }
    )
    columns = {
        "name": "name",
        "files": "fileCount",
        "fields of all": "sharedFields",
        "headings of all": "sharedHeadings",
    }
    _print_part("likely types", report["likelyDocumentFamilies"], columns)
    frequency = report["frontmatterFieldFrequency"]
    fields = sorted(frequency.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [{"field": name, "files": number} for name, number in fields]
    _print_part("fields", rows, {"field": "field", "files": "files"})
    columns = {"text": "text", "level": "level", "times": "occurrences"}
    _print_part("headings", report["headingPatterns"], columns)
    columns = {"type": "type", "value": "value", "times": "occurrences"}
    _print_part("annotations", report["entitySummary"], columns)
    columns = {"path": "path", "lines": "lineCount", "fields": "frontmatterFields"}
    _print_part("files", report["files"], columns)
    if report.get("truncated"):
        click.echo(
            "\nnot all files were read; MAAD_SCAN_MAX_FILES, MAAD_SCAN_MAX_BYTES and "
            "MAAD_MAX_DOC_BYTES are the limits"
        )


def _print_parsed(view: Mapping[str, Any]) -> None:
    print_facts({"file": view["filePath"], "bytes": view["sizeBytes"], "sha256": view["fileHash"]})
    if view["frontmatter"]:
        print_heading("frontmatter")
        lines = view["frontmatterLines"]
        print_table(
            ("field", "line", "value"),
            ((name, lines.get(name), value) for name, value in view["frontmatter"].items()),
        )
    else:
        click.echo("\nno frontmatter")
    columns = {
        "id": "id",
        "level": "level",
        "from line": "startLine",
        "to line": "endLine",
        "heading": "heading",
    }
    _print_part("blocks", view["blocks"], columns)
    columns = {name: name for name in ("type", "primitive", "value", "label", "line")}
    _print_part("annotations", view["annotations"], columns)
    _print_part("value calls", view["valueCalls"], {"field": "field", "line": "line"})
    if view.get("annotationsTruncated"):
        click.echo("\nthe first annotations only; MAAD_MAX_DOC_ANNOTATIONS is the limit")


def _print_part(title: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """A part of a report under its title; nothing when it is empty."""
    if not rows:
        return
    print_heading(title)
    print_list(rows[:_ROWS], columns)
    if len(rows) > _ROWS:
        click.echo(f"and {len(rows) - _ROWS} more; --json lists all")


def _shown(value: object) -> str:
    return "null" if value is None else cell_text(value)
