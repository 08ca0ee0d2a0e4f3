"""Links in bodies, found and turned into refs or annotations."""

from __future__ import annotations

from typing import Any

from maadd_worker.imports.links import find_links
from maadd_worker.imports.prepare import original_text
from maadd_worker.markdown.verbatim import VerbatimZones

BODY = """\
See [[Ana]], [[Bo Kim|Bo]] and [Tunnel](../Projects/Tunnel.md "t").
`[[Ana]]` [[person:x|annotated]] [web](https://x.y/Ana.md) [here](#top)
![[pic.png]] [[Ana#Life]] [[Nobody]] [space](Bo%20Kim.md)
```
[[Ana]]
```
"""
VAULT = {
    "People/Ana.md": BODY,
    "People/Bo Kim.md": "---\naliases: [Bo]\n---\n\ufeffplain\r\n",
    "Projects/Tunnel.md": "[[bo]]",
}


def test_links_outside_of_code_are_found_with_their_lines() -> None:
    found = find_links(BODY, 5, VerbatimZones(BODY))
    assert [(link.line, link.target, link.heading, link.label) for link in found] == [
        (5, "Ana", "", ""),
        (5, "Bo Kim", "", "Bo"),
        (5, "../Projects/Tunnel.md", "", "Tunnel"),
        (7, "pic.png", "", ""),
        (7, "Ana", "Life", ""),
        (7, "Nobody", "", ""),
        (7, "Bo Kim.md", "", "space"),
    ]


def test_links_become_refs_of_fields_and_bodies_stay(folder: Any, propose_and_prepare: Any) -> None:
    source = folder(VAULT)
    plan, prepared = propose_and_prepare(source, "refs")
    by_key = {record.item.key: record for record in prepared.records}
    ana = by_key["People/Ana.md"]
    assert ana.fields["links_person"] == ["prs-bo-kim"]
    assert ana.fields["links_project"] == ["prj-tunnel"]
    assert by_key["Projects/Tunnel.md"].fields["links_person"] == ["prs-bo-kim"]
    assert original_text(ana, source, plan, prepared.assigned.targets) == BODY
    assert [(note.line, note.reason.split("'")[1]) for note in prepared.notes] == [
        (3, "pic.png"),
        (3, "Nobody"),
    ]


def test_links_become_annotations_where_nothing_is_lost(
    folder: Any, propose_and_prepare: Any
) -> None:
    source = folder(VAULT)
    plan, prepared = propose_and_prepare(source, "mentions")
    [ana, bo, _] = prepared.records
    text = original_text(ana, source, plan, prepared.assigned.targets)
    assert text == BODY.replace("[[Ana]],", "[[person:prs-ana|Ana]],").replace(
        "[[Bo Kim|Bo]]", "[[person:prs-bo-kim|Bo]]"
    ).replace('[Tunnel](../Projects/Tunnel.md "t")', "[[project:prj-tunnel|Tunnel]]").replace(
        "[space](Bo%20Kim.md)", "[[person:prs-bo-kim|space]]"
    )
    assert original_text(bo, source, plan, prepared.assigned.targets) == VAULT["People/Bo Kim.md"]
    assert any("to a place or an embedding" in note.reason for note in prepared.notes)
