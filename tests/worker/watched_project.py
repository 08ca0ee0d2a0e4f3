"""A served project whose files people and Git change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maadd.protocol.messages import Event

PATIENCE_S = 20.0


class Watched:
    """A served project whose writer thread is the test."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.root: Path = harness.root
        self.events: list[Event] = []
        self._woken = threading.Event()
        harness.engine.connect_wake(self._woken.set)
        harness.engine.connect_log(self._log)
        self.logged: list[str] = []
        harness.engine.start_watching(lambda _: None)

    def _log(self, event: str, **members: Any) -> None:
        self.logged.append(event)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Do what a writer does between calls until the condition holds; its value."""
        end = time.monotonic() + PATIENCE_S
        while not (value := condition()):
            assert time.monotonic() < end, "it did not happen"
            self._woken.wait(0.1)
            self._woken.clear()
            self.harness.engine.settle(True)
            self.events += self.harness.engine.poll_events()
        return value

    def external(self) -> list[Event]:
        return [event for event in self.events if event.origin == "external"]

    def write(self, path: str, text: str) -> None:
        """Save a file the way a careful editor does."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.swp")
        draft.write_text(text)
        draft.rename(target)

    def names(self) -> set[str]:
        rows = self.harness.ok("maad_query", docType="ship", fields=["name"], limit=200)["results"]
        return {row["fields"]["name"] for row in rows}

    def row(self, doc_id: str) -> Any:
        """The live row of a record in the index."""
        return self.harness.engine._index.writer().find(doc_id)

    def health(self) -> Any:
        return self.harness.ok("maad_health")


def ship(doc_id: str, name: str) -> str:
    return f"---\ndoc_id: {doc_id}\ndoc_type: ship\nschema: ship.v1\nname: {name}\n---\n"
