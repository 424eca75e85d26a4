"""Machine: what the transaction coordinator can be asked, what it answers, and what it asks its driver to do.

A command holds everything that is not state: ids drawn by the driver, and what an API version implies as facts, not as
a number. `connection_id` is a number that rises with every connection
this broker accepts (R47); None when no client connection is behind the command, or its client bumps epochs (R46).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.core.plan import Command, Plan
from headrace.transactions.state import NO_EPOCH, NO_PRODUCER_ID, NO_TIME


class ProducerIdentity(NamedTuple):
    """To InitProducerId, and to EndTxn of a client that bumps epochs."""

    error: ErrorKind
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionDescription(NamedTuple):
    transactional_id: str
    error: ErrorKind = ErrorKind.NONE
    state: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    start_wall_ms: int = NO_TIME
    partitions: tuple[TopicPartition, ...] = ()


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListResult(NamedTuple):
    unknown_states: tuple[str, ...]
    transactions: tuple[TransactionListing, ...]


@dataclass(slots=True)
class InitProducerId(Command[ProducerIdentity]):
    """Only with a transactional id; without one any broker hands out an id by itself."""

    transactional_id: str
    timeout_ms: int
    new_producer_id: int
    """Drawn for this command (R37); used when the id is new or out of epochs, else lost."""
    expected_producer_id: int = NO_PRODUCER_ID
    expected_epoch: int = NO_EPOCH
    """KIP-360: a producer that recovers says who it is. Version 3 and up."""
    connection_id: int | None = None


@dataclass(slots=True)
class AddPartitions(Command[ErrorKind]):
    """Also what a partition leader sends for a produce request of transaction version 2. The door has checked that the
    partitions exist and may be written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    connection_id: int | None = None


@dataclass(slots=True)
class AddOffsets(Command[ErrorKind]):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    connection_id: int | None = None


@dataclass(slots=True)
class VerifyPartitions(Command[dict[TopicPartition, ErrorKind]]):
    """KIP-890 part 1: a partition leader asks whether these partitions are in the open transaction (R45)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class EndTxn(Command[ProducerIdentity]):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    bumps_epoch: bool = False
    """Version 5 and up: the client takes the next epoch from the answer (R46)."""
    new_producer_id: int = NO_PRODUCER_ID
    """Drawn for this command when `bumps_epoch` and state.is_exhausted(producer_epoch)."""
    connection_id: int | None = None


@dataclass(slots=True)
class MarkersWritten(Command[None]):
    """Nobody waits. Partitions whose topic is gone count as written: there is nothing left to be torn."""

    transactional_id: str
    marker_round: int
    """Of the SendMarkers that is answered. Old clients end many transactions under one epoch, so the epoch alone can not
    tell a late answer for an earlier transaction."""
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class DescribeTransactions(Command[tuple[TransactionDescription, ...]]):
    transactional_ids: tuple[str, ...]


@dataclass(slots=True)
class ListTransactions(Command[ListResult]):
    states: frozenset[str] = frozenset()
    """Kafka's names for states; empty: all."""
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    """Only transactions that have been open for longer; -1: all."""


# --- effects -------------------------------------------------------------------------------------------------


class SendMarkers(NamedTuple):
    """Write a marker to each partition and say MarkersWritten; try again until it succeeds (R49), or until a partition
    answers TRANSACTION_COORDINATOR_FENCED: then this shard has lost its place (R43)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    marker_round: int
    partitions: tuple[TopicPartition, ...]


class CloseConnection(NamedTuple):
    """R47: a newer connection speaks for its producer. Closing makes a client that is alive connect again."""

    connection_id: int


TransactionEffect: TypeAlias = SendMarkers | CloseConnection
TransactionPlan: TypeAlias = Plan[TransactionEffect]
