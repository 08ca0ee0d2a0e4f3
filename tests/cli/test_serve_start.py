"""`maad serve`: what refuses a start, and a server over standard input and output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def refusal(done: Any) -> str:
    """The one line of a refused start."""
    assert done.code == 1
    assert done.out == ""
    lines: list[str] = [line for line in done.err.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.err
    return lines[0]


def test_nothing_to_serve(maad: Any) -> None:
    assert refusal(maad("serve")).startswith("INSTANCE_CONFIG_INVALID: there is nothing to serve")


BAD_FLAGS = {
    "role": "boss", "transport": "tcp", "http-port": "0", "http-max-body": "0",
    "http-headers-timeout": "a", "http-request-timeout": "-1", "http-keepalive-timeout": "1.5",
    "session-idle-ms": "0", "session-max": "many", "tokens-poll-ms": "-1",
    "unix-socket-mode": "999", "trust-proxy": "nowhere", "tools": "maad_gett",
}  # fmt: skip
BAD_VARIABLES = """
MAAD_HTTP_MAX_INFLIGHT_BYTES MAAD_HTTP_ALLOWED_ORIGINS MAADD_METRICS_PORT
MAAD_SESSION_MAX_PER_TOKEN MAAD_NOTIFY_QUEUE MAAD_REQUEST_TIMEOUT_MS MAAD_WRITE_WAIT_MS
MAAD_SHUTDOWN_TIMEOUT_MS MAAD_RESPONSE_MAX_BYTES MAAD_CONTRACT_RESPONSE_MAX_BYTES
MAAD_RL_WRITES_PER_SEC MAAD_RL_WRITES_PER_MIN MAAD_RL_CONCURRENT MAAD_RL_PAYLOAD_BYTES
MAAD_BULK_MAX_ITEMS MAAD_CLEANUP_MAX_RECORDS_BULK_DELETE MAAD_CLEANUP_MAX_RECORDS_DELETE_WHERE
MAAD_CLEANUP_MAX_RECORDS_PURGE_SOFT_DELETED MAAD_CLEANUP_MAX_RECORDS_REPAIR_WHERE
MAAD_PURGE_DEFAULT_RETENTION_DAYS MAAD_IDEMPOTENCY_TTL_MS MAAD_IDEMPOTENCY_MAX
MAAD_HEAVY_OP_MIN_FREE_HEAP_MB MAAD_HEAVY_OP_RETRY_AFTER_MS MAAD_HEAVY_OP_MAX_CONCURRENT
MAAD_HEAVY_OP_BREAKER_THRESHOLD MAAD_HEAVY_OP_BREAKER_COOLDOWN_MS
MAAD_MEMORY_PRESSURE_INTERVAL_MS MAAD_MEMORY_PRESSURE_RATIO MAAD_MEMORY_PRESSURE_COOLDOWN_MS
MAAD_PROJECT_IDLE_TIMEOUT_MS MAAD_PROJECT_SWEEP_INTERVAL_MS MAAD_WORKER_MAX
MAAD_WORKER_MEMORY_MB MAAD_WORKER_START_TIMEOUT_MS MAAD_WORKER_QUEUE MAAD_MAX_DOC_BYTES
MAAD_MAX_DOC_ANNOTATIONS MAAD_WATCH MAADD_RECONCILE_S MAAD_SCAN_MAX_FILES MAAD_SCAN_MAX_BYTES
MAAD_HISTORY_MODE_DEFAULT MAADD_HISTORY_FALLBACK_DELAY_MS MAAD_EMBED_DIM MAAD_EMBED_BATCH
MAAD_EMBED_TIMEOUT_MS MAAD_EMBED_MAX_CHARS MAAD_VEC_EXACT_SCOPE_MAX MAAD_LOG_LEVEL
"""
"""Of the table of spec 07, those that take some texts only and have no flag."""


def test_every_bad_flag_and_variable_is_named_at_once(maad: Any) -> None:
    """Spec 07 §1, and the flags of spec 04 §19.1; a flag is judged, not the variable under it."""
    flags = [f"--{name}={text}" for name, text in BAD_FLAGS.items()]
    variables = dict.fromkeys(BAD_VARIABLES.split(), "-x")
    under = {"MAAD_HTTP_PORT": "-x", "MAAD_SESSION_MAX": "-x", "MAAD_DRY_RUN": "x", "MAAD_PROV": ""}
    line = refusal(maad("serve", "--project=x", *flags, env=variables | under))
    said = line.split("INSTANCE_CONFIG_INVALID: ")[1:]
    named = {one.split(" is not accepted")[0] for one in said}
    assert named == {f"--{name}={text!r}" for name, text in BAD_FLAGS.items()} | {
        f"{name}='-x'" for name in variables
    }
    assert all(": expected " in one for one in said)


def test_two_variables_conflict_but_a_flag_decides(maad: Any, tmp_path: Path) -> None:
    both = {"MAAD_PROJECT": str(tmp_path), "MAAD_INSTANCE": "absent.yaml"}
    assert "both given" in refusal(maad("serve", env=both))
    decided = maad("serve", "--instance=also-absent.yaml", env={"MAAD_PROJECT": str(tmp_path)})
    assert refusal(decided).startswith("INSTANCE_CONFIG_NOT_FOUND: ")


def test_every_problem_of_an_instance_is_told(maad: Any, tmp_path: Path) -> None:
    (tmp_path / "instance.yaml").write_text("projects:\n  - {name: A, path: a}\n  - {name: b}\n")
    line = refusal(maad("serve", "--instance=instance.yaml"))
    assert line.count("INSTANCE_CONFIG_INVALID: ") == 3


ONE = "name: x\nprojects:\n  - {name: a, path: project"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", ["PARSE_ERROR: ", "line 2"]),
        (ONE + "}\nname: y\n", ["PARSE_ERROR: ", "name"]),
        (ONE.replace("name: x\n", "") + "}", ["name: a non-empty string"]),
        (ONE.replace("x", "''", 1) + "}", ["name: a non-empty string"]),
        (ONE.replace("x", "3", 1) + "}", ["name: a non-empty string"]),
        ("name: 3\n", ["name: a non-empty string", "projects: "]),
        ("name: x\nprojects: a\n", ["projects: "]),
        ("name: x\nprojects: []\n", ["projects: "]),
        ("name: x\nprojects: [a, {name: A, path: b}]\n", ["projects[0]: ", "'A'"]),
        (ONE + "}\n  - {name: a, path: other}\n", ["'a' is already taken"]),
        ("name: x\nprojects: [{name: a}, {name: b, path: ''}]\n", ["[0].path: ", "[1].path: "]),
        (ONE + ", role: king}", ["'king' is none of reader, writer, admin"]),
        (ONE + ", history_mode: never}", ["'never' is none of audit, feed, read, batch, snapsh"]),
        (ONE + ", history_options: 3}", ["history_options"]),
        (
            ONE + ", history_options: {max_writes: 0, max_delay_ms: 1.5, often: 1}}",
            ["max_writes: ", "max_delay_ms: ", "often: "],
        ),
        (ONE + ", rol: admin}", ["'rol', did you mean 'role'?"]),
        (ONE + "}\nprojetcs: []\n", ["'projetcs', did you mean 'projects'?"]),
        (ONE + "}\n  - {name: b, path: project/notes}\n", ["'b' lies inside that of project 'a'"]),
        (ONE + "}\n  - {name: b, path: ./other/../project}\n", ["project"]),
        (ONE + ", history_mode: batch}", ["GIT_NOT_INITIALIZED: "]),
    ],
)
def test_each_fault_of_an_instance_file_refuses_the_start(
    maad_here: Any, tmp_path: Path, project: Path, text: str, said: list[str]
) -> None:
    """The table of spec 04 §2.2 and the rules below it."""
    (tmp_path / "instance.yaml").write_text(text)
    line = refusal(maad_here("serve", "--instance=instance.yaml"))
    assert all(one in line for one in said), line
    assert line.count("; INSTANCE_CONFIG_INVALID: ") == len(said) - 1 or line.startswith("PARSE")


def test_an_instance_file_that_is_none(maad_here: Any, tmp_path: Path) -> None:
    absent = maad_here("serve", "--instance=absent.yaml")
    assert refusal(absent).startswith("INSTANCE_CONFIG_NOT_FOUND: ")
    folder = maad_here("serve", f"--instance={tmp_path}")
    assert refusal(folder).startswith("FILE_READ_ERROR: ")
    os.mkfifo(tmp_path / "pipe.yaml")
    pipe = maad_here("serve", f"--instance={tmp_path}/pipe.yaml")
    assert "it is no regular file" in refusal(pipe)


def test_a_project_folder_that_is_none_is_named(maad_here: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, why in (("absent", "No such file or directory"), ("file", "Not a directory")):
        line = refusal(maad_here("serve", f"--project={name}"))
        assert line.startswith(f"FILE_READ_ERROR: {tmp_path}/{name} cannot be served: {why};")
        assert "check --project" in line
        assert "instance file" not in line


@pytest.fixture
def maad_nowhere(tmp_path: Path, environment: dict[str, str]) -> Any:
    """Runs `maad` in a folder that is deleted by then."""
    lost = 'mkdir lost && cd lost && rmdir ../lost && exec "$@"'

    def run(*words: str, **more: str) -> Any:
        command = [sys.executable, "-m", "maadd.cli", *words]
        return subprocess.run(
            ["/bin/sh", "-c", lost, "sh", *command],
            cwd=tmp_path,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run


def test_a_deleted_current_folder_hinders_nothing_that_is_named_from_the_root(
    maad_nowhere: Any, project: Path, tmp_path: Path
) -> None:
    # It was never indexed, which is found out when all is open.
    assert "INDEX_EMPTY" in maad_nowhere("serve", f"--project={project}").stderr
    assert json.loads(maad_nowhere("doctor", f"--project={project}").stdout)["ok"] is True
    (tmp_path / "read/below").mkdir(parents=True)
    (tmp_path / "read/below/a.md").write_text("# A\n")
    scanned = maad_nowhere("scan", "--json", f"{tmp_path}/read")
    assert json.loads(scanned.stdout)["totalFiles"] == 1
    made = maad_nowhere("init", "--json", f"{tmp_path}/made")
    assert json.loads(made.stdout)["root"] == f"{tmp_path}/made"


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (("serve", "--project=project"), {}),
        (("doctor",), {}),
        (("serve", "--project={project}"), {"MAADD_RUNTIME_DIR": "run"}),
        (("serve", "--project={project}"), {"MAAD_AUDIT_PATH": "audit.log"}),
    ],
)
def test_what_is_relative_to_a_deleted_folder_is_refused(
    maad_nowhere: Any, project: Path, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    refused = maad_nowhere(*(word.format(project=project) for word in words), **variables)
    assert refused.returncode == 1
    begin = "INSTANCE_CONFIG_INVALID: " if words[0] == "serve" else "maad: "
    assert refused.stderr.startswith(f"{begin}the current folder was deleted; ")


def test_http_needs_an_instance_and_a_token(
    maad: Any, project: Path, instance: Path, environment: dict[str, str]
) -> None:
    single = maad("serve", f"--project={project}", "--transport=http")
    assert refusal(single).startswith("INSTANCE_CONFIG_INVALID: ")
    # Before anything is claimed, so that nobody is told to stop another server first.
    assert not os.path.exists(environment["MAADD_RUNTIME_DIR"])
    no_token = maad("serve", f"--instance={instance}", "--transport=http")
    assert refusal(no_token).startswith("TOKENS_FILE_MISSING: ")
    legacy = maad("serve", f"--instance={instance}", "--transport=http", "--auth-token=x")
    assert refusal(legacy).startswith("LEGACY_BEARER_REMOVED: ")


def test_a_registry_that_authenticates_nobody_refuses_the_start(maad: Any, instance: Path) -> None:
    """The boot matrix of spec 04 §7.1, whatever the legacy token."""

    def refused(transport: str) -> str:
        flags = (f"--instance={instance}", f"--transport={transport}")
        return refusal(maad("serve", *flags, f"--unix-socket={instance.parent}/s"))

    registry = instance.parent / "_auth/tokens.yaml"
    registry.parent.mkdir(0o700)
    registry.touch(0o600)
    assert refused("http").startswith("TOKENS_FILE_EMPTY: ")
    dead = "role: admin, created_at: 2020-01-01, projects: [{name: notes}]"
    registry.write_text(
        f"tokens:\n- {{id: a, hash: '{'0a' * 32}', {dead}, revoked_at: '2020-01-02T00:00:00Z'}}\n"
        f"- {{id: b, hash: '{'0b' * 32}', {dead}, expires_at: '2020-01-02T00:00:00Z'}}\n"
    )
    line = refused("unix")
    assert line.startswith("TOKENS_FILE_EMPTY: ")
    assert "maad auth issue-token" in line
    registry.write_text("tokens: 7\n")
    for transport in ("http", "stdio"):
        assert refused(transport).startswith("TOKENS_FILE_INVALID: _auth/tokens.yaml: tokens: ")


def test_a_registry_that_cannot_be_trusted_refuses_the_start(
    maad_here: Any, instance: Path
) -> None:
    def refused() -> str:
        serve = ("serve", f"--instance={instance}", "--transport=http", "--auth-token=x")
        return refusal(maad_here(*serve))

    registry = instance.parent / "_auth/tokens.yaml"
    registry.parent.mkdir(0o700)
    os.mkfifo(registry, 0o600)
    assert "it is no regular file" in refused()
    registry.chmod(0o644)
    assert refused().count("tokens.yaml") == 1
    assert "chmod 600" in refused()


ORIGINS = [
    "", " ", "*", "https://*.example.com", "null", "no origin", "http://[", "https://", "ftp://a",
    "https://u@a", "https://u:p@a", "https://a?q", "https://a#f", "https://a/path", "https://a:x",
]  # fmt: skip


def test_every_origin_that_is_none_refuses_the_start(maad: Any, instance: Path) -> None:
    """Spec 04 §9.5; a lenient start takes no other list than the one that was meant."""
    flags = [f"--http-allowed-origin={text}" for text in ORIGINS]
    some = {"MAAD_HTTP_ALLOWED_ORIGINS": "https://good.example, ,HTTPS://B.example:443/,null"}
    lenient = {"MAAD_CONFIG_LENIENT": "1"}
    line = refusal(maad("serve", f"--instance={instance}", *flags, env=some | lenient))
    said = line.split("; INSTANCE_CONFIG_INVALID: ")
    assert said[0].startswith("INSTANCE_CONFIG_INVALID: MAAD_HTTP_ALLOWED_ORIGINS=")
    assert "('null' is no origin)" in said[0]
    assert len(said) == 1 + len(ORIGINS)
    for text, problem in zip(ORIGINS, said[1:], strict=True):
        assert problem.startswith(f"--http-allowed-origin={text!r} is not accepted (")
    assert all("expected origins such as https://app.example.com" in one for one in said)


def test_a_single_project_that_was_never_indexed_is_refused(maad: Any, project: Path) -> None:
    line = refusal(maad("serve", f"--project={project}"))
    assert line.startswith("INDEX_EMPTY: ")
    assert "maad reindex" in line


def test_too_few_open_files_refuse_the_start(
    project: Path, environment: dict[str, str], maad: Any
) -> None:
    serving = f"ulimit -n 64; exec {sys.executable} -m maadd.cli serve --project={project}"
    done = subprocess.run(["bash", "-c", serving], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("INSTANCE_CONFIG_INVALID: this process may open 64 files")
    assert "LimitNOFILE=" in line


def full_pipe() -> tuple[int, int]:
    """Both ends of a pipe that takes nothing more until it is read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"\n" * 4096)
    os.set_blocking(writing, True)
    return reading, writing


def test_a_log_that_nobody_reads_holds_nothing_up(
    maad: Any, project: Path, environment: dict[str, str]
) -> None:
    assert maad("reindex", f"--project={project}").code == 0
    serving = [sys.executable, "-m", "maadd.cli", "serve", f"--project={project}"]
    reading, log = full_pipe()
    with subprocess.Popen(
        serving, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    os.close(log)
    os.close(reading)


@pytest.mark.parametrize("ending", ["end of input", "SIGTERM"])
def test_only_the_protocol_reaches_standard_output(
    maad: Any, project: Path, environment: dict[str, str], ending: str
) -> None:
    assert maad("reindex", f"--project={project}").code == 0
    serving = [sys.executable, "-m", "maadd.cli", "serve", f"--project={project}"]
    with subprocess.Popen(
        serving,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        if ending == "SIGTERM":
            server.send_signal(signal.SIGTERM)
            server.wait(20)
        rest, log = server.communicate(timeout=20)
    assert answer["id"] == 1
    assert answer["result"]["serverInfo"]["name"]
    assert rest == b""
    assert server.returncode == 0
    for line in log.splitlines():
        assert "msg" in json.loads(line)
    assert os.listdir(environment["MAADD_RUNTIME_DIR"]) == ["lock"]
