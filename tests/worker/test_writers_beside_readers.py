"""Many writers, readers and deletes at once never meet a locked database (traps 26, 27, 42)."""

from __future__ import annotations

import threading
from typing import Any

GROUPS = 5
WRITERS = 8


def test_no_answer_and_no_log_line_tells_of_a_lock(open_project: Any) -> None:
    project = open_project("feed")
    logged: list[str] = []
    project.engine.connect_log(lambda event, **members: logged.append(f"{event} {members}"))
    project.ok("maad_create", docType="ship", docId="shp-x", fields={"name": "X"})
    enough = threading.Event()
    failed: list[bytes] = []
    reads: list[int] = []

    def keep_reading(number: int) -> None:
        reader = project.engine.open_reader()
        done = 0
        while not enough.is_set() or not done:
            for tool, args in (
                ("maad_query", {"docType": "ship", "depth": "full"}),
                ("maad_verify", {"mode": "integrity", "categories": ["broken_refs"]}),
                ("maad_changes_since", {}),
            ):
                reply = project.engine.read(project.request(tool, args), reader)
                if not reply.ok:
                    failed.append(reply.body)
            done += 1
        reader.close()
        reads.append(done)

    readers = [threading.Thread(target=keep_reading, args=(number,)) for number in range(2)]
    for reader in readers:
        reader.start()
    for group in range(GROUPS):
        creates = [
            project.request(
                "maad_create",
                {"docType": "ship", "docId": f"shp-{group}-{n}", "fields": {"name": f"N {n}"}},
            )
            for n in range(WRITERS)
        ]
        failed += [reply.body for reply in project.group(*creates) if not reply.ok]
        delete = project.request("maad_delete", {"docId": f"shp-{group}-0", "mode": "hard"})
        failed += [reply.body for reply in project.group(delete) if not reply.ok]
        project.engine.settle(True)
    enough.set()
    for reader in readers:
        reader.join()
    assert failed == []
    assert logged == []
    assert len(reads) == len(readers)
    assert project.ok("maad_summary")["totalDocuments"] == 1 + GROUPS * (WRITERS - 1)
