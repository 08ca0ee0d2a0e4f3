"""Errors that point at a place in a file (spec 01, conventions)."""

from __future__ import annotations

from maadd.protocol.errors import MaadError, SourceLocation


def parse_error(message: str, file: str, line: int, col: int) -> MaadError:
    """PARSE_ERROR at a 1-based line and column; `details` repeat the place for clients."""
    return _located("PARSE_ERROR", message, file, line, col)


def profile_violation(message: str, file: str, line: int, col: int) -> MaadError:
    """YAML_PROFILE_VIOLATION at a 1-based line and column."""
    return _located("YAML_PROFILE_VIOLATION", message, file, line, col)


def _located(code: str, message: str, file: str, line: int, col: int) -> MaadError:
    return MaadError(
        code,
        f"{file}:{line}:{col}: {message}",
        {"file": file, "line": line, "col": col},
        location=SourceLocation(file, line, col),
    )
