"""`maadd` whose loop stands still where its connections are to be closed.

What the end may take after the drain is a second here, for the sake of those who wait.
"""

import sys
import threading
from typing import Any

from maadd.cli.main import serve_main
from maadd.front import drain
from maadd.transport.http_server import HttpServer


async def stand_still(_server: HttpServer, **_how: Any) -> None:
    threading.Event().wait()


if __name__ == "__main__":
    drain._HARD_LIMIT_S = 1.0
    HttpServer.close = stand_still  # type: ignore[method-assign]  # the fault that is tried
    sys.exit(serve_main())
