"""Machine: time passed. Leases run out, rests end, schedules come due, messages outlive their TTL.

One call does a bounded amount of work; what is left is still due, so `next_deadline` says "now" and the driver comes
back after it has let others run.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from headrace.core.plan import Fact, Plan
from headrace.queues.board import Board
from headrace.queues.commands import DeathReason, QueuePlan
from headrace.queues.dead import requests
from headrace.queues.deadlines import Dying, Holder, Lease, RetryEntry
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Doomed, MoveRequested, Promoted, Rearmed
from headrace.queues.state import SourceState

MAX_EXPIRED = 1_000
"""Messages per call."""


def decide_expire(board: Board, now_ms: int) -> QueuePlan:
    facts: list[Fact] = []
    effects: list[Any] = []
    budget = MAX_EXPIRED
    for partition in board.ringing(now_ms):
        if budget <= 0:
            break
        draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
        budget -= _expire_partition(draft, now_ms, budget)
        draft.do(Rearmed(partition.source))
        facts += draft.facts
        effects += draft.effects
    return Plan(facts, (), effects)


def _expire_partition(draft: QueueDraft, now_ms: int, budget: int) -> int:
    partition, wall_ms = draft.partition, draft.wall_ms
    due = partition.deadlines.due(now_ms, budget)
    used = _return_leases(draft, due, budget)
    used += _ask_again(draft, [holder for holder in due if isinstance(holder, Dying)])
    used += _bury_expired(draft, partition.expiries.due(wall_ms, max(0, budget - used)))
    head_ms = partition.schedule.head_ms()
    rested = any(isinstance(holder, RetryEntry) for holder in due)
    if rested or (head_ms is not None and head_ms <= wall_ms):
        limit = max(1, budget - used)
        draft.do(Promoted(partition.source, limit))
        draft.wake_receivers()
        used += limit
    return used


def _return_leases(draft: QueueDraft, due: list[Holder], budget: int) -> int:
    """A lease may hold many messages; what is over the budget of it stays due."""
    leases = draft.partition.leases
    ended = (
        (offset, lease)
        for lease in due
        if isinstance(lease, Lease)
        for offset in range(lease.first, lease.end)
        if leases.get(offset) is lease
    )
    returned = sorted(islice(ended, budget), key=lambda one: one[0])
    draft.give_back(returned, [0] * len(returned))
    return len(returned)


def _ask_again(draft: QueueDraft, dying: list[Dying]) -> int:
    if dying:
        dying.sort(key=lambda one: one.offset)
        draft.do(MoveRequested(draft.partition.source, tuple([one.offset for one in dying])))
        draft.effects += requests(draft.partition, dying)
    return len(dying)


def _bury_expired(draft: QueueDraft, offsets: list[int]) -> int:
    """A message that is in flight is judged when it comes back."""
    partition = draft.partition
    expired: list[Doomed] = []
    for offset in sorted(offsets):
        if offset not in partition.leases:
            retry = partition.retries.get(offset)
            expired.append(Doomed(offset, 0 if retry is None else retry.deliveries))
    draft.kill(expired, DeathReason.EXPIRED)
    return len(offsets)


def apply_rearmed(board: Board, partition: SourceState, fact: Rearmed, now_ms: int) -> None:
    partition.deadlines.tidy()
    partition.expiries.quiet(now_ms + board.wall_offset_ms, partition.leases)
    board.rearm(partition)
