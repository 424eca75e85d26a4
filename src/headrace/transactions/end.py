"""Machine: transactions end: EndTxn, the fence, and the markers that make the end known to every partition.

The decision is journaled as Prepare*, then the client is answered, then every partition gets its marker, then the
transaction is complete (R42, R49). A client of transaction version 2 gets a new epoch with every end (R46), which the
markers carry: whatever it sent before and arrives after can no longer pass for part of its next transaction.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact, Plan
from headrace.transactions.admission import Refusal, find, find_producer, heard, is_ahead
from headrace.transactions.commands import (
    EndTxn,
    MarkersWritten,
    ProducerIdentity,
    SendMarkers,
    TransactionPlan,
)
from headrace.transactions.facts import Fencing, MarkersAcked, Moved
from headrace.transactions.state import (
    COMPLETE,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from headrace.transactions.table import TransactionTable

Ended = tuple[tuple[Fact, ...], tuple[SendMarkers, ...]]
"""The facts that end a transaction and the markers they call for."""


def end(table: TransactionTable, command: EndTxn, now_ms: int) -> TransactionPlan:
    if command.bumps_epoch:
        return _end_with_bump(table, command, now_ms)
    entry = find_producer(
        table, command.transactional_id, command.producer_id, command.producer_epoch, command.connection_id
    )
    if isinstance(entry, Refusal):
        return Plan(replies=command.answer(ProducerIdentity(entry.error)), effects=entry.effects)
    transaction = entry.transaction
    spoken = heard(entry, command.connection_id)
    if transaction.state is TransactionState.ONGOING:
        # Whoever asks again under the epoch before this one did not ask for this end (R46).
        plain = transaction._replace(epoch_bump=False)
        facts, effects = _decide(table, plain, command.commit, now_ms)
        return Plan((*spoken, *facts), command.answer(ProducerIdentity(ErrorKind.NONE)), effects)
    return Plan(spoken, command.answer(ProducerIdentity(_repeated(transaction, command.commit))))


def _repeated(transaction: Transaction, commit: bool) -> ErrorKind:
    """EndTxn for a transaction that is already decided: a retry, or a contradiction."""
    if transaction.state is TransactionState.EMPTY or transaction.commits != commit:
        return ErrorKind.INVALID_TXN_STATE
    return ErrorKind.CONCURRENT_TRANSACTIONS if transaction.state in PREPARED else ErrorKind.NONE


# --- transaction version 2 -----------------------------------------------------------------------------------


def _end_with_bump(table: TransactionTable, command: EndTxn, now_ms: int) -> TransactionPlan:
    entry = find(table, command.transactional_id)
    if isinstance(entry, Refusal):
        return _answer(command, ProducerIdentity(entry.error))
    transaction = entry.transaction
    if _is_retry(transaction, command):
        error = _repeated(transaction, command.commit)
        if error is ErrorKind.NONE:
            return _answer(command, _identity_after(transaction))
        return _answer(command, ProducerIdentity(error))
    if is_ahead(transaction, command.producer_id, command.producer_epoch):
        return _answer(command, ProducerIdentity(ErrorKind.CONCURRENT_TRANSACTIONS))
    if transaction.producer_id != command.producer_id:
        return _answer(command, ProducerIdentity(ErrorKind.INVALID_PRODUCER_ID_MAPPING))
    if not transaction.producer_epoch == command.producer_epoch <= LAST_EPOCH:
        return _answer(command, ProducerIdentity(ErrorKind.PRODUCER_FENCED))
    facts: tuple[Fact, ...] = ()
    if transaction.state is not TransactionState.ONGOING:
        if command.commit:
            return _answer(command, ProducerIdentity(ErrorKind.INVALID_TXN_STATE))
        # Its client can not know whether a partition was ever added, so it may abort nothing; that bumps the epoch, too.
        wall_ms = table.wall_ms(now_ms)
        transaction = transaction._replace(
            state=TransactionState.ONGOING, start_wall_ms=wall_ms, updated_wall_ms=wall_ms
        )
        facts = (Moved(transaction),)
    bumped = _bump(transaction, command)
    if bumped is None:
        return _answer(command, ProducerIdentity(ErrorKind.COORDINATOR_NOT_AVAILABLE))
    decided, effects = _decide(table, bumped, command.commit, now_ms)
    return Plan((*facts, *decided), command.answer(_identity_after(bumped)), effects)


def _is_retry(transaction: Transaction, command: EndTxn) -> bool:
    """R46: the epoch the client sent is the one it had before this very end, whose answer it did not get."""
    if transaction.state not in PREPARED | COMPLETE or not transaction.epoch_bump:
        return False
    if transaction.last_epoch != command.producer_epoch:
        return False
    if transaction.producer_id == command.producer_id:
        return transaction.producer_epoch == command.producer_epoch + 1
    return transaction.previous_producer_id == command.producer_id and transaction.producer_epoch == 0


def _bump(transaction: Transaction, command: EndTxn) -> Transaction | None:
    """The next epoch; on the last one also the producer id to go on with. None when the driver drew none."""
    next_producer_id = NO_PRODUCER_ID
    if transaction.is_exhausted:
        next_producer_id = command.new_producer_id
        if next_producer_id == NO_PRODUCER_ID:
            return None
    return transaction._replace(
        producer_epoch=transaction.producer_epoch + 1,
        last_epoch=transaction.producer_epoch,
        next_producer_id=next_producer_id,
        epoch_bump=True,
    )


def _identity_after(transaction: Transaction) -> ProducerIdentity:
    return ProducerIdentity(ErrorKind.NONE, *transaction.identity_after)


def _answer(command: EndTxn, identity: ProducerIdentity) -> TransactionPlan:
    return Plan(replies=command.answer(identity))


# --- the decision and its markers ----------------------------------------------------------------------------


def _decide(table: TransactionTable, transaction: Transaction, commit: bool, now_ms: int) -> Ended:
    """Prepare*, and the markers it calls for; complete at once when there is no partition to tell."""
    wall_ms = table.wall_ms(now_ms)
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    prepared = transaction._replace(state=state, updated_wall_ms=wall_ms)
    last_round = table.entries[prepared.transactional_id].marker_round
    if not prepared.partitions:
        return (Moved(prepared, last_round), Moved(completed(prepared, wall_ms))), ()
    # Rounds rise, and by following the clock they go on rising when the shard loads again.
    marker_round = max(last_round + 1, now_ms)
    return (Moved(prepared, marker_round),), (markers(table, prepared, marker_round),)


def fence_and_abort(table: TransactionTable, transaction: Transaction, now_ms: int) -> Ended:
    """R51: first the epoch goes up, so that its producer is shut out, then the transaction is aborted."""
    fenced = transaction._replace(
        state=TransactionState.PREPARE_EPOCH_FENCE,
        producer_epoch=transaction.producer_epoch + 1,
        last_epoch=NO_EPOCH,
    )
    facts, effects = _decide(table, fenced, False, now_ms)
    return (Fencing(fenced), *facts), effects


def markers(table: TransactionTable, transaction: Transaction, marker_round: int) -> SendMarkers:
    return SendMarkers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.commits,
        table.coordinator_epoch,
        marker_round,
        tuple(sorted(transaction.partitions)),
    )


def completed(transaction: Transaction, wall_ms: int) -> Transaction:
    """All markers are written. A producer whose epochs ran out goes on under its new id."""
    state = TransactionState.COMPLETE_COMMIT if transaction.commits else TransactionState.COMPLETE_ABORT
    done = transaction._replace(state=state, partitions=frozenset(), updated_wall_ms=wall_ms)
    if done.next_producer_id == NO_PRODUCER_ID:
        return done
    return done._replace(
        producer_id=done.next_producer_id,
        producer_epoch=0,
        previous_producer_id=done.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def markers_written(table: TransactionTable, command: MarkersWritten, now_ms: int) -> TransactionPlan:
    entry = table.entries.get(command.transactional_id)
    if entry is None or entry.transaction.state not in PREPARED or entry.marker_round != command.marker_round:
        return Plan()  # a late answer
    transaction = entry.transaction
    acked = MarkersAcked(command.transactional_id, command.partitions)
    if entry.unmarked - command.partitions:
        return Plan((acked,))
    return Plan((acked, Moved(completed(transaction, table.wall_ms(now_ms)))))
