"""The exact content of stored bytes, or a refusal: `document-content-v1` (spec 05 §4.2)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from maadd.protocol.canonical_json import canonical_json
from maadd.protocol.document_content import content_digest, normalized_body
from maadd.protocol.errors import MaadError
from maadd_worker.contracts.safe_read import MAX_FILE_BYTES
from maadd_worker.markdown.frontmatter import BOM, SplitFile, split_file
from maadd_worker.markdown.yaml_profile import load_yaml_document

_OPENINGS = frozenset(("---\n", "---\r\n", f"---\n{BOM}", f"---\r\n{BOM}"))
_CLOSINGS = frozenset(("---", "---\n", "---\r\n"))


class StoredDocument(msgspec.Struct, frozen=True):
    """What the bytes of a document say. `raw_markdown` is the exact text, BOM included."""

    raw_markdown: str
    frontmatter: dict[str, Any]
    body: str
    content_digest: str
    raw_sha256: str
    byte_length: int


def read_stored(data: bytes, doc_id: str, doc_type: str, schema_ref: str) -> StoredDocument:
    """The content of a document that must have this identity.

    Raises RESPONSE_TOO_LARGE over 256 KiB, and RECEIPT_CONTENT_INVALID with a `cause`: `utf8`,
    `delimiters`, `yaml`, `not-mapping`, `non-finite`, `nodes`, `depth`, `identity`.
    """
    if len(data) > MAX_FILE_BYTES:
        raise MaadError(
            "RESPONSE_TOO_LARGE",
            f"the document has {len(data)} bytes, at most {MAX_FILE_BYTES} are read",
            {"observedBytes": len(data), "capBytes": MAX_FILE_BYTES},
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as failure:
        raise _invalid("utf8", f"invalid UTF-8 at byte {failure.start}") from None
    split = _split(data)
    frontmatter = load_strict_yaml(split.block)
    if not isinstance(frontmatter, dict):
        raise _invalid("not-mapping", "the frontmatter is no mapping")
    canonical_json(frontmatter)
    for key, expected in (("doc_id", doc_id), ("doc_type", doc_type), ("schema", schema_ref)):
        if frontmatter.get(key) != expected or not isinstance(frontmatter[key], str):
            raise _invalid("identity", f"its {key} is not the text {expected!r}")
    return StoredDocument(
        raw_markdown=text,
        frontmatter=frontmatter,
        body=normalized_body(split.body),
        content_digest=content_digest(doc_id, doc_type, frontmatter, split.body),
        raw_sha256=hashlib.sha256(data).hexdigest(),
        byte_length=len(data),
    )


def load_strict_yaml(text: str) -> Any:
    """The value of a YAML text (§4.3): whatever depth, lone surrogates kept.

    RECEIPT_CONTENT_INVALID (`yaml`, `nodes`) with the place in the text.
    """
    try:
        return load_yaml_document(text, "", lone_surrogates="keep")
    except MaadError as failure:
        raise _invalid("yaml", failure.message) from failure


def _split(data: bytes) -> SplitFile:
    """The parts of a document whose delimiters are exact: nothing but `---` and a line end."""
    try:
        split = split_file(data, "")
    except MaadError as failure:
        raise _invalid("delimiters", failure.message) from failure
    exact = (
        split.has_frontmatter
        and split.opening in _OPENINGS
        and split.closing in _CLOSINGS
        # At least one line, however blank.
        and split.block.endswith("\n")
    )
    if not exact:
        raise _invalid("delimiters", "the lines around the frontmatter are not exactly ---")
    return split


def _invalid(cause: str, message: str) -> MaadError:
    return MaadError("RECEIPT_CONTENT_INVALID", message, {"cause": cause})
