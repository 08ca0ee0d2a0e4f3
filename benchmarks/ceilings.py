"""What this machine can do at best, measured in the same run (the three ceilings).

bare: a uvicorn application that answers a fixed JSON of a given size.
G: `git add` + `git commit` of one file by the command line.
parse: only reading the files and parsing their frontmatter with libyaml.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

_BARE_APP = """
import sys
import uvicorn
body = b"x" * int(sys.argv[2])
headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
async def app(scope, receive, send):
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", http="httptools",
            log_level="error", access_log=False, lifespan="off", server_header=False)
"""

GIT_ENV = {
    **os.environ,
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@example.invalid",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@example.invalid",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def start_bare_server(port: int, size: int) -> subprocess.Popen[bytes]:
    """Start the bare application; the caller waits for its port and ends it."""
    return subprocess.Popen([sys.executable, "-c", _BARE_APP, str(port), str(size)])


async def wait_for_port(port: int, timeout_s: float = 20.0) -> None:
    """Return when something listens on 127.0.0.1:port."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def git(root: Path, *arguments: str) -> None:
    """Run one git command in `root`; its failure ends the benchmark."""
    subprocess.run(
        ["git", "-C", str(root), *arguments], env=GIT_ENV, check=True, capture_output=True
    )


def git_rate(root: Path, rounds: int) -> float:
    """Commits a second of `git add` and `git commit` of one new file each."""
    folder = root / "inspections"
    started = time.perf_counter()
    for number in range(rounds):
        path = folder / f"ceiling-{number}.txt"
        path.write_text(f"ceiling {number}\n")
        git(root, "add", "--", f"inspections/{path.name}")
        git(root, "commit", "-q", "-m", f"ceiling {number}", "--", f"inspections/{path.name}")
    return rounds / (time.perf_counter() - started)


def parse_rate(root: Path) -> float:
    """Records a second of reading every file and loading its frontmatter with libyaml."""
    # The guides at the root and in `_skills` are no records.
    paths = [path for path in root.glob("*/*.md") if not path.parent.name.startswith("_")]
    started = time.perf_counter()
    for path in paths:
        block = path.read_bytes().split(b"---\n", 2)[1]
        yaml.load(block, Loader=yaml.CSafeLoader)
    return len(paths) / (time.perf_counter() - started)
