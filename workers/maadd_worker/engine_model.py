"""The registry and schemas that an engine works with, and how it takes over edits of them."""

from __future__ import annotations

from collections.abc import Callable

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.engine_events import stale_event
from maadd_worker.index.plan import TypePlans
from maadd_worker.instructions.scaffold import Notice
from maadd_worker.schema.model import Model, ModelRefresh, refresh_model, stale_files
from maadd_worker.write.activity import WriteActivity


class ModelInUse:
    """Changed on the writer's thread alone; any thread may read the present one."""

    def __init__(
        self,
        project: str,
        root: ProjectRoot,
        taken: ModelRefresh,
        activity: WriteActivity,
        tell: Callable[[Notice], None],
    ) -> None:
        self._project = project
        self._root = root
        self._activity = activity
        self._tell = tell
        self.taken = taken
        """The model, and what of the files could not be taken over."""
        self._plans = TypePlans(taken.model)
        self.changed: Callable[[], None] = _nothing
        """Called after another model has taken its place."""

    @property
    def model(self) -> Model:
        """The one that reads and writes are judged by."""
        return self.taken.model

    def plans(self) -> TypePlans:
        """The plans of the present model, which reads keep for as long as it stays."""
        plans = self._plans
        if plans.model is not self.taken.model:
            plans = self._plans = TypePlans(self.taken.model)
        return plans

    def record_paths(self) -> list[str]:
        """The folders of the registered types."""
        return [entry.path for entry in self.model.registry.types.values()]

    def refresh(self) -> None:
        """Take over edits of registry and schemas before a write (spec 03 §2.1)."""
        if changed := stale_files(self._root, self.model):
            self._tell(stale_event(self._project, self._activity.current, changed))
            self.adopt(refresh_model(self._root, self.model))

    def adopt(self, taken: ModelRefresh) -> None:
        """Work with this one from now on."""
        self.taken = taken
        self.changed()


def _nothing() -> None:
    return
