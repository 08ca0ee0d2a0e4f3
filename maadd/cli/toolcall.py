"""One call of a tool on the project that a command means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maadd.cli.output import fail, warn
from maadd.cli.targets import project_and_settings
from maadd.protocol.encodable import check_encodable
from maadd.protocol.errors import MaadError, MaadErrors


def call_tool(tool: str, args: Mapping[str, Any], *, index_first: bool = False) -> Any:
    """The `data` of the answer; a failure ends the command.

    `index_first` takes over edits made by hand before the call.
    """
    root, settings = project_and_settings()
    from maadd.cli.oneshot import open_project

    try:
        check_encodable(tool, args)
        with open_project(root, settings, warn=warn) as project:
            if index_first:
                for error in project.call("maad_reindex", {})["errors"]:
                    warn(f"not indexed: {error['code']}: {error['message']}")
            return project.call(tool, args)
    except (MaadError, MaadErrors) as failure:
        fail(failure)


def given(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the command line has named."""
    return {name: value for name, value in args.items() if value is not None}
