"""Token registries on disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tokens_path(tmp_path: Path) -> Path:
    """The place of a registry that is not there yet; its folder is not either."""
    return tmp_path / "_auth" / "tokens.yaml"


@pytest.fixture
def auth_folder(tokens_path: Path) -> Path:
    """The folder of the registry, as private as it must be."""
    tokens_path.parent.mkdir(mode=0o700)
    return tokens_path.parent
