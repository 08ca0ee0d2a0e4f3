"""Settings: every environment variable of every process, parsed once at start (spec 07).

`Settings` is the table itself: each field names its variable, its parse rule, its `serve`
flag and who reads it; the field's default is the variable's default and its fallback.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec

from maadd.config import rules
from maadd.config.rules import (
    FLAG_1,
    FLAG_1_TRUE,
    TEXT,
    OnBad,
    TrustProxy,
    Variable,
    integer,
    one_of,
)
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import EmbeddingSettings, WorkerSettings
from maadd.protocol.roles import Role

V = Variable


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the front and its workers. Times and sizes carry their unit in the name.

    `session_max_per_token` and `write_wait_ms` follow `session_max` and
    `request_timeout_ms` when they are not given themselves. The repr shows no secret.
    """

    project: Annotated[str | None, V("MAAD_PROJECT", TEXT, "FC", "project")] = None
    instance: Annotated[str | None, V("MAAD_INSTANCE", TEXT, "FC", "instance")] = None
    role: Annotated[Role, V("MAAD_ROLE", rules.ROLE, "F", "role")] = Role.READER

    transport: Annotated[
        str, V("MAAD_TRANSPORT", one_of("stdio", "http", "unix"), "F", "transport")
    ] = "stdio"
    http_host: Annotated[str, V("MAAD_HTTP_HOST", TEXT, "F", "http_host")] = "127.0.0.1"
    http_port: Annotated[int, V("MAAD_HTTP_PORT", integer(1, 65_535), "F", "http_port")] = 7733
    http_max_body: Annotated[int, V("MAAD_HTTP_MAX_BODY", integer(1), "F", "http_max_body")] = (
        1_048_576
    )
    http_headers_timeout_ms: Annotated[
        int, V("MAAD_HTTP_HEADERS_TIMEOUT_MS", integer(1), "F", "http_headers_timeout")
    ] = 10_000
    http_request_timeout_ms: Annotated[
        int, V("MAAD_HTTP_REQUEST_TIMEOUT_MS", integer(1), "F", "http_request_timeout")
    ] = 60_000
    http_keepalive_timeout_ms: Annotated[
        int, V("MAAD_HTTP_KEEPALIVE_TIMEOUT_MS", integer(1), "F", "http_keepalive_timeout")
    ] = 75_000
    http_max_inflight_bytes: Annotated[int, V("MAAD_HTTP_MAX_INFLIGHT_BYTES", integer(1), "F")] = (
        67_108_864
    )
    http_allowed_origins: Annotated[
        frozenset[str],
        V("MAAD_HTTP_ALLOWED_ORIGINS", rules.ORIGINS, "F", "http_allowed_origin", OnBad.REFUSE),
    ] = frozenset()
    trust_proxy: Annotated[
        TrustProxy, V("MAAD_TRUST_PROXY", rules.TRUST_PROXY, "F", "trust_proxy")
    ] = TrustProxy()
    unix_socket: Annotated[str | None, V("MAAD_UNIX_SOCKET", TEXT, "F", "unix_socket")] = None
    unix_socket_mode: Annotated[
        int, V("MAAD_UNIX_SOCKET_MODE", rules.FILE_MODE, "F", "unix_socket_mode")
    ] = 0o660
    metrics: Annotated[int | str | None, V("MAADD_METRICS", rules.METRICS_ADDRESS, "F")] = None
    metrics_port: Annotated[int | None, V("MAADD_METRICS_PORT", integer(1, 65_535), "F")] = None

    legacy_auth_token: Annotated[bool, V("MAAD_AUTH_TOKEN", rules.PRESENT, "F", "auth_token")] = (
        False
    )
    tokens_file: Annotated[str | None, V("MAADD_TOKENS_FILE", TEXT, "FC")] = None
    tokens_poll_ms: Annotated[int, V("MAAD_TOKENS_POLL_MS", integer(0), "F", "tokens_poll_ms")] = (
        5_000
    )
    auth_lax_perms: Annotated[bool, V("MAAD_AUTH_LAX_PERMS", FLAG_1, "FC")] = False
    token_identity_required: Annotated[bool, V("MAAD_TOKEN_IDENTITY_REQUIRED", FLAG_1, "FC")] = (
        False
    )
    pin_required: Annotated[bool, V("MAAD_PIN_REQUIRED", FLAG_1, "F")] = False

    session_idle_ms: Annotated[
        int, V("MAAD_SESSION_IDLE_MS", integer(1), "F", "session_idle_ms")
    ] = 1_800_000
    session_max: Annotated[int, V("MAAD_SESSION_MAX", integer(1), "F", "session_max")] = 128
    session_max_per_token: Annotated[int, V("MAAD_SESSION_MAX_PER_TOKEN", integer(1), "F")] = 64
    notify_queue: Annotated[int, V("MAAD_NOTIFY_QUEUE", integer(1), "F")] = 256

    request_timeout_ms: Annotated[int, V("MAAD_REQUEST_TIMEOUT_MS", integer(1), "F")] = 30_000
    write_wait_ms: Annotated[int, V("MAAD_WRITE_WAIT_MS", integer(1), "FW")] = 25_000
    shutdown_timeout_ms: Annotated[int, V("MAAD_SHUTDOWN_TIMEOUT_MS", integer(0), "F")] = 10_000
    emit_request_id: Annotated[bool, V("MAAD_EMIT_REQUEST_ID", rules.on_for("true"), "F")] = False
    structured_content: Annotated[bool, V("MAAD_STRUCTURED_CONTENT", FLAG_1, "F")] = False
    response_max_bytes: Annotated[
        int, V("MAAD_RESPONSE_MAX_BYTES", rules.leading_integer(1), "FW")
    ] = 65_536
    contract_response_max_bytes: Annotated[
        int, V("MAAD_CONTRACT_RESPONSE_MAX_BYTES", rules.positive_safe_integer(1_048_576), "FW")
    ] = 131_072
    provenance: Annotated[
        str, V("MAAD_PROV", rules.word_or(("on", "detail"), "off"), "FW", "prov")
    ] = "off"
    dry_run: Annotated[bool, V("MAAD_DRY_RUN", FLAG_1_TRUE, "F", "dry_run")] = False
    tools: Annotated[
        frozenset[str], V("MAAD_TOOLS", rules.TOOL_NAMES, "F", "tools", OnBad.REFUSE)
    ] = frozenset()
    filter_tools: Annotated[bool, V("MAAD_FILTER_TOOLS", FLAG_1, "F")] = False

    rl_writes_per_sec: Annotated[int, V("MAAD_RL_WRITES_PER_SEC", integer(1), "F")] = 10
    rl_writes_per_min: Annotated[int, V("MAAD_RL_WRITES_PER_MIN", integer(1), "F")] = 60
    rl_concurrent: Annotated[int, V("MAAD_RL_CONCURRENT", integer(1), "F")] = 5
    rl_payload_bytes: Annotated[int, V("MAAD_RL_PAYLOAD_BYTES", integer(1), "F")] = 1_048_576
    rl_disable: Annotated[bool, V("MAAD_RL_DISABLE", FLAG_1, "F")] = False
    bulk_max_items: Annotated[int, V("MAAD_BULK_MAX_ITEMS", integer(1, clamp=1000), "F")] = 50
    cleanup_max_records_bulk_delete: Annotated[
        int, V("MAAD_CLEANUP_MAX_RECORDS_BULK_DELETE", integer(1, clamp=1000), "W")
    ] = 100
    cleanup_max_records_delete_where: Annotated[
        int, V("MAAD_CLEANUP_MAX_RECORDS_DELETE_WHERE", integer(1, clamp=1000), "W")
    ] = 100
    cleanup_max_records_purge_soft_deleted: Annotated[
        int, V("MAAD_CLEANUP_MAX_RECORDS_PURGE_SOFT_DELETED", integer(1, clamp=1000), "W")
    ] = 100
    cleanup_max_records_repair_where: Annotated[
        int, V("MAAD_CLEANUP_MAX_RECORDS_REPAIR_WHERE", integer(1, clamp=1000), "W")
    ] = 100
    purge_default_retention_days: Annotated[
        int, V("MAAD_PURGE_DEFAULT_RETENTION_DAYS", integer(0), "W")
    ] = 30
    idempotency_ttl_ms: Annotated[int, V("MAAD_IDEMPOTENCY_TTL_MS", integer(1), "W")] = 600_000
    idempotency_max: Annotated[int, V("MAAD_IDEMPOTENCY_MAX", integer(1), "W")] = 10_000

    heavy_op_guard_disable: Annotated[bool, V("MAAD_HEAVY_OP_GUARD_DISABLE", FLAG_1, "F")] = False
    heavy_op_min_free_heap_mb: Annotated[
        int, V("MAAD_HEAVY_OP_MIN_FREE_HEAP_MB", integer(0), "F")
    ] = 96
    heavy_op_retry_after_ms: Annotated[int, V("MAAD_HEAVY_OP_RETRY_AFTER_MS", integer(0), "F")] = (
        1_000
    )
    heavy_op_max_concurrent: Annotated[int, V("MAAD_HEAVY_OP_MAX_CONCURRENT", integer(0), "F")] = 4
    heavy_op_breaker_threshold: Annotated[
        int, V("MAAD_HEAVY_OP_BREAKER_THRESHOLD", integer(0), "F")
    ] = 3
    heavy_op_breaker_cooldown_ms: Annotated[
        int, V("MAAD_HEAVY_OP_BREAKER_COOLDOWN_MS", integer(0), "F")
    ] = 5_000
    memory_pressure_interval_ms: Annotated[
        int, V("MAAD_MEMORY_PRESSURE_INTERVAL_MS", rules.INTERVAL_OR_OFF, "F")
    ] = 60_000
    memory_pressure_ratio: Annotated[float, V("MAAD_MEMORY_PRESSURE_RATIO", rules.RATIO, "F")] = 0.8
    memory_pressure_cooldown_ms: Annotated[
        int, V("MAAD_MEMORY_PRESSURE_COOLDOWN_MS", integer(0), "F")
    ] = 300_000

    project_idle_timeout_ms: Annotated[int, V("MAAD_PROJECT_IDLE_TIMEOUT_MS", integer(0), "F")] = (
        1_800_000
    )
    project_sweep_interval_ms: Annotated[
        int, V("MAAD_PROJECT_SWEEP_INTERVAL_MS", integer(1), "F")
    ] = 60_000
    worker_max: Annotated[int, V("MAAD_WORKER_MAX", integer(1), "F")] = 32
    worker_memory_mb: Annotated[int | None, V("MAAD_WORKER_MEMORY_MB", integer(1), "F")] = None
    worker_start_timeout_ms: Annotated[int, V("MAAD_WORKER_START_TIMEOUT_MS", integer(1), "F")] = (
        60_000
    )
    worker_queue: Annotated[int, V("MAAD_WORKER_QUEUE", integer(1), "F")] = 256
    runtime_dir: Annotated[str | None, V("MAADD_RUNTIME_DIR", TEXT, "FC")] = None
    xdg_runtime_dir: Annotated[str | None, V("XDG_RUNTIME_DIR", TEXT, "FC")] = None
    config_lenient: Annotated[bool, V("MAAD_CONFIG_LENIENT", FLAG_1, "FC")] = False

    boot_reindex: Annotated[bool, V("MAAD_BOOT_REINDEX", FLAG_1_TRUE, "W")] = False
    max_doc_bytes: Annotated[int, V("MAAD_MAX_DOC_BYTES", integer(0), "WC")] = 16_777_216
    max_doc_annotations: Annotated[int, V("MAAD_MAX_DOC_ANNOTATIONS", integer(0), "WC")] = 50_000
    watch: Annotated[str, V("MAAD_WATCH", one_of("auto", "poll", "off"), "FW")] = "auto"
    reconcile_s: Annotated[int, V("MAADD_RECONCILE_S", integer(0), "W")] = 300
    fsync: Annotated[bool, V("MAADD_FSYNC", rules.off_for("0"), "WC")] = True
    scan_max_files: Annotated[int, V("MAAD_SCAN_MAX_FILES", integer(1), "WC")] = 5_000
    scan_max_bytes: Annotated[int, V("MAAD_SCAN_MAX_BYTES", integer(1), "WC")] = 67_108_864

    history_mode_default: Annotated[
        str | None,
        V(
            "MAAD_HISTORY_MODE_DEFAULT",
            one_of(*rules.HISTORY_MODES),
            "FC",
            on_bad=OnBad.REFUSE,
        ),
    ] = None
    external_edits: Annotated[
        str, V("MAADD_EXTERNAL_EDITS", one_of(*rules.EXTERNAL_EDITS), "F")
    ] = "index"
    history_fallback_delay_ms: Annotated[
        int, V("MAADD_HISTORY_FALLBACK_DELAY_MS", integer(0), "W")
    ] = 5_000
    commit_identity: Annotated[bool, V("MAAD_COMMIT_IDENTITY", rules.off_for("false"), "W")] = True
    commit_author_name: Annotated[str, V("MAAD_COMMIT_AUTHOR_NAME", TEXT, "WC")] = "maadb-engine"
    commit_author_email: Annotated[str, V("MAAD_COMMIT_AUTHOR_EMAIL", TEXT, "WC")] = (
        "engine@maadb.local"
    )
    commit_author_from_agent: Annotated[bool, V("MAAD_COMMIT_AUTHOR_FROM_AGENT", FLAG_1, "W")] = (
        False
    )

    semantic_enable: Annotated[bool, V("MAAD_SEMANTIC_ENABLE", FLAG_1_TRUE, "WC")] = False
    embed_provider: Annotated[
        str | None,
        V(
            "MAAD_EMBED_PROVIDER",
            rules.EMBEDDING_PROVIDER,
            "WC",
            on_bad=OnBad.WARN,
        ),
    ] = None
    embed_model: Annotated[str | None, V("MAAD_EMBED_MODEL", TEXT, "WC")] = None
    embed_dim: Annotated[int | None, V("MAAD_EMBED_DIM", integer(1), "WC")] = None
    embed_model_path: Annotated[str | None, V("MAAD_EMBED_MODEL_PATH", TEXT, "WC")] = None
    embed_batch: Annotated[int, V("MAAD_EMBED_BATCH", integer(1), "WC")] = 32
    embed_timeout_ms: Annotated[int, V("MAAD_EMBED_TIMEOUT_MS", integer(1), "W")] = 10_000
    embed_max_chars: Annotated[int, V("MAAD_EMBED_MAX_CHARS", integer(1), "WC")] = 24_000
    vec_exact_scope_max: Annotated[int, V("MAAD_VEC_EXACT_SCOPE_MAX", integer(1), "W")] = 20_000
    openai_api_key: Annotated[str | None, V("MAAD_OPENAI_API_KEY", TEXT, "WC")] = None
    openai_base_url: Annotated[str, V("MAAD_OPENAI_BASE_URL", rules.BASE_URL, "WC")] = (
        "https://api.openai.com"
    )

    log_level: Annotated[
        str,
        V(
            "MAAD_LOG_LEVEL",
            one_of("trace", "debug", "info", "warn", "error", "fatal", "silent"),
            "FWC",
        ),
    ] = "info"
    log_pretty: Annotated[bool, V("MAAD_LOG_PRETTY", FLAG_1, "FWC")] = False
    audit_path: Annotated[str | None, V("MAAD_AUDIT_PATH", TEXT, "F")] = None

    @property
    def metrics_address(self) -> int | str | None:
        """Where `/metrics` is served: a port of 127.0.0.1 or a socket's path; None is off."""
        return self.metrics_port if self.metrics is None else self.metrics

    def worker(self) -> WorkerSettings:
        """The frozen copy a worker gets."""
        shared = {
            field: getattr(self, field)
            for field in WorkerSettings.__struct_fields__
            if field != "embedding"
        }
        embedding = EmbeddingSettings(
            enable=self.semantic_enable,
            provider=self.embed_provider,
            model=self.embed_model,
            dim=self.embed_dim,
            model_path=self.embed_model_path,
            batch=self.embed_batch,
            timeout_ms=self.embed_timeout_ms,
            max_chars=self.embed_max_chars,
            exact_scope_max=self.vec_exact_scope_max,
            openai_api_key=self.openai_api_key,
            openai_base_url=self.openai_base_url,
        )
        return WorkerSettings(**shared, embedding=embedding)

    def __repr__(self) -> str:
        return f"Settings(project={self.project!r}, instance={self.instance!r}, ...)"


