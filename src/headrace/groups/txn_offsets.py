"""Machine: TxnOffsetCommit and the markers that end a transaction (R50, KIP-447)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups.commands import CommitResult, GroupPlan, PartitionOutcome, TxnCommitOffsets, TxnMarker
from headrace.groups.config import GroupConfig
from headrace.groups.facts import TxnFinished, TxnOffsetsPending
from headrace.groups.offset_table import OffsetTable
from headrace.groups.offsets import screen


def commit(command: TxnCommitOffsets, refusal: ErrorKind, config: GroupConfig, wall_ms: int) -> GroupPlan:
    if refusal is not ErrorKind.NONE:
        outcomes = tuple(PartitionOutcome(o.topic, o.partition, refusal) for o in command.offsets)
        return Plan(replies=command.answer(CommitResult(refusal, outcomes)))
    entries, outcomes = screen(command.offsets, config, wall_ms)
    producer = (command.producer_id, command.producer_epoch)
    facts = (TxnOffsetsPending(command.group_id, entries, producer),) if entries else ()
    return Plan(facts, command.answer(CommitResult(ErrorKind.NONE, outcomes)))


def marker(table: OffsetTable, command: TxnMarker) -> GroupPlan:
    """Idempotent: a marker for a producer without pending offsets changes nothing."""
    facts = (
        (TxnFinished(command.producer_id, command.commit),) if command.producer_id in table.pending else ()
    )
    return Plan(facts, command.answer(None))
