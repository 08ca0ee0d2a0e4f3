"""Whether a network transport may start with this registry (spec 04 §7.1)."""

from __future__ import annotations

from maadd.auth.registry import TokenRegistry
from maadd.protocol.errors import MaadError

_HINT = "issue a token with 'maad auth issue-token --instance FILE --role R --projects P'"


def check_bootable(
    registry: TokenRegistry, *, legacy_token: bool, now: float | None = None
) -> None:
    """Lets http and unix start only when somebody can authenticate.

    `legacy_token`: whether `MAAD_AUTH_TOKEN` or `--auth-token` was given. Raises
    LEGACY_BEARER_REMOVED, TOKENS_FILE_MISSING or TOKENS_FILE_EMPTY. (An invalid file fails
    already when it is loaded, on every transport.)
    """
    if not registry.present:
        if legacy_token:
            raise MaadError(
                "LEGACY_BEARER_REMOVED",
                f"MAAD_AUTH_TOKEN and --auth-token no longer authenticate anybody; {_HINT}",
            )
        raise MaadError(
            "TOKENS_FILE_MISSING", f"there is no token registry at {registry.path}; {_HINT}"
        )
    if registry.counts(now).active == 0:
        raise MaadError("TOKENS_FILE_EMPTY", f"no token of {registry.path} is active; {_HINT}")
