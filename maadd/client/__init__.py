"""For hosts that create records under guard: digests, complete delivery, reconciliation.

Pure functions, but for `read_complete`, which calls what it is given. See docs/host-contracts.md.
"""

from maadd.client.assembly import AssemblyError, assemble
from maadd.client.delivery import CallTool, data_of, read_complete
from maadd.client.reconcile import Fate, ReceiptError, Reconciliation, reconcile
from maadd.protocol.canonical_json import canonical_json, sha256_hex
from maadd.protocol.document_content import content_digest, new_document_digest
from maadd.protocol.errors import MaadError
from maadd.protocol.shape_json import pack, unpack

__all__ = [
    "AssemblyError",
    "CallTool",
    "Fate",
    "MaadError",
    "ReceiptError",
    "Reconciliation",
    "assemble",
    "canonical_json",
    "content_digest",
    "data_of",
    "new_document_digest",
    "pack",
    "read_complete",
    "reconcile",
    "schema_digest",
    "sha256_hex",
    "unpack",
]


def schema_digest(schema_contract: object) -> str:
    """The digest of a `schemaContract`, to compare with the `schemaDigest` beside it."""
    return sha256_hex(canonical_json(schema_contract))
