"""Machine: may this client speak for this transactional id? The checks that AddPartitions, AddOffsets and EndTxn share."""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact
from headrace.transactions.commands import CloseConnection
from headrace.transactions.facts import SpokenBy
from headrace.transactions.state import LAST_EPOCH, PREPARED, Transaction
from headrace.transactions.table import TransactionEntry, TransactionTable


class Refusal(NamedTuple):
    error: ErrorKind
    effects: tuple[CloseConnection, ...] = ()


def find(table: TransactionTable, transactional_id: str) -> TransactionEntry | Refusal:
    if not transactional_id:
        return Refusal(ErrorKind.INVALID_REQUEST)
    entry = table.entries.get(transactional_id)
    return Refusal(ErrorKind.INVALID_PRODUCER_ID_MAPPING) if entry is None else entry


def find_producer(
    table: TransactionTable,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    connection_id: int | None,
) -> TransactionEntry | Refusal:
    """The entry, if this is its producer, in its epoch, over its newest connection."""
    entry = find(table, transactional_id)
    if isinstance(entry, Refusal):
        return entry
    if entry.transaction.producer_id != producer_id:
        if is_ahead(entry.transaction, producer_id, producer_epoch):
            return Refusal(ErrorKind.CONCURRENT_TRANSACTIONS)
        return Refusal(ErrorKind.INVALID_PRODUCER_ID_MAPPING)
    if entry.transaction.producer_epoch != producer_epoch or producer_epoch > LAST_EPOCH:
        return Refusal(
            ErrorKind.PRODUCER_FENCED
        )  # the epoch above the last is kept for fencing: it is nobody's
    return superseded(table, entry, connection_id) or entry


def is_ahead(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """F25 (KAFKA-18464): the producer is told who it is in its next transaction when the end of this one is decided, so it may
    speak under that name while the markers are still on their way. It is early, not fenced: it asks again."""
    is_told = (producer_id, producer_epoch) == transaction.identity_after and producer_epoch <= LAST_EPOCH
    return is_told and transaction.state in PREPARED


def superseded(table: TransactionTable, entry: TransactionEntry, connection_id: int | None) -> Refusal | None:
    """R47: what an old client sent over a connection it has given up may still arrive, after it has gone on over a newer
    one with the same epoch. The refusal is retriable: a client that is alive and really uses both connections loses the
    older one and goes on."""
    if connection_id is None or not table.config.connection_fencing or connection_id >= entry.speaker:
        return None
    return Refusal(ErrorKind.CONCURRENT_TRANSACTIONS, (CloseConnection(connection_id),))


def heard(entry: TransactionEntry, connection_id: int | None) -> tuple[Fact, ...]:
    """Remember who spoke, when that is news."""
    if connection_id is None or connection_id == entry.speaker:
        return ()
    return (SpokenBy(entry.transaction.transactional_id, connection_id),)
