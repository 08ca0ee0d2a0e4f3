"""A front as a program of its own: starts a worker, says so, and waits.

Arguments: runtime directory, project directory, and a FIFO that holds a write, or nothing.
Every run of this file, also by a child
that takes it for its main program, leaves a line in `main_runs`.
"""

import asyncio
import json
import os
import sys

import click
import structlog

# click: a library that workers have no use for.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

with open(os.path.join(sys.argv[2], "main_runs"), "a") as runs:
    runs.write(f"{__name__} {click.__name__}\n")


async def main() -> None:
    from pool_bench import Directory, call_of, opened_bench, until

    async with opened_bench(sys.argv[1], os.path.dirname(sys.argv[2])) as bench:
        project = Directory(os.path.basename(sys.argv[2]), sys.argv[2])
        answers = {}
        for tool in ("pid", "modules", "stdio"):
            reply = await bench.pool.call(project, call_of(tool), is_write=False, timeout_s=20)
            answers[tool] = json.loads(reply.body)
        if len(sys.argv) > 3:
            call = call_of("put", text="in hand", after=sys.argv[3])
            writing = asyncio.ensure_future(
                bench.pool.call(project, call, is_write=True, timeout_s=20)
            )
            await until(lambda: project.lines("written"))
            answers["writing"] = not writing.done()
        print(json.dumps(answers), flush=True)
        # Until the test closes our standard input, or kills us.
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    asyncio.run(main())
