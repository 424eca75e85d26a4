"""Machine: looking at transactions: DescribeTransactions and ListTransactions. Changes nothing."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.transactions.commands import (
    DescribeTransactions,
    ListResult,
    ListTransactions,
    TransactionDescription,
    TransactionListing,
    TransactionPlan,
)
from headrace.transactions.state import IDLE, TransactionState
from headrace.transactions.table import TransactionEntry, TransactionTable

_LABELS = frozenset(state.label for state in TransactionState)


def describe(table: TransactionTable, command: DescribeTransactions, now_ms: int) -> TransactionPlan:
    found = tuple(_describe_one(table, transactional_id) for transactional_id in command.transactional_ids)
    return Plan(replies=command.answer(found))


def _describe_one(table: TransactionTable, transactional_id: str) -> TransactionDescription:
    if not transactional_id:
        return TransactionDescription(transactional_id, ErrorKind.INVALID_REQUEST)
    entry = table.entries.get(transactional_id)
    if entry is None:
        return TransactionDescription(transactional_id, ErrorKind.TRANSACTIONAL_ID_NOT_FOUND)
    transaction = entry.transaction
    return TransactionDescription(
        transactional_id,
        ErrorKind.NONE,
        transaction.state.label,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.start_wall_ms,
        tuple(sorted(transaction.partitions)),
    )


def list_transactions(table: TransactionTable, command: ListTransactions, now_ms: int) -> TransactionPlan:
    wall_ms = table.wall_ms(now_ms)

    def wanted(entry: TransactionEntry) -> bool:
        transaction = entry.transaction
        if command.states and transaction.state.label not in command.states:
            return False
        if command.producer_ids and transaction.producer_id not in command.producer_ids:
            return False
        if command.longer_than_ms < 0:
            return True
        return transaction.state not in IDLE and wall_ms - transaction.start_wall_ms > command.longer_than_ms

    found = sorted(
        TransactionListing(transactional_id, entry.transaction.producer_id, entry.transaction.state.label)
        for transactional_id, entry in table.entries.items()
        if wanted(entry)
    )
    result = ListResult(tuple(sorted(command.states - _LABELS)), tuple(found))
    return Plan(replies=command.answer(result))
