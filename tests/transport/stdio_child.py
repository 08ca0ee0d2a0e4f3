"""A process that serves an echoing pipeline on its standard input and output."""

from __future__ import annotations

import subprocess
import sys

import uvloop
from conftest import EchoPipeline, serve_stdio

from maadd.transport.standard_streams import take_over_stdio

if __name__ == "__main__":
    descriptors = take_over_stdio()
    print("a print")
    subprocess.run(["echo", "a child's output"], check=True)
    sys.stdout.flush()
    sys.stderr.write(f"stdin holds {sys.stdin.read()!r}\n")
    pipeline = EchoPipeline()
    uvloop.run(serve_stdio(*descriptors, pipeline))
    sys.stderr.write(f"cancelled={pipeline.cancelled.is_set()}\n")
