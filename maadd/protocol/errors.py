"""Error codes: the one closed table, and the one exception type of the product.

Codes and the keys of `details` are contract, messages are free text (spec 06). A code
outside this table never leaves the server: the front turns it into `INTERNAL`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec


class Retry(enum.Enum):
    """Whether the same call may succeed later unchanged (spec 06 §1)."""

    NO = "no"
    YES = "yes"
    IF_NOT_PUBLISHED = "if_not_published"
    """Reads: yes. Writes: only when `details.writeOutcome` is `not_published`, or with the
    same idempotency key; otherwise reconcile first."""


class ErrorCode(msgspec.Struct, frozen=True):
    """One row of the table: name, meaning, HTTP status where our HTTP layer uses one."""

    name: str
    meaning: str
    http: int | None = None
    retry: Retry = Retry.NO
    reserved: bool = False


_RESERVED = "reserved name of the reference, raised by nothing"

_TABLE = (
    ErrorCode(
        "UNAUTHORIZED",
        "bearer missing, malformed, unknown, revoked or expired (never told apart)",
        http=401,
    ),
    ErrorCode("ORIGIN_FORBIDDEN", "Origin present and not allowlisted", http=403),
    ErrorCode("NOT_FOUND", "path that does not exist", http=404),
    ErrorCode(
        "SESSION_NOT_FOUND", "session id unknown, evicted, expired, or of another token", http=404
    ),
    ErrorCode(
        "BAD_REQUEST", "no session id where one is needed; unparsable request target", http=400
    ),
    ErrorCode("PAYLOAD_TOO_LARGE", "HTTP body over the cap", http=413),
    ErrorCode("PIN_PROJECT_INVALID", "pin header malformed or repeated", http=400),
    ErrorCode("PIN_PROJECT_NOT_FOUND", "pinned project not declared", http=400),
    ErrorCode("PIN_ON_EXISTING_SESSION", "pin header together with a session id", http=400),
    ErrorCode("SHUTTING_DOWN", "server is draining", http=503, retry=Retry.YES),
    ErrorCode("INTERNAL", "unexpected failure; logged with its request id", http=500),
    ErrorCode("SESSION_UNBOUND", "session bound to no project"),
    ErrorCode("SESSION_ALREADY_BOUND", "second bind in one session"),
    ErrorCode("SESSION_PINNED", "session bound by the gateway's pin"),
    ErrorCode("SESSION_CANCELLED", "bound project removed by a reload; session ends"),
    ErrorCode("SESSION_STATELESS", "tool needs a session, revision has none"),
    ErrorCode("PROJECT_REQUIRED", "several projects possible, none named"),
    ErrorCode("PROJECT_NOT_WHITELISTED", "named project is not (or no longer) one of the binding"),
    ErrorCode("PROJECT_UNKNOWN", "project not declared in the instance"),
    ErrorCode(
        "INSUFFICIENT_ROLE", "effective role below the tool's; tool switched off by MAAD_TOOLS"
    ),
    ErrorCode(
        "ROLE_UPGRADE_DENIED",
        "as, an issued role or an issued expiry above what the caller may give",
    ),
    ErrorCode(
        "TOKEN_PROJECT_FORBIDDEN", "the token's allowlist does not admit the project", http=403
    ),
    ErrorCode("TOKEN_ROLE_ABOVE_GLOBAL", "per-project role above the token's global role"),
    ErrorCode("TOKEN_PROJECT_UNKNOWN", "allowlist names an undeclared project"),
    ErrorCode(
        "TOKEN_IDENTITY_REQUIRED", "neither agent nor user id, with MAAD_TOKEN_IDENTITY_REQUIRED=1"
    ),
    ErrorCode("TOKEN_NOT_FOUND", "token id unknown, or outside the caller's scope"),
    ErrorCode("TOKEN_UNKNOWN", "session's token no longer registered"),
    ErrorCode("TOKEN_REVOKED", "token revoked"),
    ErrorCode("TOKEN_EXPIRED", "token expired"),
    ErrorCode("LAST_ADMIN_TOKEN", "would revoke the last active admin token on *"),
    ErrorCode("TOKENS_FILE_MISSING", "no token registry"),
    ErrorCode("TOKENS_FILE_INVALID", "registry unreadable, malformed, or not writable"),
    ErrorCode("TOKENS_FILE_EMPTY", "no active token"),
    ErrorCode("TOKENS_FILE_BUSY", "registry lock not obtained in 5 s", retry=Retry.YES),
    ErrorCode("LEGACY_BEARER_REMOVED", "MAAD_AUTH_TOKEN set but no registry"),
    ErrorCode("INSTANCE_CONFIG_NOT_FOUND", "instance file absent"),
    ErrorCode("INSTANCE_CONFIG_INVALID", "instance file, history default or settings break a rule"),
    ErrorCode("INSTANCE_RELOAD_FAILED", "new configuration not loadable; nothing changed"),
    ErrorCode("INSTANCE_RELOAD_IN_PROGRESS", "another reload runs", retry=Retry.YES),
    ErrorCode("INSTANCE_RELOAD_SYNTHETIC", "single-project mode has no file"),
    ErrorCode("INSTANCE_MUTATION_UNSUPPORTED", "path or role of a kept project changed"),
    ErrorCode(
        "INVALID_ARGS",
        "unknown tool or argument, wrong type, bound, enum, missing member; "
        "mode-specific argument missing",
    ),
    ErrorCode(
        "INVALID_FIELDS",
        "a value only the engine can judge: fields not an object, limits of in-process calls, "
        "labels, times, cursors, content not preserved",
    ),
    ErrorCode(
        "RATE_LIMITED",
        "payload, in-flight, write buckets; failed authentications per address",
        http=429,
        retry=Retry.YES,
    ),
    ErrorCode("OVERLOADED", "a bounded resource is exhausted", http=503, retry=Retry.YES),
    ErrorCode("BULK_LIMIT_EXCEEDED", "more items or matches than the cap"),
    ErrorCode("IDEMPOTENCY_KEY_REUSED", "same key, other arguments"),
    ErrorCode(
        "REQUEST_TIMEOUT", "not finished in time, or cancelled", retry=Retry.IF_NOT_PUBLISHED
    ),
    ErrorCode(
        "WRITE_TIMEOUT", "waited too long for the writer; nothing was written", retry=Retry.YES
    ),
    ErrorCode(
        "RESPONSE_TOO_LARGE",
        "result over the budget; also a file, source, request or page over its bound",
    ),
    ErrorCode("MISSING_OPERATION_KIND", "tool without a kind (server bug)"),
    ErrorCode(
        "PROJECT_UNAVAILABLE",
        "worker cannot be up before the deadline, or the project failed",
        retry=Retry.YES,
    ),
    ErrorCode(
        "PROJECT_LOCKED",
        "another process owns the project, or another front the instance",
        retry=Retry.YES,
    ),
    ErrorCode("WORKER_LOST", "worker died while it had the call", retry=Retry.IF_NOT_PUBLISHED),
    ErrorCode("INDEX_EMPTY", "index empty over existing Markdown"),
    ErrorCode("READ_ONLY", "engine is read-only, or start-up would have to write"),
    ErrorCode("PROJECT_READ_ONLY", "write to a project in history mode read"),
    ErrorCode("BACKEND_ERROR", "SQLite or journal failure"),
    ErrorCode(
        "GIT_NOT_INITIALIZED", "no repository at the project root where the mode or tool needs one"
    ),
    ErrorCode("GIT_ERROR", "Git failed"),
    ErrorCode("HISTORY_DISABLED", "mode feed or read and no repository"),
    ErrorCode("TAG_EXISTS", "backup tag of that minute and label exists"),
    ErrorCode("TAG_NOT_FOUND", "backup tag unknown"),
    ErrorCode("NO_HEAD_COMMIT", "repository without a commit"),
    ErrorCode("FILE_NOT_FOUND", "no live record with that id (or no such file)"),
    ErrorCode("FILE_READ_ERROR", "file unreadable"),
    ErrorCode("PATH_NOT_FOUND", "scan target absent"),
    ErrorCode("PATH_OUTSIDE_PROJECT", "path leaves the project, by text or by link"),
    ErrorCode("PARSE_ERROR", "YAML, fence or encoding error"),
    ErrorCode("YAML_PROFILE_VIOLATION", "nested too deep, too large, or a refused YAML form"),
    ErrorCode("REGISTRY_NOT_FOUND", "registry file absent"),
    ErrorCode("REGISTRY_INVALID", "registry breaks a rule"),
    ErrorCode("DUPLICATE_PREFIX", "two types, one id prefix"),
    ErrorCode("SCHEMA_NOT_FOUND", "schema file absent, or no schema for the type"),
    ErrorCode("SCHEMA_INVALID", "schema breaks a rule"),
    ErrorCode("UNKNOWN_TYPE", "type not registered"),
    ErrorCode("DOC_TOO_LARGE", "file over MAAD_MAX_DOC_BYTES"),
    ErrorCode(
        "FRONTMATTER_GUARD",
        "identity keys supplied or changed on disk; required field emptied; parse-back differs",
    ),
    ErrorCode("VALIDATION_FAILED", "schema rules broken; one error per finding"),
    ErrorCode("INVALID_DOC_ID", "id breaks the grammar"),
    ErrorCode("DUPLICATE_DOC_ID", "id, tombstone or file exists"),
    ErrorCode("VERSION_CONFLICT", "record, file or preview changed since the caller looked"),
    ErrorCode(
        "WRITE_ERROR",
        "file system refused the write; guarded create failed after publication began",
    ),
    ErrorCode("DELETE_ERROR", "rename or unlink failed; nothing changed"),
    ErrorCode("INDEX_FAILED", "record written but not indexed"),
    ErrorCode("REFERENCED", "inbound refs exist and the caller asked to refuse"),
    ErrorCode("REPAIR_REQUIRES_MIGRATION", "repair would have to coerce or invent"),
    ErrorCode("FILTER_EMPTY_ARRAY", "a filter condition is an empty list"),
    ErrorCode("FILTER_OP_INVALID", "a filter operator is missing, unknown or misused"),
    ErrorCode("FILTER_BETWEEN_INVALID", "a between filter has no valid pair of bounds"),
    ErrorCode("UNSUPPORTED_SORT_FIELD", "sort key neither system key nor indexed field"),
    ErrorCode("INVALID_PRIMITIVE", "not one of the eleven"),
    ErrorCode("SCHEMA_REF_CHAIN_INVALID", "bad ref chain"),
    ErrorCode("INVALID_MODE", "semantic mode unknown (in-process callers)"),
    ErrorCode("SEMANTIC_DISABLED", "no semantic index to ask"),
    ErrorCode(
        "SCHEMA_CONTRACT_CHANGED",
        "schema identity is not the expected one, or moved while observed",
    ),
    ErrorCode("CONTENT_DIGEST_MISMATCH", "content intact, digest not the expected one"),
    ErrorCode("HISTORY_MODE_MISMATCH", "effective mode not allowed by the caller"),
    ErrorCode(
        "CREATE_ENGINE_NOT_READY",
        "engine stopped being ready or current inside the operation",
        retry=Retry.IF_NOT_PUBLISHED,
    ),
    ErrorCode(
        "RECEIPT_ENGINE_NOT_READY",
        "no ready engine, or it changed during a strict read",
        retry=Retry.IF_NOT_PUBLISHED,
    ),
    ErrorCode("RECEIPT_CONTENT_INVALID", "bytes or value outside the content rules"),
    ErrorCode(
        "RECEIPT_OBSERVATION_CHANGED",
        "something moved while it was observed; cursor no longer valid",
        retry=Retry.YES,
    ),
    ErrorCode("RECEIPT_STORAGE_ERROR", "Git or file system failure that is not absence"),
    ErrorCode("CONFIRM_REQUIRED", _RESERVED, reserved=True),
    ErrorCode("CURSOR_INVALID", _RESERVED, reserved=True),
    ErrorCode("REF_NOT_FOUND", _RESERVED, reserved=True),
    ErrorCode("TOKEN_MALFORMED", _RESERVED, reserved=True),
)

ERROR_CODES: Mapping[str, ErrorCode] = MappingProxyType({row.name: row for row in _TABLE})


class WireError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as clients see it: `{code, message, details?}` (spec 04 §1)."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class SourceLocation(msgspec.Struct, frozen=True):
    """A place in a project file: project-relative path, 1-based line and column."""

    file: str
    line: int
    col: int


class MaadError(Exception):
    """A failure with a code of the table.

    `message` tells a person what is wrong and what to do next. `details` is JSON data and
    never holds an absolute path, a token or a record body. `location` serves reports
    (reindex, validation) and is no wire member.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        location: SourceLocation | None = None,
    ) -> None:
        if code not in ERROR_CODES:
            raise ValueError(f"unknown error code {code!r}")
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details
        self.location = location

    def wire(self) -> WireError:
        """The members that leave the server."""
        return WireError(self.code, self.message, self.details)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.code, self.message, self.details, self.location))


def _rebuild(
    code: str, message: str, details: dict[str, Any] | None, location: SourceLocation | None
) -> MaadError:
    return MaadError(code, message, details, location=location)


class MaadErrors(Exception):
    """Several failures at once (validation findings, load errors); never empty."""

    def __init__(self, errors: list[MaadError]) -> None:
        if not errors:
            raise ValueError("MaadErrors needs at least one error")
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors


def error_from_wire(error: WireError) -> MaadError:
    """The exception for an error that came from another process.

    A code outside the table never travels on: it becomes `INTERNAL` (spec 06 §1).
    """
    if error.code not in ERROR_CODES:
        return MaadError("INTERNAL", f"unknown error code {error.code!r}: {error.message}")
    return MaadError(error.code, error.message, error.details)


def errors_of(failure: MaadError | MaadErrors) -> list[MaadError]:
    """The failures of either exception type as a list."""
    return failure.errors if isinstance(failure, MaadErrors) else [failure]