VARIABLES: Mapping[str, Variable] = {
    field: get_args(annotation)[1] for field, annotation in Settings.__annotations__.items()
}
"""The table by field name."""


def load_settings(
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    *,
    lenient: bool,
    one_shot: bool = False,
) -> tuple[Settings, list[str]]:
    """The settings and the warnings to log once: flag before environment before default.

    `flags` maps `Variable.flag` to what the command line parser found; None, an empty text,
    False and an empty sequence are "not given". `lenient` (and `MAAD_CONFIG_LENIENT=1`) turns
    offenders into warnings and applies the fallback. `one_shot` looks only at what commands
    other than `serve` read. Raises MaadErrors of INSTANCE_CONFIG_INVALID that lists every
    offender.
    """
    flags = flags or {}
    lenient = lenient or environ.get("MAAD_CONFIG_LENIENT") == "1"
    values: dict[str, Any] = {}
    refused: list[str] = []
    warnings: list[str] = []

    def offend(on_bad: OnBad, problem: str, fallback: object) -> None:
        if on_bad is OnBad.REFUSE or (on_bad is OnBad.REFUSE_UNLESS_LENIENT and not lenient):
            refused.append(problem)
        else:
            warnings.append(f"{problem}; {_fallback_text(fallback)} applies instead")

    for field, variable in VARIABLES.items():
        if one_shot and "C" not in variable.readers:
            continue
        for source, text in _given(variable, environ, flags):
            try:
                value = variable.rule.parse(text)
            except ValueError as error:
                default = getattr(_DEFAULTS, field)
                offend(variable.on_bad, _problem(source, text, variable.rule, error), default)
            else:
                earlier = values.get(field)
                values[field] = earlier | value if isinstance(earlier, frozenset) else value

    refused += _conflicts(values, environ, flags)
    _fill_dependent(values, offend)
    if refused:
        raise MaadErrors([MaadError("INSTANCE_CONFIG_INVALID", problem) for problem in refused])
    return Settings(**values), warnings


