"""Machine: what a queue can be told to do. Frozen values; `problem()` says why one makes no sense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

DEFAULT_PRIORITY = 4
MAX_PRIORITY = 9
DEDUP_WINDOW_MS = 5 * 60 * 1000
SQS_MAX_LEASE_MS = 12 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message that was handed back rests before its next delivery."""

    initial_ms: int = 1_000
    multiplier: float = 2.0
    max_ms: int = 10 * 60 * 1000
    jitter: float = 0.0
    """Up to this part of the delay is taken off, by a draw that the driver makes."""

    def delay_ms(self, deliveries: int, draw: float) -> int:
        """`draw` is in [0, 1)."""
        # The exponent is bounded so that a message on its thousandth delivery can not overflow a float.
        grown = self.initial_ms * self.multiplier ** min(deliveries - 1, 64)
        return int(min(grown, self.max_ms) * (1.0 - self.jitter * draw))


@dataclass(frozen=True, slots=True)
class QueueConfig:
    visibility_ms: int = 30_000
    max_deliveries: int = 0
    """After so many the message is dead; 0 is no limit. KIP-932 says 5."""
    dead_letter: str = ""
    """Where dead messages go. Empty: they are archived, that is, done (KIP-932)."""
    dead_letter_expired: bool = False
    """Messages that outlive their TTL go to the dead letters too, and are not just dropped."""
    max_in_flight: int = 120_000
    """Per partition. SQS 120,000; KIP-932 2,000."""
    max_lease_ms: int = 0
    """A lease may not reach further than this from its receive (strict SQS: 12 h); 0 is no limit."""
    backoff: Backoff | None = None
    fifo: bool = False
    """Order per message group, one outstanding batch per group (R59)."""
    dedup_window_ms: int = 0
    dedup_per_group: bool = False
    """The same id in two message groups is two messages (SQS: DeduplicationScope=messageGroup)."""
    priorities: bool = False
    fair: bool = False
    """The group of a message is its tenant, and tenants take turns."""
    delays: bool = False
    ttl: bool = False
    filtered: bool = False
    journaled_leases: bool = False
    """Leases survive a failover and then restart in full (R58). Costs a journal write per receive."""
    window: int = 1_000_000
    """How many ready messages an indexed queue knows at once; more wait in the log, unread."""
    uncommitted: bool = False
    """Records of open and aborted transactions are messages, too (share.isolation.level=read_uncommitted)."""
    queue_id: str = ""
    """Whose configuration it is: state under the name of a queue that was deleted is not its successor's. Empty for share
    groups, and in journals from before it was kept."""

    @property
    def indexed(self) -> bool:
        """Whether the driver has to tell what is special about each message, or just where the log ends."""
        return (
            self.fifo or self.priorities or self.fair or self.delays or self.ttl
            or self.filtered or self.dedup_window_ms > 0
        )  # fmt: skip

    def dedup_key(self, group: bytes, dedup_id: bytes) -> bytes:
        """What makes two messages one within the window; empty: nothing does."""
        return b"%b\0%b" % (group, dedup_id) if dedup_id and self.dedup_per_group else dedup_id

    @property
    def shape(self) -> tuple[bool, ...]:
        """When this changes, what is ready has to be sorted into lanes again."""
        return (self.indexed, self.fifo, self.priorities, self.fair, self.delays, self.ttl, self.filtered)

    def problem(self) -> str | None:
        if self.fifo and (self.priorities or self.fair):
            return (
                "a FIFO queue keeps the order within a group, so it can have neither priorities nor fairness"
            )
        if self.visibility_ms < 0 or self.dedup_window_ms < 0 or self.max_lease_ms < 0:
            return "a duration can not be negative"
        if self.max_deliveries < 0:
            return "max_deliveries is 0 (no limit) or more"
        if self.max_in_flight < 1 or self.window < 1:
            return "max_in_flight and window are at least 1"
        if self.dead_letter_expired and not self.dead_letter:
            return "dead_letter_expired needs a dead_letter queue"
        backoff = self.backoff
        if backoff is not None and not (
            backoff.initial_ms >= 0
            and backoff.max_ms >= 0
            and backoff.multiplier >= 1
            and 0 <= backoff.jitter <= 1
        ):
            return "a back-off has initial_ms >= 0, max_ms >= 0, multiplier >= 1 and 0 <= jitter <= 1"
        return None


def standard_queue(**changes: Any) -> QueueConfig:
    """What the doors make: a message may bring its own delay, its group is its tenant, and what is in flight stays so when a
    broker dies, because the whole visibility timeout is promised (R57, R58)."""
    return QueueConfig(**{"delays": True, "fair": True, "journaled_leases": True, **changes})


def fifo_queue(**changes: Any) -> QueueConfig:
    """The same in the order of each message group, with five minutes of deduplication (R58, R59)."""
    return QueueConfig(
        **{
            "fifo": True,
            "delays": True,
            "dedup_window_ms": DEDUP_WINDOW_MS,
            "journaled_leases": True,
            "window": 120_000,
            **changes,
        }
    )


def share_group(**changes: Any) -> QueueConfig:
    """KIP-932: group.share.record.lock.duration.ms, group.share.delivery.count.limit, ...partition.max.record.locks."""
    return QueueConfig(**{"visibility_ms": 30_000, "max_deliveries": 5, "max_in_flight": 2_000, **changes})


def config_to_json(config: QueueConfig) -> bytes:
    return json.dumps(asdict(config), separators=(",", ":"), sort_keys=True).encode()


def config_from_json(raw: bytes) -> QueueConfig:
    return config_from_values(json.loads(raw))


def config_from_values(values: Mapping[str, Any]) -> QueueConfig:
    """Fields that this version does not know are left out: a newer broker may have written them."""
    known = {f.name: values[f.name] for f in fields(QueueConfig) if f.name in values}
    backoff = known.get("backoff")
    if backoff is not None:
        known["backoff"] = Backoff(**{f.name: backoff[f.name] for f in fields(Backoff) if f.name in backoff})
    return QueueConfig(**known)
