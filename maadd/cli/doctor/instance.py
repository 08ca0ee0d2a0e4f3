"""The instance file and the token registry beside it (spec 04 §2, §7)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from maadd.auth.permissions import loose_permissions
from maadd.auth.record import TokenState, token_state
from maadd.auth.tokens_file import read_tokens
from maadd.cli.doctor.check import Check, of_errors, ok, problem, warning
from maadd.cli.tables import counted
from maadd.config.instance import Instance, load_instance
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError, MaadErrors


def look(path: str, settings: Settings) -> tuple[Instance | None, list[Check]]:
    """The instance, None when it is not usable, with the checks of its file."""
    try:
        instance = load_instance(path, settings)
    except MaadErrors as failure:
        return None, list(of_errors("instance file", failure))
    checks = [ok("instance file", f"{instance.name}: {counted(len(instance.projects), 'project')}")]
    checks += [warning("instance file", text, "correct the file") for text in instance.warnings]
    return instance, checks


def token_checks(instance: Instance, settings: Settings) -> Iterator[Check]:
    """The registry: who may read it, whether it is sound, and how many tokens it holds."""
    path = instance.tokens_path
    for text in loose_permissions(path):
        found, _, advice = text.partition("; ")
        if settings.auth_lax_perms:
            yield warning("tokens file", f"{found}, which MAAD_AUTH_LAX_PERMS allows", advice)
        else:
            yield problem("tokens file", found, advice)
    try:
        stored = read_tokens(path)
    except MaadError as failure:
        yield from of_errors("tokens file", failure)
        return
    if stored.stamp is None:
        advice = "maad auth issue-token makes one; a server over HTTP takes nobody without"
        yield warning("tokens", "there is no token registry yet", advice)
        return
    states: Counter[TokenState] = Counter(
        token_state(record, time.time()) for record in stored.document.records
    )
    text = ", ".join(f"{states[state]} {state}" for state in ("active", "expired", "revoked"))
    if not states["active"]:
        yield warning("tokens", text, "maad auth issue-token makes one")
    else:
        yield ok("tokens", text)
