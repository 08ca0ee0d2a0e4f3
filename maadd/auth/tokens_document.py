"""The content of tokens.yaml: validation, the two changes there are, text (spec 04 §7.1).

A document keeps the file's own mappings beside the records, so that keys this version does
not know survive a rewrite.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.auth.timestamps import parse_timestamp
from maadd.config.yaml_core import YamlError, dump_yaml, load_yaml
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import ROLE_NAMES, Role, parse_role

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_REQUIRED = ("id", "hash", "role", "created_at")
_OPTIONAL = ("name", "agent_id", "user_id", "expires_at", "revoked_at")
_TIMES = ("created_at", "expires_at", "revoked_at")
_PROBLEMS_SHOWN = 5


class TokensDocument(msgspec.Struct, frozen=True):
    """A valid registry: `raw` as in the file, `records` in its order."""

    raw: dict[str, Any]
    records: tuple[TokenRecord, ...]

    def __repr__(self) -> str:
        return f"TokensDocument({len(self.records)} records)"


EMPTY_DOCUMENT = TokensDocument({}, ())


def parse_tokens(data: bytes) -> TokensDocument:
    """The registry in `data`. Raises TOKENS_FILE_INVALID that names each bad field."""
    try:
        raw = load_yaml(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise tokens_invalid(f"invalid UTF-8 at byte {error.start}") from None
    except YamlError as error:
        raise tokens_invalid(str(error)) from None
    if raw is None:
        return EMPTY_DOCUMENT
    if not isinstance(raw, dict):
        raise tokens_invalid("the top level must be a mapping")
    problems: list[str] = []
    if "name" in raw and not isinstance(raw["name"], str):
        problems.append("name: must be a string")
    entries = raw.get("tokens")
    if entries is None:
        entries = []
    elif not isinstance(entries, list):
        problems.append("tokens: must be a list")
        entries = []
    records = [_read_record(entry, f"tokens[{i}]", problems) for i, entry in enumerate(entries)]
    for field in ("id", "hash"):
        _check_unique(records, field, problems)
    if problems:
        shown = "; ".join(problems[:_PROBLEMS_SHOWN])
        more = len(problems) - _PROBLEMS_SHOWN
        raise tokens_invalid(f"{shown}; and {more} more" if more > 0 else shown)
    return TokensDocument(raw, tuple(record for record in records if record is not None))


def with_issued(document: TokensDocument, record: TokenRecord) -> TokensDocument:
    """The document with `record` at its end."""
    entries = [*(document.raw.get("tokens") or []), _raw_record(record)]
    return TokensDocument({**document.raw, "tokens": entries}, (*document.records, record))


def with_revoked(document: TokensDocument, token_id: str, revoked_at: str) -> TokensDocument:
    """The document with that token revoked; an earlier revocation keeps its time."""
    entries = [
        {**entry, "revoked_at": revoked_at}
        if entry["id"] == token_id and "revoked_at" not in entry
        else entry
        for entry in document.raw["tokens"]
    ]
    records = tuple(
        msgspec.structs.replace(record, revoked_at=revoked_at)
        if record.id == token_id and record.revoked_at is None
        else record
        for record in document.records
    )
    return TokensDocument({**document.raw, "tokens": entries}, records)


def dump_tokens(document: TokensDocument) -> bytes:
    """The file's bytes."""
    return dump_yaml(document.raw).encode()


def tokens_invalid(problem: str) -> MaadError:
    """TOKENS_FILE_INVALID; `problem` holds no hash and no token."""
    return MaadError("TOKENS_FILE_INVALID", f"_auth/tokens.yaml: {problem}")


def _read_record(entry: Any, where: str, problems: list[str]) -> TokenRecord | None:
    """The record of one entry, or None when a problem was recorded."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: must be a mapping")
        return None
    before = len(problems)
    for field in _REQUIRED:
        if field not in entry:
            problems.append(f"{where}.{field}: is missing")
    for field in (*_REQUIRED, *_OPTIONAL):
        value = entry.get(field, "")
        if not isinstance(value, str):
            problems.append(f"{where}.{field}: must be a string")
        elif field in _TIMES and field in entry and parse_timestamp(value) is None:
            problems.append(f"{where}.{field}: must be an RFC 3339 time with Z or an offset")
    if isinstance(entry.get("hash"), str) and _HASH.fullmatch(entry["hash"]) is None:
        problems.append(f"{where}.hash: must be 64 lower-case hex digits")
    role = _read_role(entry, where, problems)
    grants = _read_grants(entry.get("projects", []), where, problems)
    if len(problems) > before or role is None:
        return None
    return TokenRecord(
        id=entry["id"],
        hash=entry["hash"],
        role=role,
        projects=grants,
        created_at=entry["created_at"],
        **{field: entry[field] for field in _OPTIONAL if field in entry},
    )


def _read_role(mapping: dict[str, Any], where: str, problems: list[str]) -> Role | None:
    """The role of a record or grant; None when there is none, with a problem when it is bad."""
    text = mapping.get("role")
    if not isinstance(text, str):
        return None
    role = parse_role(text)
    if role is None:
        problems.append(f"{where}.role: must be one of {', '.join(ROLE_NAMES)}")
    return role


def _read_grants(grants: Any, where: str, problems: list[str]) -> tuple[ProjectGrant, ...]:
    if not isinstance(grants, list):
        problems.append(f"{where}.projects: must be a list")
        return ()
    read = []
    for position, grant in enumerate(grants):
        place = f"{where}.projects[{position}]"
        if not isinstance(grant, dict):
            problems.append(f"{place}: must be a mapping such as {{name: '*'}}")
            continue
        name = grant.get("name")
        if not isinstance(name, str):
            problems.append(f"{place}.name: must be a string")
            continue
        if "role" in grant and not isinstance(grant["role"], str):
            problems.append(f"{place}.role: must be a string")
        read.append(ProjectGrant(name, _read_role(grant, place, problems)))
    return tuple(read)


def _check_unique(records: list[TokenRecord | None], field: str, problems: list[str]) -> None:
    seen: dict[str, int] = {}
    for position, record in enumerate(records):
        if record is None:
            continue
        first = seen.setdefault(getattr(record, field), position)
        if first != position:
            problems.append(f"tokens[{position}].{field}: is that of tokens[{first}]")


def _raw_record(record: TokenRecord) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "id": record.id,
        "hash": record.hash,
        "role": record.role.text,
        "projects": [
            {"name": grant.name} | ({} if grant.role is None else {"role": grant.role.text})
            for grant in record.projects
        ],
        "created_at": record.created_at,
    }
    optional = {field: getattr(record, field) for field in _OPTIONAL}
    return raw | {field: value for field, value in optional.items() if value is not None}
