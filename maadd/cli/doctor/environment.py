"""Settings from the environment: unknown ones, and values that are not accepted (spec 07)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from maadd.cli.doctor.check import Check, ok, problem, warning
from maadd.config.settings import VARIABLES, load_settings
from maadd.protocol.errors import MaadErrors, errors_of
from maadd.protocol.suggestion import nearest

_OURS = ("MAAD_", "MAADD_")


def checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """A check for each variable that is wrong, or one that says how many are set."""
    known = {variable.name for variable in VARIABLES.values()}
    given = [name for name in environ if name.startswith(_OURS)]
    sound = True
    for name in sorted(given):
        if name not in known:
            sound = False
            near = nearest(name, sorted(known))
            advice = f"did you mean {near}?" if near else "remove it; nothing reads it"
            yield warning(name, "is no setting of this version", advice)
    try:
        # `serve` refuses what this lists; other commands go on with the defaults.
        _, warnings = load_settings(environ, lenient=False)
    except MaadErrors as failure:
        sound = False
        for error in errors_of(failure):
            text, _, expected = error.message.partition(": expected ")
            advice = f"give {expected}" if expected else "correct it; serve does not start so"
            yield problem("settings", text, advice)
    else:
        for text in warnings:
            sound = False
            yield warning("settings", text, "correct it")
    if sound:
        yield ok("settings", f"{len(given)} from the environment, all accepted")
