"""Machine: what can become true of a transactional id.

Durable facts carry the whole new value, so the journal needs only the newest record of each id, and applying one twice
is harmless. The volatile ones die with the process, and nothing about an open transaction is among them (R44).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.core.ids import TopicPartition
from headrace.transactions.state import Transaction


@dataclass(frozen=True, slots=True)
class Moved:
    """A legal change of state (R41): journaled before anybody hears of it (R42)."""

    durable: ClassVar[bool] = True
    transaction: Transaction
    marker_round: int = 0
    """With Prepare*: the number of this round of markers. Not journaled: a new coordinator starts a round of its own."""


@dataclass(frozen=True, slots=True)
class Fencing:
    """The epoch of an open transaction was raised so that its producer is shut out; the abort follows in the same plan."""

    durable: ClassVar[bool] = False
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nobody used the id for long: its record is deleted."""

    durable: ClassVar[bool] = True
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Replay only: what the journal says, whatever came before it (compaction leaves out the steps between)."""

    durable: ClassVar[bool] = False
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class MarkersAcked:
    """These partitions have the marker in their log. Volatile: after a failover all markers are sent again (R49)."""

    durable: ClassVar[bool] = False
    transactional_id: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class SpokenBy:
    """R47: the newest connection that spoke for the current producer id and epoch."""

    durable: ClassVar[bool] = False
    transactional_id: str
    connection_id: int


@dataclass(frozen=True, slots=True)
class Swept:
    """Idle ids were looked for; next time in an interval from now."""

    durable: ClassVar[bool] = False
