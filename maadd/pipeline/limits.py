"""Per-session limits: argument bytes, calls in flight, write rate (spec 04 §12.1).

The same write limits hold per token, so that opening more sessions multiplies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError


class LimitSettings(msgspec.Struct, frozen=True):
    """The four knobs; `disabled` turns all of them off."""

    writes_per_sec: int
    writes_per_min: int
    concurrent: int
    payload_bytes: int
    disabled: bool


class _Bucket:
    """A token bucket with lazy refill; capacity `size`, `refill` tokens a second."""

    __slots__ = ("refill", "size", "stamp", "tokens")

    def __init__(self, size: int, refill: float, now: float) -> None:
        self.size = size
        self.refill = refill
        self.tokens = float(size)
        self.stamp = now

    def missing(self, cost: int, now: float) -> float:
        """How many tokens lack for `cost`; 0 or less when it can be paid."""
        self.tokens = min(self.size, self.tokens + (now - self.stamp) * self.refill)
        self.stamp = now
        # A token that a rounding error withholds is granted.
        return cost - self.tokens - 1e-9


class _Account:
    __slots__ = ("in_flight", "per_min", "per_sec")

    def __init__(self, settings: LimitSettings, now: float) -> None:
        self.in_flight = 0
        self.per_sec = _Bucket(settings.writes_per_sec, settings.writes_per_sec, now)
        self.per_min = _Bucket(settings.writes_per_min, settings.writes_per_min / 60, now)


class Slot:
    """One place of a session, held until the call has really ended."""

    __slots__ = ("_account",)

    def __init__(self, account: _Account) -> None:
        self._account: _Account | None = account

    def leave(self) -> None:
        """Give the place back; a second time does nothing."""
        if self._account is not None:
            self._account.in_flight -= 1
            self._account = None

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


def limit_settings(settings: Settings) -> LimitSettings:
    """The part of the settings that limits calls."""
    return LimitSettings(
        settings.rl_writes_per_sec,
        settings.rl_writes_per_min,
        settings.rl_concurrent,
        settings.rl_payload_bytes,
        settings.rl_disable,
    )


class Limiter:
    """Accounts by session id and by token id; `clock` is monotonic, in seconds."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._sessions: dict[str, _Account] = {}
        self._tokens: dict[str, _Account] = {}

    def check_payload(self, tool: str, size: int) -> None:
        """RATE_LIMITED `payload_too_large` when the arguments have more bytes than allowed."""
        limit = self._settings.payload_bytes
        if self._settings.disabled or size <= limit:
            return
        raise _limited(
            f"the arguments have {size} bytes, the limit is {limit}; send less in one call",
            "payload_too_large",
            limit,
            None,
            tool,
            size,
        )

    def enter(self, session_id: str, tool: str) -> Slot:
        """Take one of the session's places for calls in flight, or RATE_LIMITED `concurrent`."""
        account = self._session(session_id)
        limit = self._settings.concurrent
        if not self._settings.disabled and account.in_flight >= limit:
            raise _limited(
                f"{limit} calls of this session are running; wait for one to end",
                "concurrent",
                limit,
                None,
                tool,
            )
        account.in_flight += 1
        return Slot(account)

    def charge_write(
        self, session_id: str, token_id: str | None, tool: str, cost: int = 1
    ) -> MaadError | None:
        """Take `cost` from all buckets, or nothing and return the refusal."""
        if self._settings.disabled:
            return None
        now = self._clock()
        accounts = self._accounts(session_id, token_id)
        for reason, pick, limit in (
            ("writes_per_sec", _per_sec, self._settings.writes_per_sec),
            ("writes_per_min", _per_min, self._settings.writes_per_min),
        ):
            for account in accounts:
                bucket = pick(account)
                missing = bucket.missing(min(cost, bucket.size), now)
                if missing > 0:
                    wait = math.ceil(missing / bucket.refill * 1000)
                    return _limited(
                        f"more than {limit} writes a {reason[-3:]}; try again in {wait} ms",
                        reason,
                        limit,
                        wait,
                        tool,
                    )
        self._pay(accounts, cost)
        return None

    def refund_write(self, session_id: str, token_id: str | None, cost: int = 1) -> None:
        """Give back what a replayed write had paid."""
        if not self._settings.disabled:
            self._pay(self._accounts(session_id, token_id), -cost)

    def forget_session(self, session_id: str) -> None:
        """Drop a closed session's account."""
        self._sessions.pop(session_id, None)

    def _pay(self, accounts: list[_Account], cost: int) -> None:
        for account in accounts:
            for bucket in (account.per_sec, account.per_min):
                bucket.tokens = min(bucket.size, bucket.tokens - min(cost, bucket.size))

    def _accounts(self, session_id: str, token_id: str | None) -> list[_Account]:
        accounts = [self._session(session_id)]
        if token_id is not None:
            account = self._tokens.get(token_id)
            if account is None:
                account = self._tokens[token_id] = _Account(self._settings, self._clock())
            accounts.append(account)
        return accounts

    def _session(self, session_id: str) -> _Account:
        account = self._sessions.get(session_id)
        if account is None:
            account = self._sessions[session_id] = _Account(self._settings, self._clock())
        return account


def _per_sec(account: _Account) -> _Bucket:
    return account.per_sec


def _per_min(account: _Account) -> _Bucket:
    return account.per_min


def _limited(
    message: str,
    reason: str,
    limit: int,
    retry_after_ms: int | None,
    tool: str,
    size: int | None = None,
) -> MaadError:
    details = {"reason": reason, "limit": limit, "retryAfterMs": retry_after_ms, "tool": tool}
    if size is not None:
        details["size"] = size
    return MaadError("RATE_LIMITED", message, details)
