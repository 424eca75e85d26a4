"""Machine: partitions join a transaction, durably before anybody hears of it (R44); and partition leaders ask whether
they did (R45)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition, shard_for
from headrace.core.plan import Plan
from headrace.transactions.admission import Refusal, find_producer, heard
from headrace.transactions.commands import AddOffsets, AddPartitions, TransactionPlan, VerifyPartitions
from headrace.transactions.facts import Moved
from headrace.transactions.state import PREPARED, TransactionState
from headrace.transactions.table import TransactionTable


def add_partitions(table: TransactionTable, command: AddPartitions, now_ms: int) -> TransactionPlan:
    """Answers one ErrorKind for all partitions."""
    return _add(table, command, command.partitions, now_ms)


def add_offsets(table: TransactionTable, command: AddOffsets, now_ms: int) -> TransactionPlan:
    """The group's offsets are committed with the transaction: its partition gets a marker like any other."""
    config = table.config
    partition = TopicPartition(config.offsets_topic, shard_for(command.group_id, config.offsets_partitions))
    return _add(table, command, frozenset((partition,)), now_ms)


def _add(
    table: TransactionTable,
    command: AddPartitions | AddOffsets,
    partitions: frozenset[TopicPartition],
    now_ms: int,
) -> TransactionPlan:
    entry = find_producer(
        table, command.transactional_id, command.producer_id, command.producer_epoch, command.connection_id
    )
    if isinstance(entry, Refusal):
        return Plan(replies=command.answer(entry.error), effects=entry.effects)
    transaction = entry.transaction
    if transaction.state in PREPARED:
        return Plan(replies=command.answer(ErrorKind.CONCURRENT_TRANSACTIONS))
    done = command.answer(ErrorKind.NONE)
    spoken = heard(entry, command.connection_id)
    opens = transaction.state is not TransactionState.ONGOING
    if partitions <= transaction.partitions:
        return Plan(spoken, done)  # nothing to add: also when nothing was asked for
    added = transaction.partitions | partitions
    if len(added) > table.config.max_partitions:
        return Plan(replies=command.answer(ErrorKind.POLICY_VIOLATION))
    wall_ms = table.wall_ms(now_ms)
    ongoing = transaction._replace(
        state=TransactionState.ONGOING,
        partitions=added,
        start_wall_ms=wall_ms if opens else transaction.start_wall_ms,
        updated_wall_ms=wall_ms,
    )
    return Plan((*spoken, Moved(ongoing)), done)


def verify_partitions(table: TransactionTable, command: VerifyPartitions, now_ms: int) -> TransactionPlan:
    """Answers {partition: ErrorKind}."""
    entry = find_producer(table, command.transactional_id, command.producer_id, command.producer_epoch, None)
    if isinstance(entry, Refusal):
        answer = dict.fromkeys(command.partitions, entry.error)
    elif entry.transaction.state in PREPARED:
        answer = dict.fromkeys(command.partitions, ErrorKind.CONCURRENT_TRANSACTIONS)
    else:
        inside = entry.transaction.partitions
        answer = {
            partition: ErrorKind.NONE if partition in inside else ErrorKind.TRANSACTION_ABORTABLE
            for partition in command.partitions
        }
    return Plan(replies=command.answer(answer))
