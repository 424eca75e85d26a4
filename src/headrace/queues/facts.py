"""Machine: what became true in a queue shard. Durable facts are journaled (journal.py), the others die with the process.

Every durable fact about one source carries `seq`, which counts that source's durable facts, and `slot`, which counts
them since its last checkpoint: see journal.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from headrace.queues.commands import DeathReason, LoggedMessage, Outcome, Source
from headrace.queues.config import QueueConfig
from headrace.queues.ranges import Range

NO_LANE = -1
"""The lane of a message that was replayed but not yet read from the log again."""


class Grant(NamedTuple):
    """Neighbouring messages of one lane, leased together."""

    first: int
    end: int
    delivery: int
    first_received_ms: int
    lane: int


class GivenBack(NamedTuple):
    first: int
    end: int
    deliveries: int
    delay_ms: int
    first_received_ms: int


class Doomed(NamedTuple):
    offset: int
    deliveries: int


# --- durable: queues -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Configured:
    durable: ClassVar[bool] = True
    queue: str
    config: QueueConfig


@dataclass(frozen=True, slots=True)
class Paused:
    durable: ClassVar[bool] = True
    queue: str
    paused: bool


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    durable: ClassVar[bool] = True
    queue: str


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    """Names every key that the source may have in the journal, so that compaction forgets all of them."""

    durable: ClassVar[bool] = True
    source: Source
    slots: int
    parts: tuple[int, int]
    pages: tuple[int, ...]


# --- durable: one source ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Positioned:
    """Opened or sought: everything before `offset` is done, nothing at or after it is."""

    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    offset: int


@dataclass(frozen=True, slots=True)
class Settled:
    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    ranges: tuple[Range, ...]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Returned:
    """Delivered, not acknowledged, to be delivered again: by release, by expiry, by a consumer that left. This is
    what carries delivery counts over a failover."""

    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    given_back: tuple[GivenBack, ...]


@dataclass(frozen=True, slots=True)
class Died:
    """Never to be delivered again; not done before the dead letter is written."""

    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    doomed: tuple[Doomed, ...]
    reason: DeathReason
    detail: str


@dataclass(frozen=True, slots=True)
class Purged:
    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    upto: int


@dataclass(frozen=True, slots=True)
class Rescheduled:
    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    offset: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class LeasedDurably:
    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    grants: tuple[Grant, ...]
    visibility_ms: int
    epoch: int
    owner: str
    """Not journaled: session owners (KIP-932) do not outlive the broker that knew their session."""


@dataclass(frozen=True, slots=True)
class ExtendedDurably:
    durable: ClassVar[bool] = True
    source: Source
    seq: int
    slot: int
    offsets: tuple[int, ...]
    visibility_ms: int


class Sighting(NamedTuple):
    """A deduplication id in the log."""

    digest: bytes
    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """A page of the deduplication index, under a key of its own."""

    durable: ClassVar[bool] = True
    source: Source
    page: int
    sightings: tuple[Sighting, ...]
    forget_pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The whole state of a source as of `seq`; earlier deltas do not matter any more."""

    durable: ClassVar[bool] = True
    source: Source
    seq: int
    side: int
    """Checkpoints take turns between two sets of keys: one that was cut off in the middle must not cost the last."""
    parts: tuple[bytes, ...]
    surplus_parts: int
    """Parts of the checkpoint that this one replaces which it does not overwrite."""


# --- not durable -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leased:
    durable: ClassVar[bool] = False
    source: Source
    grants: tuple[Grant, ...]
    visibility_ms: int
    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class Extended:
    durable: ClassVar[bool] = False
    source: Source
    offsets: tuple[int, ...]
    visibility_ms: int


@dataclass(frozen=True, slots=True)
class Indexed:
    """The log, as far as it is known. Not durable, because the log itself is."""

    durable: ClassVar[bool] = False
    source: Source
    start_offset: int
    end_offset: int
    indexed_to: int
    messages: Sequence[LoggedMessage]
    skipped: Sequence[Range]


@dataclass(frozen=True, slots=True)
class Promoted:
    """Up to `limit` messages whose time has come are available."""

    durable: ClassVar[bool] = False
    source: Source
    limit: int


@dataclass(frozen=True, slots=True)
class RestEnded:
    """These have rested enough."""

    durable: ClassVar[bool] = False
    source: Source
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rearmed:
    """What was due has been dealt with; find the next deadline."""

    durable: ClassVar[bool] = False
    source: Source


@dataclass(frozen=True, slots=True)
class MoveDeferred:
    durable: ClassVar[bool] = False
    source: Source
    offsets: tuple[int, ...]
    retry_ms: int


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """The driver was asked (again) to move these."""

    durable: ClassVar[bool] = False
    source: Source
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClockSet:
    durable: ClassVar[bool] = False
    wall_offset_ms: int


Delta = Positioned | Settled | Returned | Died | Purged | Rescheduled | LeasedDurably | ExtendedDurably
"""What replays on top of a checkpoint, in `seq` order."""
