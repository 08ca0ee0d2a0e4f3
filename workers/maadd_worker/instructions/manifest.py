"""The managed files: names, places and texts of this version (spec 03 §11.1).

Names and places never change once released. The texts are the same for every project: they
say nothing about one project, its records or its machine.
"""

from __future__ import annotations

import importlib.resources

import msgspec

from maadd import __version__
from maadd_worker.instructions.stamp import body_hash, stamped

ENGINE = f"maadd/{__version__}"
"""How this product signs the files it writes."""

MANIFEST = (
    ("maad-md", "MAAD.md"),
    ("architect-core", "_skills/architect-core.md"),
    ("schema-guide", "_skills/schema-guide.md"),
    ("import-guide", "_skills/import-guide.md"),
    ("graph-ontology", "_skills/graph-ontology.md"),
    ("corpus-explorer", "_skills/corpus-explorer.md"),
)
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
    folder = importlib.resources.files("maadd_worker.instructions") / "templates"
    templates = []
    for name, path in MANIFEST:
        body = (folder / path.rpartition("/")[2]).read_bytes()
        templates.append(Template(name, path, body, body_hash(body)))
    return tuple(templates)
