"""Machine: questions that change nothing: how many, which, and in what state (Q10)."""

from __future__ import annotations

from heapq import merge
from itertools import islice

from headrace.core.plan import Plan
from headrace.queues.board import Board
from headrace.queues.commands import (
    Counts,
    Describe,
    HeldGroups,
    Holding,
    Inspect,
    Lock,
    MessageGroup,
    MessageState,
    MessageStatus,
    Peek,
    QueuePlan,
    no_such_source,
)
from headrace.queues.state import SourceState

MAX_PEEKED = 1_000
_MAX_PEEKED_LANES = 1_000


def decide_describe(board: Board, command: Describe, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    return Plan(replies=command.answer(counts(partition, board.queues[command.source.queue].paused)))


def counts(partition: SourceState, paused: bool) -> Counts:
    """Visible is what is left of the log: the backlog that nobody looked at yet counts."""
    delayed = partition.schedule.count + partition.resting
    held = len(partition.leases) + delayed + len(partition.dying) + partition.done.count
    visible = partition.end_offset - partition.start_offset - held
    return Counts(
        max(0, visible), len(partition.leases), delayed, len(partition.dying),
        partition.start_offset, partition.end_offset, partition.indexed_end, paused,
    )  # fmt: skip


def locks(partition: SourceState, limit: int) -> list[Lock]:
    return [
        Lock(offset, lease.delivery, lease.deadline_ms, lease.visibility_ms, lease.owner, lease.epoch)
        for offset, lease in islice(sorted(partition.leases.items()), limit)
    ]


def groups(partition: SourceState, limit: int) -> list[MessageGroup]:
    """Blocked ones first, then those with the most that waits."""
    blocking: dict[int, MessageGroup] = {}
    for offset, lease in partition.leases.items():
        blocking[lease.lane] = MessageGroup(
            b"", 0, 0, 0, offset, lease.delivery, lease.owner, lease.deadline_ms
        )
    for offset, retry in partition.retries.items():
        if retry.held and retry.lane not in blocking:
            blocking[retry.lane] = MessageGroup(b"", 0, 0, 0, offset, retry.deliveries, "", retry.deadline_ms)
    nothing = MessageGroup(b"", 0, 0, 0, -1, 0, "", 0)
    lanes = [lane for lane in partition.lanes.all() if not lane.unused]
    lanes.sort(key=lambda lane: (lane.id not in blocking, -lane.ready.count))
    return [
        blocking.get(lane.id, nothing)._replace(
            group=lane.group,
            waiting=lane.ready.count + lane.scheduled,
            in_flight=lane.in_flight,
            resting=lane.resting,
        )
        for lane in lanes[:limit]
    ]


def decide_holding(board: Board, command: Holding, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    is_read = partition.indexed_end >= command.upto
    held = True if partition.lanes.holds(command.group) else False if is_read else None
    return Plan(replies=command.answer(held))


def decide_held_groups(board: Board, command: HeldGroups, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    is_read = partition.indexed_end >= command.upto
    return Plan(replies=command.answer(tuple(partition.lanes.held_groups()) if is_read else None))


def decide_peek(board: Board, command: Peek, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    offsets = peek(partition, command.from_offset, min(command.limit, MAX_PEEKED))
    return Plan(replies=command.answer(offsets))


def peek(partition: SourceState, from_offset: int, limit: int) -> tuple[int, ...]:
    ready = merge(
        *(
            (offset for first, end in lane.ready.runs(from_offset) for offset in range(first, end))
            for lane in partition.lanes.all()[:_MAX_PEEKED_LANES]
        )
    )
    return tuple(islice(ready, limit))


def decide_inspect(board: Board, command: Inspect, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    return Plan(replies=command.answer(status(partition, command.offset)))


def status(partition: SourceState, offset: int) -> MessageStatus:
    if partition.is_done(offset):
        return MessageStatus(MessageState.DONE)
    lease = partition.leases.get(offset)
    if lease is not None:
        return MessageStatus(MessageState.ACQUIRED, lease.delivery, lease.deadline_ms, lease.owner)
    dying = partition.dying.get(offset)
    if dying is not None:
        return MessageStatus(MessageState.DYING, dying.deliveries)
    retry = partition.retries.get(offset)
    if retry is not None and retry.held:
        return MessageStatus(MessageState.RESTING, retry.deliveries, retry.deadline_ms)
    due_ms = partition.schedule.time_of(offset)
    if due_ms is not None:
        return MessageStatus(MessageState.SCHEDULED, until_ms=due_ms)
    if offset >= partition.end_offset:
        return MessageStatus(MessageState.UNKNOWN)
    return MessageStatus(MessageState.AVAILABLE, 0 if retry is None else retry.deliveries)
