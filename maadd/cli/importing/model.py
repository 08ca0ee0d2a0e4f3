"""The new types of an import: their files, and the commit that holds them."""

from __future__ import annotations

from maadd.cli.importing.plans import plan_of
from maadd.cli.importing.run import Import
from maadd.cli.output import warn
from maadd.cli.scaffold import commit_paths, has_repository
from maadd.config.instance import synthesize_instance
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.imports.model_files import model_change, write_model

_WITH_HISTORY = ("audit", "batch", "snapshot")


def write_types(one: Import, folder: ProjectRoot, settings: Settings) -> list[str]:
    """Keep the plan, write what the types need, commit it; the files that were written.

    A commit that fails is advice only: the files are there, and the next commit of the project's
    owner can take them. Raises what `model_change` and `write_model` raise.
    """
    change = model_change(folder, one.plan)
    one.ledger.keep_plan(plan_of(one, ()))
    if not change.paths:
        return []
    write_model(folder, change, fsync=settings.fsync)
    project = synthesize_instance(folder.path, Role.ADMIN, settings).projects["default"]
    if project.history.effective_mode in _WITH_HISTORY and has_repository(folder.path):
        subject = f"Types for the import of {one.source.name}: {', '.join(one.plan.types)}"
        try:
            commit_paths(folder.path, change.paths, subject, settings, only=True)
        except MaadError as failure:
            warn(f"the new types are not committed: {failure.message}")
    return change.paths
