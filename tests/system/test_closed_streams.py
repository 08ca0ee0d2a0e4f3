"""A server or a command whose standard streams are closed does its work all the same."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from daemon_bench import BIN, ENVIRONMENT, Instance


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, timeout=50
    )


@pytest.mark.parametrize("closed", ["<&-", "2>&- </dev/null", ">&- </dev/null"])
def test_a_local_server_ends_in_order(instance: Instance, closed: str) -> None:
    done = shell(f"{BIN}/maadd --project {shlex.quote(str(instance.project))} {closed}")
    assert done.returncode == 0, done.stderr


def test_a_daemon_without_standard_input_serves_its_projects(instance: Instance) -> None:
    runtime = instance.path.parent / "run"
    serve = (
        f"MAADD_RUNTIME_DIR={shlex.quote(str(runtime))} {BIN}/maadd --transport unix "
        f"--instance {shlex.quote(str(instance.path))} "
        f"--unix-socket {shlex.quote(str(instance.path.parent / 'mcp.sock'))}"
    )
    ask = f"{BIN}/maad query note --limit 1 --project {shlex.quote(str(instance.project))}"
    script = f"""
        {serve} <&- & daemon=$!
        for _ in $(seq 100); do
            [ -S {shlex.quote(str(instance.path.parent / "mcp.sock"))} ] && break
            sleep 0.1
        done
        MAADD_RUNTIME_DIR={shlex.quote(str(runtime))} {ask}
        kill $daemon; wait $daemon; echo "ended with $?" >&2
    """
    done = shell(script)
    assert '"docId": "nte-' in done.stdout, done.stderr
    assert "ended with 0" in done.stderr


def test_a_command_without_standard_output_says_nothing(instance: Instance) -> None:
    done = shell(f"{BIN}/maad query note --project {shlex.quote(str(instance.project))} >&-")
    assert (done.returncode, done.stderr) == (0, "")
