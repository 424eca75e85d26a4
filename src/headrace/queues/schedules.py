"""Machine: messages with a due time: list them, move them, cancel them, and let them go when it is time (Q7).

A move and a cancellation are journaled; the due time itself is in the log, with the message. What became overdue while
nobody led the shard is due at once.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.queues.board import Board
from headrace.queues.commands import (
    CancelSchedule,
    ListSchedules,
    MoveSchedule,
    Outcome,
    QueuePlan,
    Released,
    Source,
    no_such_source,
)
from headrace.queues.deadlines import RetryEntry
from headrace.queues.delay import LAST_MS
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Promoted, Rescheduled
from headrace.queues.ranges import as_ranges
from headrace.queues.state import SourceState

MAX_LISTED = 1_000


def decide_list_schedules(board: Board, command: ListSchedules, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    listed = partition.schedule.items(command.from_offset, min(command.limit, MAX_LISTED))
    return Plan(replies=command.answer(tuple(listed)))


def decide_move_schedule(board: Board, command: MoveSchedule, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    if command.offset not in partition.schedule:
        return Plan(replies=command.answer(_not_scheduled(command.source, command.offset)))
    if partition.lanes.fifo:
        detail = (
            "a FIFO queue keeps its order, so a message can not be moved in time; cancel it and send it again"
        )
        return Plan(replies=command.answer(Rejected(ErrorKind.UNSUPPORTED_OPERATION, detail)))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    draft.reschedule(command.offset, max(0, min(command.due_ms, LAST_MS)))
    return draft.plan(command, None)


def decide_cancel_schedule(board: Board, command: CancelSchedule, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    if command.offset not in partition.schedule:
        return Plan(replies=command.answer(_not_scheduled(command.source, command.offset)))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    draft.settle(((command.offset, command.offset + 1),), Outcome.CANCELLED)
    return draft.plan(command, None)


def decide_released(board: Board, command: Released, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    there = as_ranges({offset for offset in command.offsets if not partition.is_done(offset)})
    if there:
        draft.settle(there, Outcome.MOVED)
    return draft.plan(command, None)


def _not_scheduled(source: Source, offset: int) -> Rejected:
    return Rejected(ErrorKind.SCHEDULE_NOT_FOUND, f"nothing is scheduled at offset {offset} of {source}")


def apply_rescheduled(board: Board, partition: SourceState, fact: Rescheduled, now_ms: int) -> None:
    partition.moved[fact.offset] = fact.due_ms
    partition.schedule.move(fact.offset, fact.due_ms)


def apply_promoted(board: Board, partition: SourceState, fact: Promoted, now_ms: int) -> None:
    wall_ms = now_ms + board.wall_offset_ms
    limit = fact.limit
    for holder in partition.deadlines.due(now_ms, limit):
        if isinstance(holder, RetryEntry):
            partition.wake(holder)
            limit -= 1
    partition.deadlines.tidy()
    by_lane: dict[int, list[int]] = {}
    for offset, lane_id in partition.schedule.pop_due(wall_ms, limit):
        by_lane.setdefault(lane_id, []).append(offset)
        partition.dues.note(wall_ms, offset)
    for lane_id, offsets in by_lane.items():
        lane = partition.lanes.by_id[lane_id]
        lane.scheduled -= len(offsets)
        partition.lanes.put_all(lane, as_ranges(offsets))
