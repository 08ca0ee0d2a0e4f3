"""Making folders inside of one that must be there already.

A project may be moved away while it is written. `os.makedirs` would begin an empty one in its
place, which keeps the real one from coming back.
"""

from __future__ import annotations

import os
from contextlib import suppress


def make_folders(base: str, *names: str) -> None:
    """Make the folders `names`, each within the one before and the first within `base`, where they
    are missing. FileNotFoundError when `base` is missing; it is never made."""
    path = base
    for name in names:
        path = os.path.join(path, name)
        with suppress(FileExistsError):
            os.mkdir(path)
