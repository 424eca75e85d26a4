"""Machine: give back what was received: at once, after a delay, or with the queue's back-off.

The delay is measured on the monotonic clock, and after a failover it restarts in full (R58). A lease that runs out
(expire.py) gives back without a delay: the lease was the wait.
"""

from __future__ import annotations

from typing import Any

from headrace.core.plan import Fact, Plan, Rejected
from headrace.queues.ack import current_lease
from headrace.queues.board import Board
from headrace.queues.commands import QueuePlan, Release, ReleaseOwner, no_such_source
from headrace.queues.deadlines import NO_EPOCH, Lease, RetryEntry
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import NO_LANE, Returned
from headrace.queues.state import SourceState


def decide_release(board: Board, command: Release, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    backoff = partition.config.backoff
    results: list[Rejected | None] = []
    released: dict[int, tuple[Lease, int]] = {}
    for handle in command.handles:
        lease = current_lease(partition, handle)
        if isinstance(lease, Rejected):
            results.append(lease)
            continue
        results.append(None)
        delay_ms = command.delay_ms
        if delay_ms is None:
            delay_ms = 0 if backoff is None else backoff.delay_ms(lease.delivery, command.draw)
        released[handle.offset] = lease, max(0, delay_ms)
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    ordered = sorted(released.items())
    leased, rests = [(offset, lease) for offset, (lease, _) in ordered], [rest for _, (_, rest) in ordered]
    draft.give_back(leased, rests, command.detail)
    return draft.plan(command, tuple(results))


def decide_release_owner(board: Board, command: ReleaseOwner, now_ms: int) -> QueuePlan:
    queue = board.queues.get(command.queue)
    facts: list[Fact] = []
    effects: list[Any] = []
    for source in queue.sources if queue is not None else ():
        partition = board.partitions[source]
        held = sorted(
            (offset, lease) for offset, lease in partition.leases.items() if lease.owner == command.owner
        )
        draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
        draft.give_back(held, [0] * len(held))
        facts += draft.facts
        effects += draft.effects
    return Plan(facts, command.answer(None), effects)


def apply_returned(board: Board, partition: SourceState, fact: Returned, now_ms: int) -> None:
    for first, end, deliveries, delay_ms, first_received_ms in fact.given_back:
        for offset in range(first, end):
            lease = partition.leases.pop(offset, None)
            before = partition.retries.pop(offset, None)
            if (
                before is not None and before.held
            ):  # only in a replay: it was woken, received and given back again
                before.held = 0
                partition.resting -= 1
            retry = RetryEntry(
                offset, deliveries, delay_ms=delay_ms, now_ms=now_ms, first_received_ms=first_received_ms,
                epoch=NO_EPOCH if lease is None else lease.epoch, lane=NO_LANE if lease is None else lease.lane,
            )  # fmt: skip
            partition.rest(retry)
            if lease is not None:
                partition.let_go(lease, 1)  # last, so that its lane is not forgotten in between
    partition.deadlines.tidy()
