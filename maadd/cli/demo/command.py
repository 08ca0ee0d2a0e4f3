"""`maad demo`: the whole product on a sample project, in a folder that is gone afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from maadd.cli.demo.page import Page

_SAMPLE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "demo_project")
_INSTANCE = """\
name: harbour
projects:
  - name: ferries
    path: ./ferries
    role: writer
    description: Services and incidents of a ferry company
"""
_COMMAND_S = 60.0


@click.command("demo")
def demo_command() -> int:
    """Show the daemon at work: serve a sample project, be its client, kill a worker, stop.

    Everything happens in a temporary folder. Exit code 1 when a step fails.
    """
    from rich.console import Console

    from maadd.cli.demo.page import Page, failure_in

    started = time.monotonic()
    page = Page(Console(highlight=False))
    folder = tempfile.mkdtemp(prefix="maadd-demo-")
    try:
        asyncio.run(_run(page, folder))
    except Exception as error:
        failure = failure_in(error)
        click.echo(f"\nmaad demo failed at: {failure.step}\n  {failure}", err=True)
        return 1
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.close(
        f"All of this took {time.monotonic() - started:.1f} s. Nothing of it is left behind."
    )
    return 0


async def _run(page: Page, folder: str) -> None:
    from maadd.cli.demo.daemon import Daemon, clean_environment, free_port
    from maadd.cli.demo.story import show_clean_tree, tell

    whole = asyncio.current_task()
    assert whole is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)
    environment = clean_environment(os.path.join(folder, "run"))
    root = os.path.join(folder, "ferries")
    instance_file = os.path.join(folder, "instance.yaml")

    with page.step("Make a project of a folder of Markdown files"):
        shutil.copytree(_SAMPLE, root)
        page.quote(await _maad(page, environment, "init", "ferries", cwd=folder))
        report = await _maad(page, environment, "reindex", "--project=ferries", cwd=folder)
        page.say(f"{json.loads(report)['indexed']} records are indexed.")
        _commit_records(page, root)
    with page.step("Declare an instance and issue a token for an agent"):
        _declare_instance(page, instance_file)
        issue = ["auth", "issue-token", "--instance=instance.yaml"]
        who = ["--role=writer", "--projects=ferries", "--agent=agt-demo"]
        token = await _maad(page, environment, *issue, *who, cwd=folder)
        page.quote(f"{token[:12]}…")
    with page.step("Start the daemon"):
        port = free_port()
        page.command(f"maadd --instance=instance.yaml --transport=http --http-port={port} &")
        daemon = await Daemon.start(instance_file, port, environment)
        page.say(f"Process {daemon.pid} listens on http://127.0.0.1:{daemon.port}/mcp.")
    try:
        await tell(page, daemon, token, root)
        with page.step("Stop the daemon"):
            page.command(f"kill -TERM {daemon.pid}")
            started = time.monotonic()
            code = await daemon.stop()
            if code != 0:
                raise AssertionError(f"the daemon ended with exit code {code}")
            page.say(f"It ended in {time.monotonic() - started:.1f} s with exit code 0.")
            show_clean_tree(page, root)
    except Exception:
        click.echo(f"\nThe end of the daemon's log:\n{daemon.log_end}", err=True)
        raise
    finally:
        await daemon.end()


async def _maad(page: Page, environment: dict[str, str], *arguments: str, cwd: str) -> str:
    """Run a command of ours as a person would; its standard output."""
    from maadd.cli.demo.daemon import MAAD

    page.command(f"maad {' '.join(arguments)}")
    process = await asyncio.create_subprocess_exec(
        *MAAD,
        *arguments,
        cwd=cwd,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_COMMAND_S):
            output, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise AssertionError(f"maad {arguments[0]} failed: {complaint.decode().strip()}")
    return output.decode().strip()


def _declare_instance(page: Page, path: str) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(_INSTANCE)
    page.quote(_INSTANCE)


def _commit_records(page: Page, root: str) -> None:
    from maadd.cli.scaffold import commit_paths
    from maadd.config.settings import Settings

    page.command("git add . && git commit -m 'Bring the records in'")
    commit_paths(root, ["."], "Bring the records in", Settings())
