"""One look at the files of a project that nobody watches: has its index lost records?
(spec 01 §14.6)"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import apsw

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.empty_guard import index_state
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.reader import IndexReader
from maadd_worker.watch.findings import Findings
from maadd_worker.watch.survey import survey


def look_for_lost_rows(
    root: ProjectRoot,
    open_reader: Callable[[], IndexReader],
    plans: TypePlans,
    findings: Findings,
    warn: Callable[..., None],
) -> None:
    """When there are so many files that the index must have lost some, add all that differ from
    it to the writer's backlog; single edits stay with whoever turned watching off."""
    try:
        with contextlib.closing(open_reader()) as reader:
            state = index_state(reader, plans.model, root)
            if not state.incomplete:
                return
            changed = survey(reader, root, plans, findings.failed).changed
    except (MaadError, apsw.Error, OSError) as failure:
        warn("survey_failed", error=f"{type(failure).__name__}: {failure}")
        return
    warn("index_incomplete", files=state.files, documents=state.documents)
    findings.add(changed, "seen")
