"""One Markdown file as the parser understands it; no project needed (spec 01 §4.4)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.markdown.document import parse_document
from maadd_worker.schema.primitives import BUILTIN_SUBTYPES


def parsed_file(
    root: ProjectRoot, path: str, shown: str, settings: WorkerSettings
) -> dict[str, Any]:
    """Frontmatter, blocks, annotations and value calls, under the name `shown`.

    Annotations have the primitives that need no registry. Raises FILE_READ_ERROR,
    DOC_TOO_LARGE, PARSE_ERROR, YAML_PROFILE_VIOLATION.
    """
    data = root.read(path, settings.max_doc_bytes).data
    parsed = parse_document(data, shown, max_annotations=settings.max_doc_annotations)
    view: dict[str, Any] = {
        "filePath": shown,
        "fileHash": parsed.file_hash,
        "sizeBytes": len(data),
        "frontmatter": parsed.frontmatter,
        "frontmatterLines": parsed.key_lines,
        "blocks": [
            {
                "id": block.block_id,
                "heading": block.heading,
                "level": block.level,
                "startLine": block.start_line,
                "endLine": block.end_line,
            }
            for block in parsed.blocks
        ],
        "annotations": [
            {
                "type": one.type,
                "primitive": BUILTIN_SUBTYPES.get(one.type, "entity"),
                "value": one.value,
                "label": one.label,
                "line": one.line,
                "col": one.col,
            }
            for one in parsed.annotations
        ],
        "valueCalls": [
            {"field": call.field, "line": call.line, "col": call.col} for call in parsed.value_calls
        ],
    }
    if parsed.annotations_truncated:
        view["annotationsTruncated"] = True
    return view
