"""What a front takes hold of before anything heavy is imported.

The fork server loads the engine while this process loads the front's rooms: together they are
most of what a start takes.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from maadd.config.instance import Instance
from maadd.config.settings import Settings
from maadd.ops.activation import InheritedSockets, take_inherited
from maadd.ops.lines import open_sink
from maadd.pool.runtime_dir import RuntimeDir
from maadd.pool.spawn import Spawner
from maadd.protocol.line_sink import LineSink
from maadd.transport.standard_streams import take_over_stdio

_STDERR = 2


class Launched(NamedTuple):
    """Belongs to one front until `release`."""

    stdio: tuple[int, int] | None
    """Private descriptors of standard input and output, for the stdio transport."""
    inherited: InheritedSockets
    runtime: RuntimeDir
    spawner: Spawner
    stderr: LineSink
    """Where every line of this process goes."""

    def release(self) -> None:
        """End the fork server and give the runtime directory up, when all workers have ended."""
        self.spawner.stop()
        self.runtime.release()


def launch(settings: Settings, instance: Instance) -> Launched:
    """Take the streams and the runtime directory, launch the fork server.

    PROJECT_LOCKED `{scope, ownerPid}` when another front holds the directory,
    INSTANCE_CONFIG_INVALID when it cannot be used safely.
    """
    stdio = None
    if settings.transport == "stdio":
        # First of all: from here on nothing else can write to the client.
        stdio = take_over_stdio()
    inherited = take_inherited(os.environ)
    runtime = RuntimeDir.claim(
        instance.config_path or instance.root,
        os.environ,
        beside=settings.transport == "stdio",
    )
    spawner = Spawner(runtime.path)
    with runtime.placing_sockets():
        spawner.warm()
    return Launched(
        stdio, inherited, runtime, spawner, open_sink(_STDERR, pretty=settings.log_pretty)
    )
