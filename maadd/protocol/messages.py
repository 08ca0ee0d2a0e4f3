"""Messages between front and worker: msgspec Structs, msgpack on the wire (design §4).

The worker chooses its ROUTER identity `project#generation`; an answer of a generation that
the front no longer knows is dropped. Payloads (`Reply.body`) are finished UTF-8 JSON, so
that the front never parses them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.errors import WireError
from maadd.protocol.ownership import Server


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks, when a token stands behind the session (spec 04 §6)."""

    token_id: str
    agent_id: str | None = None
    user_id: str | None = None


class HistorySettings(msgspec.Struct, frozen=True):
    """The resolved history policy of a project (spec 04 §2.4)."""

    effective_mode: str
    configured_mode: str | None
    mode_source: str
    max_writes: int | None = None
    max_delay_ms: int | None = None
    external_edits: str = "index"
    """What becomes of files that others changed: `index`, or `commit` as well."""


PROVIDER_GROUP = "maadd.embedding_providers"
"""Entry points of other packages that make embedding providers."""


class EmbeddingSettings(msgspec.Struct, frozen=True):
    """The semantic subsystem's part of the environment (spec 02 §6.1, 07).

    `provider` is `openai`, `local`, `fake` or the name of an entry point, None for search by
    words only; `model` and `dim` None mean the provider's own. Its repr never shows the key.
    """

    enable: bool = False
    provider: str | None = None
    model: str | None = None
    dim: int | None = None
    model_path: str | None = None
    batch: int = 32
    timeout_ms: int = 10_000
    max_chars: int = 24_000
    exact_scope_max: int = 20_000
    openai_api_key: str | None = None
    openai_base_url: str = "https://api.openai.com"

    def __repr__(self) -> str:
        key = None if self.openai_api_key is None else "[redacted]"
        return f"EmbeddingSettings(provider={self.provider!r}, openai_api_key={key!r}, ...)"


class WorkerSettings(msgspec.Struct, frozen=True):
    """The part of the environment a worker needs, parsed once by whoever starts it (spec 07)."""

    max_doc_bytes: int = 16_777_216
    max_doc_annotations: int = 50_000
    boot_reindex: bool = False
    fsync: bool = True
    watch: str = "auto"
    reconcile_s: int = 300
    scan_max_files: int = 5_000
    scan_max_bytes: int = 67_108_864
    write_wait_ms: int = 25_000
    response_max_bytes: int = 65_536
    contract_response_max_bytes: int = 131_072
    cleanup_max_records_bulk_delete: int = 100
    cleanup_max_records_delete_where: int = 100
    cleanup_max_records_purge_soft_deleted: int = 100
    cleanup_max_records_repair_where: int = 100
    purge_default_retention_days: int = 30
    idempotency_ttl_ms: int = 600_000
    idempotency_max: int = 10_000
    history_fallback_delay_ms: int = 5_000
    commit_identity: bool = True
    commit_author_name: str = "maadb-engine"
    commit_author_email: str = "engine@maadb.local"
    commit_author_from_agent: bool = False
    provenance: str = "off"
    log_level: str = "info"
    log_pretty: bool = False
    worker_queue: int = 256
    embedding: EmbeddingSettings = EmbeddingSettings()


class WorkerConfig(msgspec.Struct, frozen=True):
    """Everything a worker is started with."""

    project: str
    root: str
    generation: int
    endpoint: str
    control_endpoint: str | None
    history: HistorySettings
    settings: WorkerSettings
    server: Server | None = None
    """Whom it works for."""
    served: bool = False
    """Whether it served this very folder before: then a folder without a model is another one,
    or what is left of it, and gets no new one."""

    @property
    def wire_identity(self) -> bytes:
        return f"{self.project}#{self.generation}".encode()


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Worker to front: the process runs and starts to open its engine."""

    pid: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Worker to front: lock held, journal recovered, index checked; calls may come."""

    documents: int
    recovery_actions: list[str]
    index_empty: int | None = None
    """How many Markdown files lie under the registered paths of an empty index (spec 01 §14.6);
    all calls but `maad_reindex` answer INDEX_EMPTY then."""


EXIT_NOT_OPENED = 3
"""Exit code of a worker that could not open its project; it has sent `Failed`."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Worker to front: the engine could not be opened; the worker exits by itself."""

    errors: list[WireError]


class ResultBudget(msgspec.Struct, frozen=True):
    """How large the result of a strict call may be, and what the front adds to it (spec 05 §8).

    `source` is the `_source` member, None without one.
    """

    cap_bytes: int
    emits_request_id: bool = False
    source: str | None = None
    structured: bool = False


