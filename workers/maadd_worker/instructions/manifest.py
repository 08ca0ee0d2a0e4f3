"""The managed files of this version with their stamps (spec 03 §11.1)."""

from __future__ import annotations

import msgspec

from maadd import __version__
from maadd.protocol.guides import GUIDES
from maadd_worker.instructions.stamp import body_hash, stamped

ENGINE = f"maadd/{__version__}"
"""How this product signs the files it writes."""

MANIFEST = tuple((guide.name, guide.path) for guide in GUIDES)
"""Name and project-relative path of each file, in the order of every listing."""


class Template(msgspec.Struct, frozen=True):
    """One managed file as this version writes it."""

    name: str
    path: str
    body: bytes
    body_hash: str

    @property
    def content(self) -> bytes:
        """The whole file with its stamp."""
        return stamped(self.name, ENGINE, self.body)


def load_templates() -> tuple[Template, ...]:
    """Every managed file of this version, read from the package."""
    templates = []
    for guide in GUIDES:
        body = guide.read()
        templates.append(Template(guide.name, guide.path, body, body_hash(body)))
    return tuple(templates)
