"""Settings: every variable of spec 07, its default, rule, fallback and flag."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from maadd.config.rules import OnBad, TrustProxy
from maadd.config.settings import VARIABLES, Settings, load_settings
from maadd.protocol.errors import MaadErrors
from maadd.protocol.messages import EmbeddingSettings, WorkerSettings
from maadd.protocol.roles import Role

# name, field, default, accepted texts with their values, refused texts
Texts = tuple[dict[str, Any], list[str]]

LEAST_ONE: Texts = ({"1": 1, "77": 77}, ["0", "-1", "1.5", "x", "1k", " 5", "99999999999999999"])
LEAST_ZERO: Texts = ({"0": 0, "77": 77}, ["-1", "1.5", "x", "1e3"])
CLAMPED: Texts = ({"1": 1, "1000": 1000, "1001": 1000}, ["0", "-1", "x"])
FLAG_1: Texts = ({"1": True, "true": False, "0": False, "yes": False}, [])
FLAG_1_TRUE: Texts = ({"1": True, "true": True, "TRUE": False, "0": False, "on": False}, [])
PATH: Texts = ({"/a b/c": "/a b/c", "rel": "rel"}, [])
TEXT: Texts = ({"anything, really": "anything, really"}, [])
PORT: Texts = ({"1": 1, "65535": 65535}, ["0", "65536", "http", "-7"])

TABLE: list[tuple[str, str, Any, Texts]] = [
    ("MAAD_PROJECT", "project", None, PATH),
    ("MAAD_INSTANCE", "instance", None, PATH),
    (
        "MAAD_ROLE",
        "role",
        Role.READER,
        ({"writer": Role.WRITER, "admin": Role.ADMIN}, ["Admin", "root"]),
    ),
    ("MAAD_TRANSPORT", "transport", "stdio", ({"http": "http", "unix": "unix"}, ["HTTP", "tcp"])),
    ("MAAD_HTTP_HOST", "http_host", "127.0.0.1", TEXT),
    ("MAAD_HTTP_PORT", "http_port", 7733, PORT),
    ("MAAD_HTTP_MAX_BODY", "http_max_body", 1_048_576, LEAST_ONE),
    ("MAAD_HTTP_HEADERS_TIMEOUT_MS", "http_headers_timeout_ms", 10_000, LEAST_ONE),
    ("MAAD_HTTP_REQUEST_TIMEOUT_MS", "http_request_timeout_ms", 60_000, LEAST_ONE),
    ("MAAD_HTTP_KEEPALIVE_TIMEOUT_MS", "http_keepalive_timeout_ms", 75_000, LEAST_ONE),
    ("MAAD_HTTP_MAX_INFLIGHT_BYTES", "http_max_inflight_bytes", 67_108_864, LEAST_ONE),
    (
        "MAAD_HTTP_ALLOWED_ORIGINS",
        "http_allowed_origins",
        frozenset(),
        (
            {"https://A.example:443, ,http://b:80/": frozenset({"https://a.example", "http://b"})},
            [
                "*",
                "https://*.example",
                "null",
                "ftp://a",
                "https://u:p@a",
                "https://a/x",
                "a.example",
            ],
        ),
    ),
    (
        "MAAD_TRUST_PROXY",
        "trust_proxy",
        TrustProxy(),
        (
            {
                "1": TrustProxy(hops=1),
                "true": TrustProxy(hops=1),
                "10.0.0.0/8, fd00::/8": TrustProxy(networks=("10.0.0.0/8", "fd00::/8")),
            },
            ["yes", "10.0.0.0/33", "0", "10.0.0.0/8,"],
        ),
    ),
    ("MAAD_UNIX_SOCKET", "unix_socket", None, PATH),
    (
        "MAAD_UNIX_SOCKET_MODE",
        "unix_socket_mode",
        0o660,
        ({"600": 0o600, "0666": 0o666, "0o640": 0o640}, ["888", "rw", "1777", "-1"]),
    ),
    ("MAAD_AUTH_TOKEN", "legacy_auth_token", False, ({"secret": True}, [])),
    ("MAAD_TOKENS_POLL_MS", "tokens_poll_ms", 5_000, LEAST_ZERO),
    ("MAAD_AUTH_LAX_PERMS", "auth_lax_perms", False, FLAG_1),
    ("MAAD_TOKEN_IDENTITY_REQUIRED", "token_identity_required", False, FLAG_1),
    ("MAAD_PIN_REQUIRED", "pin_required", False, FLAG_1),
    ("MAAD_SESSION_IDLE_MS", "session_idle_ms", 1_800_000, LEAST_ONE),
    ("MAAD_SESSION_MAX", "session_max", 128, LEAST_ONE),
    ("MAAD_SESSION_MAX_PER_TOKEN", "session_max_per_token", 64, LEAST_ONE),
    ("MAAD_NOTIFY_QUEUE", "notify_queue", 256, LEAST_ONE),
    ("MAAD_REQUEST_TIMEOUT_MS", "request_timeout_ms", 30_000, LEAST_ONE),
    (
        "MAAD_WRITE_WAIT_MS",
        "write_wait_ms",
        25_000,
        ({"1": 1, "29999": 29_999}, ["0", "30000", "x"]),
    ),
    ("MAAD_SHUTDOWN_TIMEOUT_MS", "shutdown_timeout_ms", 10_000, LEAST_ZERO),
    (
        "MAAD_EMIT_REQUEST_ID",
        "emit_request_id",
        False,
        ({"true": True, "1": False, "True": False}, []),
    ),
    ("MAAD_STRUCTURED_CONTENT", "structured_content", False, FLAG_1),
    (
        "MAAD_RESPONSE_MAX_BYTES",
        "response_max_bytes",
        65_536,
        ({"1": 1, "1000 bytes": 1000, "64k": 64}, ["k64", "0", "-5"]),
    ),
    (
        "MAAD_CONTRACT_RESPONSE_MAX_BYTES",
        "contract_response_max_bytes",
        131_072,
        (
            {"1": 1, "2e5": 200_000, "5.0": 5, "2000000": 1_048_576},
            ["0", "1.5", "-1", "x", "1e300"],
        ),
    ),
    ("MAAD_RL_WRITES_PER_SEC", "rl_writes_per_sec", 10, LEAST_ONE),
    ("MAAD_RL_WRITES_PER_MIN", "rl_writes_per_min", 60, LEAST_ONE),
    ("MAAD_RL_CONCURRENT", "rl_concurrent", 5, LEAST_ONE),
    ("MAAD_RL_PAYLOAD_BYTES", "rl_payload_bytes", 1_048_576, LEAST_ONE),
    ("MAAD_RL_DISABLE", "rl_disable", False, FLAG_1),
    ("MAAD_BULK_MAX_ITEMS", "bulk_max_items", 50, CLAMPED),
    ("MAAD_CLEANUP_MAX_RECORDS_BULK_DELETE", "cleanup_max_records_bulk_delete", 100, CLAMPED),
    ("MAAD_CLEANUP_MAX_RECORDS_DELETE_WHERE", "cleanup_max_records_delete_where", 100, CLAMPED),
    (
        "MAAD_CLEANUP_MAX_RECORDS_PURGE_SOFT_DELETED",
        "cleanup_max_records_purge_soft_deleted",
        100,
        CLAMPED,
    ),
    ("MAAD_CLEANUP_MAX_RECORDS_REPAIR_WHERE", "cleanup_max_records_repair_where", 100, CLAMPED),
    ("MAAD_PURGE_DEFAULT_RETENTION_DAYS", "purge_default_retention_days", 30, LEAST_ZERO),
    ("MAAD_IDEMPOTENCY_TTL_MS", "idempotency_ttl_ms", 600_000, LEAST_ONE),
    ("MAAD_IDEMPOTENCY_MAX", "idempotency_max", 10_000, LEAST_ONE),
    ("MAAD_HEAVY_OP_GUARD_DISABLE", "heavy_op_guard_disable", False, FLAG_1),
    ("MAAD_HEAVY_OP_MIN_FREE_HEAP_MB", "heavy_op_min_free_heap_mb", 96, LEAST_ZERO),
    ("MAAD_HEAVY_OP_RETRY_AFTER_MS", "heavy_op_retry_after_ms", 1_000, LEAST_ZERO),
    ("MAAD_HEAVY_OP_MAX_CONCURRENT", "heavy_op_max_concurrent", 4, LEAST_ZERO),
    ("MAAD_HEAVY_OP_BREAKER_THRESHOLD", "heavy_op_breaker_threshold", 3, LEAST_ZERO),
    ("MAAD_HEAVY_OP_BREAKER_COOLDOWN_MS", "heavy_op_breaker_cooldown_ms", 5_000, LEAST_ZERO),
    (
        "MAAD_MEMORY_PRESSURE_INTERVAL_MS",
        "memory_pressure_interval_ms",
        60_000,
        ({"5": 5, "0": 0, "-3": 0}, ["x", "1.5"]),
    ),
    (
        "MAAD_MEMORY_PRESSURE_RATIO",
        "memory_pressure_ratio",
        0.8,
        ({"0.5": 0.5, "1": 1.0, "7": 1.0, "-2": 0.0, ".25": 0.25}, ["high", "NaN", "Infinity"]),
    ),
    ("MAAD_MEMORY_PRESSURE_COOLDOWN_MS", "memory_pressure_cooldown_ms", 300_000, LEAST_ZERO),
    ("MAAD_PROJECT_IDLE_TIMEOUT_MS", "project_idle_timeout_ms", 1_800_000, LEAST_ZERO),
    ("MAAD_PROJECT_SWEEP_INTERVAL_MS", "project_sweep_interval_ms", 60_000, LEAST_ONE),
    ("MAAD_WORKER_MAX", "worker_max", 32, LEAST_ONE),
    ("MAAD_WORKER_MEMORY_MB", "worker_memory_mb", None, LEAST_ONE),
    ("MAAD_WORKER_START_TIMEOUT_MS", "worker_start_timeout_ms", 60_000, LEAST_ONE),
    ("MAAD_WORKER_QUEUE", "worker_queue", 256, LEAST_ONE),
    (
        "MAAD_TOOLS",
        "tools",
        frozenset(),
        ({"maad_get, maad_query": frozenset({"maad_get", "maad_query"})}, ["maad_gte", ","]),
    ),
    ("MAAD_FILTER_TOOLS", "filter_tools", False, FLAG_1),
    (
        "MAAD_PROV",
        "provenance",
        "off",
        ({"on": "on", "detail": "detail", "ON": "off", "x": "off"}, []),
    ),
    ("MAAD_DRY_RUN", "dry_run", False, FLAG_1_TRUE),
    ("MAAD_CONFIG_LENIENT", "config_lenient", False, FLAG_1),
    ("MAAD_BOOT_REINDEX", "boot_reindex", False, FLAG_1_TRUE),
    ("MAAD_MAX_DOC_BYTES", "max_doc_bytes", 16_777_216, LEAST_ZERO),
    ("MAAD_MAX_DOC_ANNOTATIONS", "max_doc_annotations", 50_000, LEAST_ZERO),
    ("MAAD_WATCH", "watch", "auto", ({"poll": "poll", "off": "off"}, ["Poll", "no"])),
    ("MAADD_RECONCILE_S", "reconcile_s", 300, LEAST_ZERO),
    ("MAADD_FSYNC", "fsync", True, ({"0": False, "1": True, "off": True}, [])),
    ("MAAD_SCAN_MAX_FILES", "scan_max_files", 5_000, LEAST_ONE),
    ("MAAD_SCAN_MAX_BYTES", "scan_max_bytes", 67_108_864, LEAST_ONE),
    (
        "MAAD_HISTORY_MODE_DEFAULT",
        "history_mode_default",
        None,
        (
            {mode: mode for mode in ("audit", "feed", "read", "batch", "snapshot")},
            ["Audit", "none"],
        ),
    ),
    ("MAADD_EXTERNAL_EDITS", "external_edits", "index", ({"commit": "commit"}, ["Commit", "no"])),
    ("MAADD_HISTORY_FALLBACK_DELAY_MS", "history_fallback_delay_ms", 5_000, LEAST_ZERO),
    (
        "MAAD_COMMIT_IDENTITY",
        "commit_identity",
        True,
        ({"false": False, "0": True, "False": True}, []),
    ),
    ("MAAD_COMMIT_AUTHOR_NAME", "commit_author_name", "maadb-engine", TEXT),
    ("MAAD_COMMIT_AUTHOR_EMAIL", "commit_author_email", "engine@maadb.local", TEXT),
    ("MAAD_COMMIT_AUTHOR_FROM_AGENT", "commit_author_from_agent", False, FLAG_1),
    ("MAAD_SEMANTIC_ENABLE", "semantic_enable", False, FLAG_1_TRUE),
    (
        "MAAD_EMBED_PROVIDER",
        "embed_provider",
        None,
        ({"openai": "openai", "Local": "local", "FAKE": "fake"}, []),
    ),
    ("MAAD_EMBED_MODEL", "embed_model", None, TEXT),
    ("MAAD_EMBED_DIM", "embed_dim", None, LEAST_ONE),
    ("MAAD_EMBED_MODEL_PATH", "embed_model_path", None, PATH),
    ("MAAD_EMBED_BATCH", "embed_batch", 32, LEAST_ONE),
    ("MAAD_EMBED_TIMEOUT_MS", "embed_timeout_ms", 10_000, LEAST_ONE),
    ("MAAD_EMBED_MAX_CHARS", "embed_max_chars", 24_000, LEAST_ONE),
    ("MAAD_VEC_EXACT_SCOPE_MAX", "vec_exact_scope_max", 20_000, LEAST_ONE),
    ("MAAD_OPENAI_API_KEY", "openai_api_key", None, TEXT),
    (
        "MAAD_OPENAI_BASE_URL",
        "openai_base_url",
        "https://api.openai.com",
        ({"http://localhost:8080/v1//": "http://localhost:8080/v1"}, []),
    ),
    (
        "MAAD_LOG_LEVEL",
        "log_level",
        "info",
        (
            {level: level for level in ("trace", "debug", "warn", "error", "fatal", "silent")},
            ["WARN", "warning", "30"],
        ),
    ),
    ("MAAD_LOG_PRETTY", "log_pretty", False, FLAG_1),
    ("MAAD_AUDIT_PATH", "audit_path", None, PATH),
    ("MAADD_RUNTIME_DIR", "runtime_dir", None, PATH),
    ("MAADD_TOKENS_FILE", "tokens_file", None, PATH),
    ("XDG_RUNTIME_DIR", "xdg_runtime_dir", None, PATH),
    ("MAADD_METRICS_PORT", "metrics_port", None, PORT),
    (
        "MAADD_METRICS",
        "metrics",
        None,
        ({"9464": 9464, "/run/maadd/metrics.sock": "/run/maadd/metrics.sock"}, ["0", "x", "a/b"]),
    ),
]

ACCEPTED = [
    (name, field, text, value)
    for name, field, _, (texts, _) in TABLE
    for text, value in texts.items()
]
REFUSED = [
    (name, field, default, text) for name, field, default, (_, texts) in TABLE for text in texts
]
NEVER_LENIENT = {
    VARIABLES[field].name for field in VARIABLES if VARIABLES[field].on_bad is OnBad.REFUSE
}


def strict(environ: dict[str, str], **flags: object) -> Settings:
    settings, warnings = load_settings(environ, flags, lenient=False)
    assert warnings == []
    return settings


def refusals(environ: dict[str, str], lenient: bool = False, **flags: object) -> list[str]:
    with pytest.raises(MaadErrors) as caught:
        load_settings(environ, flags, lenient=lenient)
    assert {error.code for error in caught.value.errors} == {"INSTANCE_CONFIG_INVALID"}
    return [error.message for error in caught.value.errors]


def test_the_table_is_complete() -> None:
    assert {field: variable.name for field, variable in VARIABLES.items()} == {
        field: name for name, field, _, _ in TABLE
    }


@pytest.mark.parametrize(("name", "field", "default"), [row[:3] for row in TABLE])
def test_a_variable_that_is_absent_or_empty_has_its_default(
    name: str, field: str, default: object
) -> None:
    assert getattr(strict({}), field) == default
    assert getattr(strict({name: ""}), field) == default


@pytest.mark.parametrize(("name", "field", "text", "value"), ACCEPTED)
def test_an_accepted_text(name: str, field: str, text: str, value: object) -> None:
    assert getattr(strict({name: text}), field) == value


@pytest.mark.parametrize(("name", "field", "default", "text"), REFUSED)
def test_a_text_that_is_not_accepted(name: str, field: str, default: object, text: str) -> None:
    (problem,) = refusals({name: text})
    assert name in problem
    assert text in problem
    if name in NEVER_LENIENT:
        assert refusals({name: text}, lenient=True) == [problem]
        return
    settings, warnings = load_settings({name: text}, lenient=True)
    assert getattr(settings, field) == default
    assert len(warnings) == 1
    assert warnings[0].startswith(problem)


def test_every_offender_is_listed_at_once() -> None:
    problems = refusals(
        {"MAAD_HTTP_PORT": "x", "MAAD_ROLE": "root", "MAAD_WATCH": "yes"}, session_max="none"
    )
    assert [re.split("[= ]", problem)[0] for problem in problems] == [
        "MAAD_ROLE",
        "MAAD_HTTP_PORT",
        "--session-max",
        "MAAD_WATCH",
    ]


def test_the_variable_for_leniency_makes_a_start_lenient() -> None:
    settings, warnings = load_settings(
        {"MAAD_CONFIG_LENIENT": "1", "MAAD_HTTP_PORT": "x"}, lenient=False
    )
    assert settings.http_port == 7733
    assert len(warnings) == 1


def test_an_unknown_embedding_provider_is_none_with_a_warning_even_when_strict() -> None:
    settings, warnings = load_settings({"MAAD_EMBED_PROVIDER": "acme"}, lenient=False)
    assert settings.embed_provider is None
    assert "MAAD_EMBED_PROVIDER" in warnings[0]


@pytest.mark.parametrize(
    ("name", "flag", "text", "field", "value"),
    [
        ("MAAD_ROLE", "role", "admin", "role", Role.ADMIN),
        ("MAAD_TRANSPORT", "transport", "unix", "transport", "unix"),
        ("MAAD_HTTP_HOST", "http_host", "::1", "http_host", "::1"),
        ("MAAD_HTTP_PORT", "http_port", 99, "http_port", 99),
        ("MAAD_HTTP_MAX_BODY", "http_max_body", "5", "http_max_body", 5),
        ("MAAD_HTTP_HEADERS_TIMEOUT_MS", "http_headers_timeout", 5, "http_headers_timeout_ms", 5),
        ("MAAD_HTTP_REQUEST_TIMEOUT_MS", "http_request_timeout", 5, "http_request_timeout_ms", 5),
        (
            "MAAD_HTTP_KEEPALIVE_TIMEOUT_MS",
            "http_keepalive_timeout",
            5,
            "http_keepalive_timeout_ms",
            5,
        ),
        ("MAAD_TRUST_PROXY", "trust_proxy", True, "trust_proxy", TrustProxy(hops=1)),
        ("MAAD_UNIX_SOCKET", "unix_socket", "/s", "unix_socket", "/s"),
        ("MAAD_UNIX_SOCKET_MODE", "unix_socket_mode", "600", "unix_socket_mode", 0o600),
        ("MAAD_AUTH_TOKEN", "auth_token", "old", "legacy_auth_token", True),
        ("MAAD_TOKENS_POLL_MS", "tokens_poll_ms", 0, "tokens_poll_ms", 0),
        ("MAAD_SESSION_IDLE_MS", "session_idle_ms", 5, "session_idle_ms", 5),
        ("MAAD_SESSION_MAX", "session_max", 5, "session_max", 5),
        ("MAAD_TOOLS", "tools", "maad_get", "tools", frozenset({"maad_get"})),
        ("MAAD_PROV", "prov", "detail", "provenance", "detail"),
        ("MAAD_DRY_RUN", "dry_run", True, "dry_run", True),
    ],
)
def test_a_flag_goes_before_the_variable(
    name: str, flag: str, text: object, field: str, value: object
) -> None:
    for environ in ({}, {name: "not looked at"}):
        assert getattr(strict(environ, **{flag: text}), field) == value
    for absent in (None, "", False):
        assert getattr(strict({}, **{flag: absent}), field) == getattr(Settings(), field)


def test_origins_of_flags_add_to_those_of_the_variable() -> None:
    settings = strict(
        {"MAAD_HTTP_ALLOWED_ORIGINS": "https://a"}, http_allowed_origin=("https://b", "https://c")
    )
    assert settings.http_allowed_origins == {"https://a", "https://b", "https://c"}
    assert strict({}, http_allowed_origin=()).http_allowed_origins == frozenset()


def test_an_empty_origin_flag_is_refused() -> None:
    (problem,) = refusals({}, http_allowed_origin=("",))
    assert "--http-allowed-origin" in problem


@pytest.mark.parametrize(
    ("environ", "flags", "chosen"),
    [
        ({"MAAD_PROJECT": "p"}, {"instance": "i"}, (None, "i")),
        ({"MAAD_INSTANCE": "i"}, {"project": "p"}, ("p", None)),
        ({"MAAD_PROJECT": "q", "MAAD_INSTANCE": "i"}, {"project": "p"}, ("p", None)),
    ],
)
def test_a_flag_beats_the_variable_of_the_other_mode(
    environ: dict[str, str], flags: dict[str, object], chosen: tuple[str | None, str | None]
) -> None:
    settings = strict(environ, **flags)
    assert (settings.project, settings.instance) == chosen


def test_both_modes_at_once_are_refused() -> None:
    assert "choose one" in refusals({"MAAD_PROJECT": "p", "MAAD_INSTANCE": "i"})[0]
    assert "--project and --instance" in refusals({}, project="p", instance="i")[0]


@pytest.mark.parametrize(("cap", "share"), [("1", 1), ("2", 1), ("7", 3), ("500", 250)])
def test_a_token_may_hold_half_of_the_sessions(cap: str, share: int) -> None:
    assert strict({"MAAD_SESSION_MAX": cap}).session_max_per_token == share


@pytest.mark.parametrize(("timeout", "wait"), [("60000", 25_000), ("6000", 5_000), ("1", 1)])
def test_the_write_wait_stays_below_the_request_timeout(timeout: str, wait: int) -> None:
    assert strict({"MAAD_REQUEST_TIMEOUT_MS": timeout}).write_wait_ms == wait


def test_a_write_wait_above_the_request_timeout_falls_back_when_lenient() -> None:
    environ = {"MAAD_REQUEST_TIMEOUT_MS": "6000", "MAAD_WRITE_WAIT_MS": "6000"}
    assert len(refusals(environ)) == 1
    settings, warnings = load_settings(environ, lenient=True)
    assert settings.write_wait_ms == 5_000
    assert len(warnings) == 1


def test_a_one_shot_command_looks_only_at_what_it_reads() -> None:
    environ = {
        "MAAD_HTTP_ALLOWED_ORIGINS": "*",
        "MAAD_HTTP_PORT": "x",
        "MAAD_MAX_DOC_BYTES": "5",
        "MAAD_SCAN_MAX_FILES": "x",
    }
    settings, warnings = load_settings(environ, lenient=True, one_shot=True)
    assert settings.max_doc_bytes == 5
    assert [warning.split("=")[0] for warning in warnings] == ["MAAD_SCAN_MAX_FILES"]


def test_a_worker_gets_its_part() -> None:
    assert Settings().worker() == WorkerSettings()
    settings = strict(
        {
            "MAAD_MAX_DOC_BYTES": "9",
            "MAAD_PROV": "on",
            "MAAD_EMBED_PROVIDER": "fake",
            "MAAD_EMBED_DIM": "8",
            "MAAD_OPENAI_API_KEY": "k-123",
        }
    )
    worker = settings.worker()
    assert worker.max_doc_bytes == 9
    assert worker.provenance == "on"
    assert worker.embedding == EmbeddingSettings(provider="fake", dim=8, openai_api_key="k-123")


def test_no_repr_shows_the_key() -> None:
    settings = strict({"MAAD_OPENAI_API_KEY": "k-123"})
    for shown in (repr(settings), repr(settings.worker()), str(settings.worker().embedding)):
        assert "k-123" not in shown


def test_importing_settings_is_cheap() -> None:
    script = (
        "import sys, maadd.config.settings;"
        "print([m for m in ('mcp', 'uvicorn', 'structlog', 'asyncio', 'yaml') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "[]"


def test_an_embedding_provider_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    monkeypatch.setattr(metadata, "entry_points", lambda *, group, name: [name] * (name == "acme"))
    settings, warnings = load_settings({"MAAD_EMBED_PROVIDER": "Acme"}, lenient=False)
    assert (settings.embed_provider, warnings) == ("acme", [])
