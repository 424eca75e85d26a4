"""Machine: who may use how much: quotas by user and client id, which of them applies, and how long to wait (KIP-13, 219).

A quota is a number for an entity. Of all that fit a client the most specific one applies; everybody it is meant for
together has one bucket, except that a default gives each its own. A bucket fills at the quota's rate up to a second's worth,
and may go into debt: the request that overdraws it is carried out, and its sender waits until the debt is paid.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

USER, CLIENT_ID = "user", "client-id"
ENTITY_TYPES = (USER, CLIENT_ID)

PRODUCED, CONSUMED, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
QUOTA_KEYS = (PRODUCED, CONSUMED, REQUESTS)

MAX_THROTTLE_MS = 30_000
BURST_MS = 1_000
MAX_BUCKETS = 10_000
_DEFAULT = "<default>"

Entity = tuple[tuple[str, str | None], ...]
"""((type, name), …) in the order of ENTITY_TYPES; the name None is everybody without a quota of their own."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity | str:
    """The entity in its one spelling, or what is wrong with it."""
    found: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            return f'quotas are by user and client-id, not by "{kind}"'
        if kind in found:
            return f"{kind} is given twice"
        if name == "":
            return f"the {kind} is empty"
        found[kind] = name
    if not found:
        return "a quota is for a user, a client-id or both"
    return tuple((kind, found[kind]) for kind in ENTITY_TYPES if kind in found)


def key_name(entity: Entity) -> str:
    """How an entity is spelled in the coordinator. Names are quoted, so that none can pass for the default."""
    return "&".join(f"{kind}={_DEFAULT if name is None else quote(name, safe='')}" for kind, name in entity)


def parse_key_name(text: str) -> Entity | None:
    parts: list[tuple[str, str | None]] = []
    for piece in text.split("&"):
        kind, _, name = piece.partition("=")
        parts.append((kind, None if name == _DEFAULT else unquote(name)))
    entity = entity_of(parts)
    return None if isinstance(entity, str) else entity


def encode_values(values: Mapping[str, float]) -> bytes:
    return json.dumps(dict(values), sort_keys=True).encode()


def decode_values(raw: bytes) -> dict[str, float]:
    """What does not parse is nobody's quota (X27)."""
    try:
        values = json.loads(raw)
    except ValueError:
        return {}
    if not isinstance(values, dict):
        return {}
    return {
        key: float(value) for key, value in values.items() if isinstance(value, int | float) and value > 0
    }


def value_problem(key: str, value: float) -> str | None:
    if key not in QUOTA_KEYS:
        return f'"{key}" is not one of {", ".join(QUOTA_KEYS)}'
    if not 0 < value < float("inf"):
        return f"{key} has to be more than nothing"
    return None


class Bucket:
    """Amounts per second. `take` answers how many milliseconds the sender has to wait."""

    __slots__ = ("_available", "_rate", "_seen_ms")

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate = rate
        self._available = rate * BURST_MS / 1000
        self._seen_ms = now_ms

    def set_rate(self, rate: float) -> None:
        self._rate = rate

    def take(self, amount: float, now_ms: int) -> int:
        refilled = self._available + self._rate * (now_ms - self._seen_ms) / 1000
        self._seen_ms = now_ms
        self._available = min(refilled, self._rate * BURST_MS / 1000) - amount
        if self._available >= 0:
            return 0
        return min(MAX_THROTTLE_MS, int(-self._available / self._rate * 1000) + 1)


class _Match(NamedTuple):
    rate: float
    bucket: tuple[str, str | None, str | None]


class Quotas:
    """All quotas of the cluster, and this broker's buckets. `active` is False while there are none, which costs nothing."""

    __slots__ = ("_buckets", "_limit", "_matches", "_stored", "_values", "active")

    def __init__(self, max_buckets: int = MAX_BUCKETS) -> None:
        self._values: dict[Entity, dict[str, float]] = {}
        self._stored: dict[str, bytes] = {}
        self._buckets: OrderedDict[tuple[str, str | None, str | None], Bucket] = OrderedDict()
        self._matches: dict[tuple[str, str, str], _Match | None] = {}
        self._limit = max_buckets
        self.active = False

    def load(self, stored: Mapping[str, bytes]) -> None:
        """What the coordinator holds, by key name. Debts stay: changing a quota is no way out of one."""
        for name in self._stored.keys() - stored.keys():
            self._forget(name)
        for name, raw in stored.items():
            # Only what changed is parsed: there may be thousands, and they change one by one (A3).
            if self._stored.get(name) != raw:
                self._forget(name)
                entity, values = parse_key_name(name), decode_values(raw)
                if entity is not None and values:
                    self._values[entity] = values
        self._stored = dict(stored)
        self._matches.clear()
        self.active = bool(self._values)

    def _forget(self, name: str) -> None:
        if name in self._stored and (entity := parse_key_name(name)) is not None:
            self._values.pop(entity, None)

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> dict[Entity, dict[str, float]]:
        return {entity: dict(self._values[entity]) for entity in sorted(self._values, key=str)}

    def take(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count this against whatever quota applies; milliseconds to wait, 0 without a quota or within it."""
        match = self._match(key, user, client_id)
        if match is None:
            return 0
        bucket = self._buckets.get(match.bucket)
        if bucket is None:
            bucket = self._buckets[match.bucket] = Bucket(match.rate, now_ms)
            if len(self._buckets) > self._limit:
                # X31: client ids come from outside. The bucket that was idle longest has filled up again.
                self._buckets.popitem(last=False)
        else:
            bucket.set_rate(match.rate)
            self._buckets.move_to_end(match.bucket)
        return bucket.take(amount, now_ms)

    def _match(self, key: str, user: str, client_id: str) -> _Match | None:
        asked = (key, user, client_id)
        try:
            return self._matches[asked]
        except KeyError:
            pass
        if len(self._matches) > self._limit:
            self._matches.clear()
        match = self._matches[asked] = self._most_specific(key, user, client_id)
        return match

    def _most_specific(self, key: str, user: str, client_id: str) -> _Match | None:
        candidates: tuple[Entity, ...] = (
            ((USER, user), (CLIENT_ID, client_id)),
            ((USER, user), (CLIENT_ID, None)),
            ((USER, user),),
            ((USER, None), (CLIENT_ID, client_id)),
            ((USER, None), (CLIENT_ID, None)),
            ((USER, None),),
            ((CLIENT_ID, client_id),),
            ((CLIENT_ID, None),),
        )
        for entity in candidates:
            rate = self._values.get(entity, {}).get(key)
            if rate is not None:
                kinds = dict(entity)
                mine = (key, user if USER in kinds else None, client_id if CLIENT_ID in kinds else None)
                # A percentage of one core's time: milliseconds of work per second.
                return _Match(rate * 10 if key == REQUESTS else rate, mine)
        return None
