"""Machine: InitProducerId with a transactional id: a producer starts, or starts over, and shuts out the one before it.

An open transaction of that id is fenced and aborted first (R51); its starter is told to come back. The epoch of the
abort is never given to anybody, so the one that is given out next is higher than what any zombie holds.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact, Plan
from headrace.transactions import end
from headrace.transactions.commands import InitProducerId, ProducerIdentity, TransactionPlan
from headrace.transactions.facts import Moved, SpokenBy
from headrace.transactions.state import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    Transaction,
    TransactionState,
    is_exhausted,
)
from headrace.transactions.table import TransactionTable


def init(table: TransactionTable, command: InitProducerId, now_ms: int) -> TransactionPlan:
    if not command.transactional_id:
        return _refuse(command, ErrorKind.INVALID_REQUEST)
    if not 0 < command.timeout_ms <= table.config.max_timeout_ms:
        return _refuse(command, ErrorKind.INVALID_TRANSACTION_TIMEOUT)
    entry = table.entries.get(command.transactional_id)
    wall_ms = table.wall_ms(now_ms)
    if entry is None:
        return _create(table, command, wall_ms)
    transaction = entry.transaction
    if not _may_ask(transaction, command):
        return _refuse(command, ErrorKind.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        return _refuse(command, ErrorKind.CONCURRENT_TRANSACTIONS)
    if transaction.state is TransactionState.ONGOING:
        facts, effects = end.fence_and_abort(table, transaction, now_ms)
        again = ProducerIdentity(ErrorKind.CONCURRENT_TRANSACTIONS)
        return Plan(facts, command.answer(again), effects)
    started = _next_producer(transaction, command)
    if started is None:
        return _refuse(command, ErrorKind.PRODUCER_FENCED)
    started = started._replace(
        state=TransactionState.EMPTY,
        timeout_ms=command.timeout_ms,
        partitions=frozenset(),
        start_wall_ms=NO_TIME,
        updated_wall_ms=wall_ms,
    )
    return _answer(command, started)


def _create(table: TransactionTable, command: InitProducerId, wall_ms: int) -> TransactionPlan:
    if len(table.entries) >= table.config.max_transactional_ids:
        return _refuse(command, ErrorKind.POLICY_VIOLATION)
    # A producer that names an id of its own comes back from before the id was forgotten: it gets a new one (KIP-360).
    started = Transaction(
        command.transactional_id,
        command.new_producer_id,
        0,
        TransactionState.EMPTY,
        command.timeout_ms,
        updated_wall_ms=wall_ms,
    )
    return _answer(command, started)


def _may_ask(transaction: Transaction, command: InitProducerId) -> bool:
    """A producer that says who it is must be the current one, or the one whose epochs ran out and who missed the answer."""
    expected = command.expected_producer_id
    if command.expected_epoch > LAST_EPOCH:
        return False  # kept for fencing: nobody was ever given it
    if expected in (NO_PRODUCER_ID, transaction.producer_id):
        return True
    return expected == transaction.previous_producer_id and is_exhausted(command.expected_epoch)


def _next_producer(transaction: Transaction, command: InitProducerId) -> Transaction | None:
    """The same transaction under the next epoch or producer id; None when the asker was fenced."""
    recovers = command.expected_producer_id != NO_PRODUCER_ID
    current = (transaction.producer_id, transaction.producer_epoch)
    if recovers and (command.expected_producer_id, command.expected_epoch) != current:
        # The answer to an earlier attempt got lost: it gets the same one. Had another producer come in between, there
        # would be no last epoch.
        repeated = command.expected_epoch == transaction.last_epoch != NO_EPOCH
        return transaction if repeated else None
    last_epoch = transaction.producer_epoch if recovers else NO_EPOCH
    if not transaction.is_exhausted:
        return transaction._replace(producer_epoch=transaction.producer_epoch + 1, last_epoch=last_epoch)
    return transaction._replace(
        producer_id=command.new_producer_id,
        producer_epoch=0,
        last_epoch=last_epoch,
        previous_producer_id=transaction.producer_id,
    )


def _answer(command: InitProducerId, started: Transaction) -> TransactionPlan:
    facts: list[Fact] = [Moved(started)]
    if command.connection_id is not None:
        # R47: whoever starts a producer is its first speaker. Starting is never refused for its connection's age: two
        # producers that share an id know nothing of each other's connections.
        facts.append(SpokenBy(started.transactional_id, command.connection_id))
    identity = ProducerIdentity(ErrorKind.NONE, started.producer_id, started.producer_epoch)
    return Plan(facts, command.answer(identity))


def _refuse(command: InitProducerId, error: ErrorKind) -> TransactionPlan:
    return Plan(replies=command.answer(ProducerIdentity(error)))