_DEFAULTS = Settings()


def _given(
    variable: Variable, environ: Mapping[str, str], flags: Mapping[str, object]
) -> list[tuple[str, str]]:
    """What was given for `variable`: pairs of the source's name and the text to parse."""
    environment = environ.get(variable.name, "")
    from_environment = [(variable.name, environment)] if environment else []
    if variable.flag is None:
        return from_environment
    flag = flags.get(variable.flag)
    name = f"--{variable.flag.replace('_', '-')}"
    if isinstance(flag, Sequence) and not isinstance(flag, str):
        # A repeatable flag adds to the variable; an empty entry is one, and is judged.
        return from_environment + [(name, str(entry)) for entry in flag]
    if flag is None or flag is False or flag == "":
        return from_environment
    return [(name, "1" if flag is True else str(flag))]


def _problem(source: str, text: str, rule: rules.Rule, error: ValueError) -> str:
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    reason = f" ({error})" if error.args else ""
    return f"{source}={shown!r} is not accepted{reason}: expected {rule.expected}"


def _fallback_text(fallback: object) -> str:
    if fallback is None or fallback == TrustProxy():
        return "none"
    return fallback.text if isinstance(fallback, Role) else str(fallback)


def _conflicts(
    values: dict[str, Any], environ: Mapping[str, str], flags: Mapping[str, object]
) -> list[str]:
    """Single-project mode and file mode exclude each other; a flag beats the other's variable."""
    if "project" not in values or "instance" not in values:
        return []
    by_flag = [field for field in ("project", "instance") if flags.get(field)]
    if len(by_flag) == 1:
        del values["instance" if by_flag == ["project"] else "project"]
        return []
    names = "--project and --instance" if by_flag else "MAAD_PROJECT and MAAD_INSTANCE"
    return [f"{names} are both given: choose one"]


def _fill_dependent(values: dict[str, Any], offend: Callable[[OnBad, str, object], None]) -> None:
    """The two settings whose default or bound is another setting."""
    session_max = values.get("session_max", _DEFAULTS.session_max)
    values.setdefault("session_max_per_token", max(1, session_max // 2))

    timeout = values.get("request_timeout_ms", _DEFAULTS.request_timeout_ms)
    usual = min(_DEFAULTS.write_wait_ms, max(1, timeout * 5 // 6))
    wait = values.setdefault("write_wait_ms", usual)
    if wait >= timeout and wait != usual:
        values["write_wait_ms"] = usual
        offend(
            OnBad.REFUSE_UNLESS_LENIENT,
            f"MAAD_WRITE_WAIT_MS={wait} is not accepted: expected less than "
            f"MAAD_REQUEST_TIMEOUT_MS ({timeout})",
            usual,
        )
