"""The SDK's server with everything that a front has it answer.

Imported when a request first needs the SDK (see `McpFace`).
"""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel.server import Server

from maadd import __version__
from maadd.config.settings import Settings
from maadd.front.state import RunningFront
from maadd.sessions.table import SessionTable
from maadd.tools.face import create_server
from maadd.tools.listing import ToolPipeline
from maadd.tools.prompts import add_prompts
from maadd.tools.resources import RecordResources
from maadd.tools.watching import RecordWatching


def make_mcp_server(
    pipeline: ToolPipeline, state: RunningFront, sessions: SessionTable, settings: Settings
) -> Server[Any]:
    """A server that answers tools, resources, subscriptions and prompts."""
    server = create_server(pipeline, version=__version__, structured=settings.structured_content)
    RecordResources(pipeline, state).add_to(server)
    RecordWatching(
        sessions, state, transport=settings.transport, queue_limit=settings.notify_queue
    ).add_to(server)
    add_prompts(server, state)
    return server
