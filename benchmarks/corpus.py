"""A generated project: n linked records with annotations, the same for every run.

Types: `station` (1 in 50), `technician` (1 in 25), `inspection` (the rest). Records are
deterministic for a given n and seed.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

REGISTRY = """\
types:
  station:
    path: stations
    id_prefix: sta
    schema: station.v1
  technician:
    path: technicians
    id_prefix: tec
    schema: technician.v1
  inspection:
    path: inspections
    id_prefix: ins
    schema: inspection.v1{shard}
"""

SCHEMAS = {
    "station.v1": """\
type: station
version: 1
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  region: {type: enum, values: [north, east, south, west], index: true}
""",
    "technician.v1": """\
type: technician
version: 1
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  station: {type: ref, target: station, index: true}
""",
    "inspection.v1": """\
type: inspection
version: 1
required: [doc_id, title, station, status]
fields:
  title: {type: string, index: true}
  station: {type: ref, target: station, index: true}
  technician: {type: ref, target: technician, index: true}
  status: {type: enum, values: [planned, open, closed, void], index: true}
  done_on: {type: date, index: true}
  score: {type: number, index: true}
  cost: {type: amount, index: true}
  tags: {type: list, item_type: string, index: true}
""",
}

_TEXT = """
pump valve seal bearing gauge filter housing cable sensor relay coupling flange rotor tank hatch
ladder switch fan duct hose bracket panel spring washer gasket
"""
_WORDS = tuple(_TEXT.split())


def write_corpus(root: Path, count: int, *, seed: int = 7, sharded: bool = False) -> None:
    """Write registry, schemas and `count` records below `root`; no index, no repository."""
    rng = random.Random(seed)
    (root / "_registry").mkdir(parents=True)
    (root / "_schema").mkdir()
    (root / "_registry" / "object_types.yaml").write_text(
        REGISTRY.format(shard="\n    shard: 2" if sharded else "")
    )
    for ref, text in SCHEMAS.items():
        (root / "_schema" / f"{ref}.yaml").write_text(text)
    stations = max(1, count // 50)
    technicians = max(1, count // 25)
    for folder in ("stations", "technicians", "inspections"):
        (root / folder).mkdir()
    for number in range(stations):
        (root / "stations" / f"sta-{number:05d}.md").write_text(_station(rng, number))
    for number in range(technicians):
        (root / "technicians" / f"tec-{number:05d}.md").write_text(
            _technician(rng, number, stations)
        )
    for number in range(max(0, count - stations - technicians)):
        folder = root / "inspections"
        if sharded:
            folder /= hashlib.sha256(f"ins-{number:06d}".encode()).hexdigest()[:2]
            folder.mkdir(exist_ok=True)
        (folder / f"ins-{number:06d}.md").write_text(
            inspection_text(rng, number, stations, technicians)
        )


def inspection_text(rng: random.Random, number: int, stations: int, technicians: int) -> str:
    """One inspection record of about 1.3 kB: 8 fields, 4 blocks, 3 annotations."""
    words = [rng.choice(_WORDS) for _ in range(90)]
    station = f"sta-{rng.randrange(stations):05d}"
    technician = f"tec-{rng.randrange(technicians):05d}"
    day = f"20{20 + number % 6}-{1 + number % 12:02d}-{1 + number % 28:02d}"
    return f"""---
doc_id: ins-{number:06d}
doc_type: inspection
schema: inspection.v1
title: {words[0].capitalize()} {words[1]} at {station}
station: {station}
technician: {technician}
status: {rng.choice(("planned", "open", "closed", "closed", "void"))}
done_on: {day}
score: {rng.randrange(0, 1000) / 10}
cost: {rng.randrange(20, 4000)}.50 EUR
tags: [{words[2]}, {words[3]}, {words[4]}]
---

# Inspection {number} {{#top}}

{" ".join(words[5:35])}. Seen by [[person:{technician}|the technician]].

## Findings {{#findings}}

{" ".join(words[35:65])}. Cost [[price:{rng.randrange(10, 900)}.00 EUR|estimate]].

- {words[6]} worn
- {words[7]} loose

## Follow up {{#follow-up}}

{" ".join(words[65:])}. Next visit [[date:{day}|planned]].
"""


def _station(rng: random.Random, number: int) -> str:
    region = rng.choice(("north", "east", "south", "west"))
    return f"""---
doc_id: sta-{number:05d}
doc_type: station
schema: station.v1
name: Station {number}
region: {region}
---

# Station {number}

Built near {rng.choice(_WORDS)} yard.
"""


def _technician(rng: random.Random, number: int, stations: int) -> str:
    return f"""---
doc_id: tec-{number:05d}
doc_type: technician
schema: technician.v1
name: Technician {number}
station: sta-{rng.randrange(stations):05d}
---

# Technician {number}
"""
