"""Machine: what time does to transactions: open ones are aborted, ids nobody uses are forgotten; and what a new
coordinator resumes."""

from __future__ import annotations

from typing import Any

from headrace.core.plan import Fact, Plan
from headrace.transactions.commands import TransactionPlan
from headrace.transactions.end import fence_and_abort, markers
from headrace.transactions.facts import Forgotten, Swept
from headrace.transactions.state import IDLE, PREPARED
from headrace.transactions.table import TransactionTable


def expire(table: TransactionTable, now_ms: int) -> TransactionPlan:
    facts: list[Fact] = []
    effects: list[Any] = []
    for transactional_id in table.deadlines.due(now_ms):
        # R51: its producer may still be there and must not write into what is being aborted.
        moved, sent = fence_and_abort(table, table.entries[transactional_id].transaction, now_ms)
        facts += moved
        effects += sent
    if table.sweep_at_ms is not None and table.sweep_at_ms <= now_ms:
        oldest_ms = now_ms - table.config.id_expiration_ms
        facts += (
            Forgotten(transactional_id)
            for transactional_id, entry in table.entries.items()
            if entry.transaction.state in IDLE and entry.idle_since_ms <= oldest_ms
        )
        facts.append(Swept())
    return Plan(facts, (), effects)


def resume(table: TransactionTable) -> TransactionPlan:
    """R49: what was decided before the failover is carried out, whoever decided it. Until all partitions have
    answered no other transaction begins, so a marker may come twice; but what is on its way for an earlier load must
    not come later than ours (F4, broker/markers.py)."""
    decided = (entry for entry in table.entries.values() if entry.transaction.state in PREPARED)
    return Plan(effects=[markers(table, entry.transaction, entry.marker_round) for entry in decided])
