"""Resolution of the history mode (spec 04 §2.4)."""

from __future__ import annotations

import pytest

from maadd.config.history import resolve_history
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings


@pytest.mark.parametrize(
    ("configured", "default", "has_git", "mode", "source"),
    [
        (None, None, True, "audit", "inferred"),
        (None, None, False, "feed", "inferred"),
        (None, "read", True, "read", "environment"),
        (None, "snapshot", True, "snapshot", "environment"),
        ("feed", "audit", False, "feed", "project"),
        ("read", None, False, "read", "project"),
        ("batch", "feed", True, "batch", "project"),
    ],
)
def test_precedence(
    configured: str | None, default: str | None, has_git: bool, mode: str, source: str
) -> None:
    settings, advisories = resolve_history(
        "p", configured=configured, default=default, has_git=has_git, max_writes=3
    )
    assert settings == HistorySettings(mode, configured, source, 3, None)
    expected = ["HISTORY_MODE_INFERRED"] if source == "inferred" else []
    assert [advisory.code for advisory in advisories] == expected


@pytest.mark.parametrize(
    ("configured", "default", "source"),
    [("audit", None, "project"), ("batch", "feed", "project"), (None, "snapshot", "environment")],
)
def test_a_mode_is_never_downgraded_silently(
    configured: str | None, default: str | None, source: str
) -> None:
    with pytest.raises(MaadError) as caught:
        resolve_history("p", configured=configured, default=default, has_git=False)
    assert caught.value.code == "GIT_NOT_INITIALIZED"
    assert caught.value.details == {"historyMode": configured or default, "modeSource": source}
