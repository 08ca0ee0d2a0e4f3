"""The structure of raw Markdown, file by file and as a corpus; no project needed (01 §17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.markdown.annotations import Annotation, find_annotations
from maadd_worker.markdown.blocks import Block, scan_blocks
from maadd_worker.markdown.frontmatter import BOM, SplitFile, split_file
from maadd_worker.markdown.value_calls import find_value_calls
from maadd_worker.markdown.verbatim import VerbatimZones
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.read.scan_patterns import detect_patterns
from maadd_worker.read.scan_report import ScannedFile, corpus_report
from maadd_worker.read.scan_walk import walk_for_scan


class _Structure(msgspec.Struct, frozen=True):
    """What one file says, errors in its frontmatter tolerated."""

    text: str
    split: SplitFile
    frontmatter: dict[str, Any] | None
    zones: VerbatimZones
    blocks: tuple[Block, ...]
    annotations: tuple[Annotation, ...]


def scan_file(root: ProjectRoot, path: str, shown: str, settings: WorkerSettings) -> dict[str, Any]:
    """One file in detail, under the name `shown`; FILE_READ_ERROR, DOC_TOO_LARGE."""
    data = root.read(path, settings.max_doc_bytes).data
    found = _read_structure(data, shown, settings)
    body, start_line = found.split.body, found.split.body_start_line
    calls = find_value_calls(body, start_line, found.zones)
    return {
        "filePath": shown,
        "sizeBytes": len(data),
        "lineCount": found.text.count("\n") + 1,
        "frontmatter": found.frontmatter,
        "frontmatterFields": list(found.frontmatter or ()),
        "headings": [
            {"level": block.level, "text": block.heading, "line": block.start_line}
            for block in found.blocks
            if block.level
        ],
        "blockCount": len(found.blocks),
        "annotations": [
            {"type": one.type, "value": one.value, "label": one.label} for one in found.annotations
        ],
        "valueCalls": [call.field for call in calls],
        "detectedPatterns": detect_patterns(found.text),
    }


def scan_directory(
    root: ProjectRoot,
    path: str,
    shown: str,
    settings: WorkerSettings,
    *,
    name: str | None,
    check_time: Callable[[], None],
) -> dict[str, Any]:
    """The patterns of a directory, under the name `shown`; `name` is its own, for families.

    Reads what the limits allow, in path order; the rest is counted. `check_time` is asked
    before each file and may end the scan.
    """
    scanned: list[ScannedFile] = []
    bytes_left = settings.scan_max_bytes
    skipped = 0
    truncated = False
    for file in walk_for_scan(root, path):
        check_time()
        too_large = bool(settings.max_doc_bytes) and file.size > settings.max_doc_bytes
        if too_large or file.size > bytes_left or len(scanned) >= settings.scan_max_files:
            truncated = True
            skipped += 1
            continue
        try:
            data = root.read(file.path, settings.max_doc_bytes).data
        except MaadError:
            skipped += 1
            continue
        bytes_left -= len(data)
        below = file.path.removeprefix(f"{path}/") if path else file.path
        scanned.append(_summarize(data, below, settings))
    return corpus_report(shown, name, scanned, skipped=skipped, truncated=truncated)


def _summarize(data: bytes, path: str, settings: WorkerSettings) -> ScannedFile:
    found = _read_structure(data, path, settings)
    doc_type = (found.frontmatter or {}).get("doc_type")
    return ScannedFile(
        path=path,
        line_count=found.text.count("\n") + 1,
        fields=None if found.frontmatter is None else tuple(found.frontmatter),
        doc_type=doc_type if isinstance(doc_type, str) else None,
        headings=tuple((block.level, block.heading) for block in found.blocks if block.level),
        annotations=tuple((one.type, one.value) for one in found.annotations),
    )


def _read_structure(data: bytes, path: str, settings: WorkerSettings) -> _Structure:
    text = data.decode("utf-8", "replace")
    split, frontmatter = _split_tolerantly(text, path)
    zones = VerbatimZones(split.body)
    annotations, _ = find_annotations(
        split.body, split.body_start_line, zones, settings.max_doc_annotations
    )
    blocks = scan_blocks(split.body, split.body_start_line, zones)
    return _Structure(text, split, frontmatter, zones, blocks, annotations)


def _split_tolerantly(text: str, path: str) -> tuple[SplitFile, dict[str, Any] | None]:
    """The parts of a file; with frontmatter that cannot be read, the whole file is body."""
    try:
        split = split_file(text.encode(), path)
        if split.has_frontmatter:
            return split, load_frontmatter(split, path)
        return split, None
    except MaadError:
        bom = text.startswith(BOM)
        return SplitFile(bom, "\n", False, "", text[1:] if bom else text, 1, 1), None
