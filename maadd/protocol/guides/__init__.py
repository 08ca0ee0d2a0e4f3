"""The guides that agents read: names, places and texts of this version (spec 03 §11).

Workers keep them as managed files in each project, the front offers them as prompts. Names and
places never change once released. The texts are the same for every project: they say nothing
about one project, its records or its machine.
"""

from __future__ import annotations

import importlib.resources

import msgspec


class Guide(msgspec.Struct, frozen=True):
    """One guide: the project-relative `path` of its managed file, and how a client lists it."""

    name: str
    path: str
    title: str
    description: str

    def read(self) -> bytes:
        """The text, UTF-8."""
        folder = importlib.resources.files("maadd.protocol.guides")
        return (folder / self.path.rpartition("/")[2]).read_bytes()


GUIDES = (
    Guide(
        "maad-md",
        "MAAD.md",
        "How to work with this server",
        "Read first: binding, which tool for which question, writing, recovery.",
    ),
    Guide(
        "architect-core",
        "_skills/architect-core.md",
        "Architect",
        "From requirements to types; for an empty project or new kinds of records.",
    ),
    Guide(
        "schema-guide",
        "_skills/schema-guide.md",
        "Schema guide",
        "Every key of the registry and of schema files, with examples.",
    ),
    Guide(
        "import-guide",
        "_skills/import-guide.md",
        "Import guide",
        "Existing tables and documents become records.",
    ),
    Guide(
        "graph-ontology",
        "_skills/graph-ontology.md",
        "Graph and ontology",
        "Questions about links between records, and making the links better.",
    ),
    Guide(
        "corpus-explorer",
        "_skills/corpus-explorer.md",
        "Corpus explorer",
        "Getting to know a project that holds records, cheap reads first.",
    ),
)
"""In the order of every listing."""
