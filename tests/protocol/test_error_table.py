"""The closed table of error codes (spec 06) and the exceptions that carry them."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from maadd.protocol.errors import (
    ERROR_CODES,
    MaadError,
    MaadErrors,
    Retry,
    SourceLocation,
    WireError,
    error_from_wire,
    errors_of,
)

CODES = """
UNAUTHORIZED ORIGIN_FORBIDDEN NOT_FOUND SESSION_NOT_FOUND BAD_REQUEST PAYLOAD_TOO_LARGE
PIN_PROJECT_INVALID PIN_PROJECT_NOT_FOUND PIN_ON_EXISTING_SESSION SHUTTING_DOWN INTERNAL
SESSION_UNBOUND SESSION_ALREADY_BOUND SESSION_PINNED SESSION_CANCELLED SESSION_STATELESS
PROJECT_REQUIRED PROJECT_NOT_WHITELISTED PROJECT_UNKNOWN INSUFFICIENT_ROLE ROLE_UPGRADE_DENIED
TOKEN_PROJECT_FORBIDDEN TOKEN_ROLE_ABOVE_GLOBAL TOKEN_PROJECT_UNKNOWN TOKEN_IDENTITY_REQUIRED
TOKEN_NOT_FOUND TOKEN_UNKNOWN TOKEN_REVOKED TOKEN_EXPIRED LAST_ADMIN_TOKEN
TOKENS_FILE_MISSING TOKENS_FILE_INVALID TOKENS_FILE_EMPTY TOKENS_FILE_BUSY LEGACY_BEARER_REMOVED
INSTANCE_CONFIG_NOT_FOUND INSTANCE_CONFIG_INVALID INSTANCE_RELOAD_FAILED
INSTANCE_RELOAD_IN_PROGRESS INSTANCE_RELOAD_SYNTHETIC INSTANCE_MUTATION_UNSUPPORTED
INVALID_ARGS INVALID_FIELDS RATE_LIMITED OVERLOADED BULK_LIMIT_EXCEEDED IDEMPOTENCY_KEY_REUSED
REQUEST_TIMEOUT WRITE_TIMEOUT RESPONSE_TOO_LARGE MISSING_OPERATION_KIND PROJECT_UNAVAILABLE
PROJECT_LOCKED WORKER_LOST INDEX_EMPTY READ_ONLY PROJECT_READ_ONLY BACKEND_ERROR
GIT_NOT_INITIALIZED GIT_ERROR HISTORY_DISABLED TAG_EXISTS TAG_NOT_FOUND NO_HEAD_COMMIT
FILE_NOT_FOUND FILE_READ_ERROR PATH_NOT_FOUND PATH_OUTSIDE_PROJECT PARSE_ERROR
YAML_PROFILE_VIOLATION REGISTRY_NOT_FOUND REGISTRY_INVALID DUPLICATE_PREFIX SCHEMA_NOT_FOUND
SCHEMA_INVALID UNKNOWN_TYPE DOC_TOO_LARGE FRONTMATTER_GUARD VALIDATION_FAILED INVALID_DOC_ID
DUPLICATE_DOC_ID VERSION_CONFLICT WRITE_ERROR DELETE_ERROR INDEX_FAILED REFERENCED
REPAIR_REQUIRES_MIGRATION FILTER_EMPTY_ARRAY FILTER_OP_INVALID FILTER_BETWEEN_INVALID
UNSUPPORTED_SORT_FIELD INVALID_PRIMITIVE SCHEMA_REF_CHAIN_INVALID INVALID_MODE SEMANTIC_DISABLED
SCHEMA_CONTRACT_CHANGED CONTENT_DIGEST_MISMATCH HISTORY_MODE_MISMATCH CREATE_ENGINE_NOT_READY
RECEIPT_ENGINE_NOT_READY RECEIPT_CONTENT_INVALID RECEIPT_OBSERVATION_CHANGED RECEIPT_STORAGE_ERROR
CONFIRM_REQUIRED CURSOR_INVALID REF_NOT_FOUND TOKEN_MALFORMED
"""

HTTP = {
    "UNAUTHORIZED": 401,
    "ORIGIN_FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "SESSION_NOT_FOUND": 404,
    "BAD_REQUEST": 400,
    "PAYLOAD_TOO_LARGE": 413,
    "PIN_PROJECT_INVALID": 400,
    "PIN_PROJECT_NOT_FOUND": 400,
    "PIN_ON_EXISTING_SESSION": 400,
    "SHUTTING_DOWN": 503,
    "INTERNAL": 500,
    "TOKEN_PROJECT_FORBIDDEN": 403,
    "RATE_LIMITED": 429,
    "OVERLOADED": 503,
}

RETRY_YES = {
    "SHUTTING_DOWN",
    "TOKENS_FILE_BUSY",
    "INSTANCE_RELOAD_IN_PROGRESS",
    "RATE_LIMITED",
    "OVERLOADED",
    "WRITE_TIMEOUT",
    "PROJECT_UNAVAILABLE",
    "PROJECT_LOCKED",
    "RECEIPT_OBSERVATION_CHANGED",
}
RETRY_IF_NOT_PUBLISHED = {
    "REQUEST_TIMEOUT",
    "WORKER_LOST",
    "CREATE_ENGINE_NOT_READY",
    "RECEIPT_ENGINE_NOT_READY",
}


def test_the_table_holds_exactly_the_codes_of_the_specification() -> None:
    assert list(ERROR_CODES) == CODES.split()


def test_names_are_upper_snake_case_and_meanings_are_given() -> None:
    for name, row in ERROR_CODES.items():
        assert row.name == name
        assert name.replace("_", "").isalpha()
        assert name.isupper()
        assert row.meaning


def test_http_statuses() -> None:
    assert {name: row.http for name, row in ERROR_CODES.items() if row.http} == HTTP


def test_retry() -> None:
    for name, row in ERROR_CODES.items():
        expected = Retry.YES if name in RETRY_YES else Retry.NO
        if name in RETRY_IF_NOT_PUBLISHED:
            expected = Retry.IF_NOT_PUBLISHED
        assert row.retry is expected, name


def test_reserved_names() -> None:
    reserved = {name for name, row in ERROR_CODES.items() if row.reserved}
    assert reserved == {"CONFIRM_REQUIRED", "CURSOR_INVALID", "REF_NOT_FOUND", "TOKEN_MALFORMED"}


def test_a_code_outside_the_table_can_not_be_raised() -> None:
    with pytest.raises(ValueError, match="NO_SUCH_CODE"):
        MaadError("NO_SUCH_CODE", "x")


def test_the_wire_form_leaves_out_absent_details_and_the_location() -> None:
    error = MaadError("PARSE_ERROR", "bad", location=SourceLocation("a.md", 3, 1))
    assert msgspec.json.encode(error.wire()) == b'{"code":"PARSE_ERROR","message":"bad"}'
    detailed = MaadError("UNKNOWN_TYPE", "no", {"near": ["asset"]})
    assert msgspec.json.encode(detailed.wire()) == (
        b'{"code":"UNKNOWN_TYPE","message":"no","details":{"near":["asset"]}}'
    )


def test_an_error_crosses_processes_in_either_form() -> None:
    error = MaadError("PARSE_ERROR", "bad", {"line": 3}, location=SourceLocation("a.md", 3, 1))

    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.message, copy.details, copy.location) == (
        "PARSE_ERROR",
        "bad",
        {"line": 3},
        SourceLocation("a.md", 3, 1),
    )
    received = error_from_wire(error.wire())
    assert received.wire() == error.wire()


def test_a_foreign_code_becomes_internal() -> None:
    received = error_from_wire(WireError("FROM_THE_FUTURE", "hm", {"secret": 1}))
    assert received.code == "INTERNAL"
    assert "FROM_THE_FUTURE" in received.message
    assert received.details is None


def test_several_errors_travel_together() -> None:
    first, second = MaadError("UNKNOWN_TYPE", "a"), MaadError("SCHEMA_INVALID", "b")
    both = MaadErrors([first, second])

    assert errors_of(both) == [first, second]
    assert errors_of(first) == [first]
    assert "UNKNOWN_TYPE: a; SCHEMA_INVALID: b" in str(both)
    with pytest.raises(ValueError, match="at least one"):
        MaadErrors([])
