"""The revisions of MCP that are served, oldest first (spec 04 §9.2, §9.8).

The SDK has the same lists, behind an import that costs more than everything else of a start.
"""

from __future__ import annotations

HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Those that begin with `initialize`."""

STATELESS_REVISIONS = ("2026-07-28",)
"""Those whose requests stand for themselves."""

LATEST_HANDSHAKE = HANDSHAKE_REVISIONS[-1]
"""Offered to a client that asks for a revision that nobody knows."""
