"""Git history of a project: commits, the index file, recovery (spec 03 §7, §9)."""

from maadd_worker.history.controller import HistoryController
from maadd_worker.history.outcome import (
    CommitFailure,
    CommitIdentity,
    CommitRequest,
    FlushReport,
    HistoryOutcome,
    LogicalWrite,
    decode_request,
    encode_request,
)
from maadd_worker.history.repository import init_repository

__all__ = [
    "CommitFailure",
    "CommitIdentity",
    "CommitRequest",
    "FlushReport",
    "HistoryController",
    "HistoryOutcome",
    "LogicalWrite",
    "decode_request",
    "encode_request",
    "init_repository",
]