class Call(msgspec.Struct, frozen=True, tag="call", omit_defaults=True):
    """Front to worker: one tool call that passed the front's checks (spec 04 §6)."""

    request_id: str
    tool: str
    args: dict[str, Any]
    role: int
    session_id: str
    generation: int
    deadline_ms: int
    """Milliseconds the worker may spend from receipt, queueing included."""
    identity: Identity | None = None
    dry_run: bool = False
    is_write: bool = False
    """Kind of the call (spec 04 §5.2); the pool sets it from the front's judgement."""
    verdict: WireError | None = None
    """The front's refusal of a write with an idempotency key, unless it is a replay (04 §6)."""
    wants_progress: bool = False
    """Whether anybody hears of its CallProgress."""
    source: bytes | None = None
    """The arguments as JSON text, in place of `args`, for a tool that judges numbers and names
    exactly as they were written (spec 05 §10.1)."""
    budget: ResultBudget | None = None
    """Set for the strict tools."""
    unguarded: bool = False
    """The guard against an empty index, which is for clients, does not stop the local operator."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel", omit_defaults=True):
    """Front to worker: nobody waits for this call any more.

    A read is interrupted; a write is withdrawn when it has not reached its publish point. A job
    that nobody else waits for is ended, unless the call has `expired`: then it goes on.
    """

    request_id: str
    expired: bool = False


class Permit(msgspec.Struct, frozen=True, tag="permit", omit_defaults=True):
    """Front to worker: the answer to a PermitRequest; with `refusal` nothing may be published.

    Given in the same turn in which access was judged: what the front hears later, a
    revocation or a timeout, comes after the write (spec 05 §10.2).
    """

    request_id: str
    refusal: WireError | None = None


class SessionEnded(msgspec.Struct, frozen=True, tag="session_ended"):
    """Front to worker: what was kept for this session can go."""

    session_id: str


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """Worker to front: the end of a call.

    `body` is the JSON text of `data` when `ok`, else of the `errors` list. `rows` is the
    length of the answer's main list, for the size hint. `audit` holds the members of the
    audit line of a write (spec 04 §16) or None.
    """

    request_id: str
    ok: bool
    body: bytes
    meta: dict[str, Any] | None = None
    error_code: str | None = None
    rows: int | None = None
    audit: dict[str, Any] | None = None


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled", omit_defaults=True):
    """Worker to front: what became of a call that cannot be answered now.

    `withdrawn`: nothing of it was done or will be, and no Reply follows. It answers a
    Cancel that came in time, and a Call that reached a worker which takes no more calls.
    Not withdrawn: the write is past its publish point; its Reply follows. `job_id` names the
    background job that the call waited for.
    """

    request_id: str
    withdrawn: bool
    job_id: str | None = None


class PermitRequest(msgspec.Struct, frozen=True, tag="permit_request"):
    """Worker to front: a guarded create is about to be published, and waits for its Permit.

    It waits at most `PERMIT_WAIT_S`, or until its deadline; then nothing is published.
    """

    request_id: str
    generation: int


class CallProgress(msgspec.Struct, frozen=True, tag="progress", omit_defaults=True):
    """Worker to front: how far a long call is, before its Reply.

    `done` grows from message to message; `total` is None where nobody knows it yet.
    """

    request_id: str
    done: float
    total: float | None = None
    text: str | None = None


RESYNC = "resync"
"""Action of an event that stands for others: changes of the project may have been missed."""


class Event(msgspec.Struct, frozen=True, tag="event"):
    """Worker to front: a record changed (spec 04 §11)."""

    seq: int
    action: str
    doc_id: str
    doc_type: str
    updated_at: str
    origin: str


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Worker to front, once a second, also while starting.

    `progress` is any text that changes when start-up advances; `doc_types` are the registered
    types, None before they are known; `jobs` counts background jobs that no call waits for.
    `pending_history` counts writes that are on disk and not yet in Git, `pending_changes` changed
    files that the index does not show yet.
    """

    rss_bytes: int
    queue_depth: int
    state: str
    progress: str = ""
    doc_types: list[str] | None = None
    jobs: int = 0
    pending_history: int = 0
    pending_changes: int = 0


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Front to worker: finish what was accepted, then say Bye and exit."""


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """Worker to front: everything accepted is answered; the process exits now. `displaced`: its
    files were taken away, and the next worker is to make a missing index anew."""

    clean: bool
    displaced: bool = False


ToFront = (
    Hello
    | Ready
    | Failed
    | Reply
    | Cancelled
    | PermitRequest
    | CallProgress
    | Event
    | Heartbeat
    | Bye
)
ToWorker = Call | Cancel | Permit | SessionEnded | Drain

PERMIT_WAIT_S = 5.0
"""How long a worker waits for the front's word at its publish point (spec 05 §10.2)."""

_encoder = msgspec.msgpack.Encoder()
_front_decoder = msgspec.msgpack.Decoder(ToFront)
_worker_decoder = msgspec.msgpack.Decoder(ToWorker)


def encode(message: ToFront | ToWorker) -> bytes:
    """One message as msgpack bytes."""
    return _encoder.encode(message)


def decode_to_front(frame: bytes) -> ToFront:
    """A frame that a worker sent; msgspec.DecodeError when it is none."""
    return _front_decoder.decode(frame)


def decode_to_worker(frame: bytes) -> ToWorker:
    """A frame that the front sent; msgspec.DecodeError when it is none."""
    return _worker_decoder.decode(frame)
