"""Machine: the log grew. What is new becomes available, or is scheduled, or is a duplicate, or is none of ours.

A plain queue is told where the log ends and nothing else. An indexed queue is told what is special about each message,
as far as its window allows; the rest waits in the log and costs nothing.

Nothing of this is journaled but deduplication, because the log can be read again: after a failover the driver feeds
the same messages, and what is known from the journal (done, retries, leases, deaths, moved due times) wins.
"""

from __future__ import annotations

from itertools import islice

from headrace.core.plan import Plan
from headrace.queues.board import Board
from headrace.queues.commands import (
    DataAvailable,
    FindDuplicate,
    LoggedMessage,
    Outcome,
    QueuePlan,
    ReadAhead,
    WantedRecords,
    no_such_source,
)
from headrace.queues.config import DEFAULT_PRIORITY
from headrace.queues.dedup import digest_of
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Deduplicated, Indexed
from headrace.queues.fifo import due_within_group
from headrace.queues.ranges import Range, as_ranges
from headrace.queues.state import SourceState

MAX_WANTED = 10_000
"""Messages per DataAvailable that a driver should pass at most, so that one of them does not hold up the loop."""
_MAX_GAPS = 256


def decide_data_available(board: Board, command: DataAvailable, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    config = partition.config
    end_offset = max(partition.end_offset, command.end_offset)
    indexed_to = end_offset
    if config.indexed:
        indexed_to = (
            partition.indexed_end if command.indexed_to is None else min(command.indexed_to, end_offset)
        )
    truncated = command.start_offset > partition.start_offset
    grows = indexed_to > partition.indexed_end or end_offset > partition.end_offset
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    if indexed_to < end_offset and (partition.lanes.ready_count < config.window or truncated):
        draft.effects.append(ReadAhead(partition.source))
    if not grows and not truncated:
        return draft.plan(command, None)
    if config.dedup_window_ms and command.messages:
        _deduplicate(draft, command, indexed_to)
    source = partition.source
    draft.facts.append(
        Indexed(source, command.start_offset, end_offset, indexed_to, command.messages, command.skipped)
    )
    if indexed_to > partition.indexed_end:
        draft.wake_receivers()
    return draft.plan(command, None)


def _deduplicate(draft: QueueDraft, command: DataAvailable, indexed_to: int) -> None:
    partition = draft.partition
    window_ms = partition.config.dedup_window_ms
    unread = (
        message for message in command.messages
        if partition.indexed_end <= message[0] < indexed_to and not partition.is_done(message[0])
    )  # fmt: skip
    fresh, duplicates, newest_ms = partition.dedup.sift(unread, window_ms)
    # Settled before the index: were only the first of the two journaled, the messages would just be judged again.
    if duplicates:
        draft.settle(as_ranges(duplicates), Outcome.DUPLICATE)
    if fresh:
        forget = partition.dedup.outdated_pages(newest_ms, window_ms)
        draft.do(Deduplicated(partition.source, partition.dedup.next_page, fresh, forget))


def apply_deduplicated(board: Board, partition: SourceState, fact: Deduplicated, now_ms: int) -> None:
    partition.dedup.learn(fact.page, fact.sightings)
    partition.dedup.forget(fact.forget_pages)


def apply_indexed(board: Board, partition: SourceState, fact: Indexed, now_ms: int) -> None:
    wall_ms = now_ms + board.wall_offset_ms
    if fact.start_offset > partition.start_offset:
        partition.advance_to(fact.start_offset)
    partition.end_offset = max(partition.end_offset, fact.end_offset)
    first, end = partition.indexed_end, fact.indexed_to
    if end <= first:
        return
    partition.indexed_end = end
    if fact.messages and _is_all_new(partition, first, fact):
        _sort_in_waiting(partition, fact, first, wall_ms)
        return
    for low, high in fact.skipped:
        low, high = max(low, first), min(high, end)
        if low < high:
            partition.skip(low, high)
    at = first
    for message in fact.messages:
        if message[0] < at:
            continue
        if message[0] >= end:
            break
        _sort_in_ordinary(partition, at, message[0], wall_ms)
        _sort_in(partition, message, wall_ms)
        at = message[0] + 1
    _sort_in_ordinary(partition, at, end, wall_ms)


def _is_all_new(partition: SourceState, first: int, fact: Indexed) -> bool:
    """Whether due times are all there is to know: one lane, and nothing of what is new is known from the journal."""
    config = partition.config
    return (
        config.delays and not config.fifo and bool(fact.messages) and not fact.skipped
        and first >= partition.known_from_journal and not partition.moved
        and (not partition.done.count or next(partition.done.runs(first), None) is None)
        and all(not group and priority == DEFAULT_PRIORITY and not expires_ms
                for _, _, group, _, priority, expires_ms, _ in fact.messages)
    )  # fmt: skip


def _sort_in_waiting(partition: SourceState, fact: Indexed, first: int, wall_ms: int) -> None:
    """A backlog of delays, at once: what is due later into the timetable, everything else is ready."""
    end = fact.indexed_to
    waiting = [
        (message[0], message[1])
        for message in fact.messages
        if message[1] > wall_ms and first <= message[0] < end
    ]
    lanes, main = partition.lanes, partition.lanes.main
    ready: list[Range] = []
    at = max(first, partition.start_offset)
    for offset, _ in waiting:
        if offset > at:
            ready.append((at, offset))
        at = offset + 1
    if at < end:
        ready.append((at, end))
    for message in fact.messages:
        if 0 < message[1] <= wall_ms and first <= message[0] < end:
            partition.dues.note(message[1], message[0])  # while nobody led the shard
    if waiting:
        offsets, times = zip(*waiting, strict=True)
        partition.schedule.add_all(offsets, times, main.id)
        main.scheduled += len(offsets)
        main.last_due_ms = times[-1]
    lanes.put_all(main, ready)


def index_plain(partition: SourceState) -> None:
    """A queue that is not indexed knows all there is to know."""
    first, partition.indexed_end = partition.indexed_end, max(partition.indexed_end, partition.end_offset)
    _sort_in_ordinary(partition, first, partition.indexed_end, 0)


def _sort_in_ordinary(partition: SourceState, first: int, end: int, wall_ms: int) -> None:
    """Messages about which there is nothing to say, except what the journal knows."""
    first = max(first, partition.start_offset)
    if first >= end:
        return
    lanes, main = partition.lanes, partition.lanes.main
    if lanes.fifo and main.scheduled:
        # They belong to the nameless group, and somebody in front of them is not due yet.
        for low, high in list(partition.done.gaps(first, end)):
            for offset in range(low, high):
                _sort_in(partition, LoggedMessage(offset), wall_ms)
        return
    ranges: list[Range] = (
        [(first, end)] if not partition.done.count else list(partition.done.gaps(first, end))
    )
    for low, high in ranges:
        lanes.put(main, low, high)
    if first >= partition.known_from_journal:
        return
    for offset in partition.exceptions_between(first, end):
        lanes.take(main, offset, offset + 1)
        partition.adopt(offset, main)
        lanes.refresh(main)


def _sort_in(partition: SourceState, message: LoggedMessage, wall_ms: int) -> None:
    offset, due_ms, group, _, priority, expires_ms, _ = message
    if partition.is_done(offset) or offset in partition.dying:
        return
    config = partition.config
    lane = partition.lanes.find(priority, group)
    if expires_ms and config.ttl:
        partition.expiries.add(offset, expires_ms, lane.id)
    if offset < partition.known_from_journal and partition.adopt(offset, lane):
        return
    due_ms = partition.moved.get(offset, due_ms) if config.delays else 0
    if partition.lanes.fifo:
        due_ms = due_within_group(lane, due_ms)
    if due_ms > wall_ms or (partition.lanes.fifo and lane.scheduled):
        partition.schedule.add(offset, due_ms, lane.id)
        lane.scheduled += 1
        lane.last_due_ms = due_ms
    else:
        if due_ms > 0:
            partition.dues.note(due_ms, offset)
        partition.lanes.put(lane, offset, offset + 1)


def decide_find_duplicate(board: Board, command: FindDuplicate, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    window_ms = partition.config.dedup_window_ms
    found = partition.dedup.find(digest_of(command.dedup_id), command.wall_ms, window_ms)
    return Plan(replies=command.answer(found))


def wanted(partition: SourceState, log_end: int = 0) -> WantedRecords | None:
    """What the driver should read next; None when the queue knows enough. `log_end`: when the log is longer by now."""
    config = partition.config
    room = config.window - partition.lanes.ready_count
    first, end = partition.indexed_end, max(partition.end_offset, log_end)
    if not config.indexed or first >= end or room <= 0:
        return None
    gaps: list[Range] = [(first, end)]
    if partition.done.count:
        gaps = list(islice(partition.done.gaps(first, end), _MAX_GAPS + 1))
        if len(gaps) > _MAX_GAPS:
            end = gaps.pop()[0]
    return WantedRecords(first, end, min(room, MAX_WANTED), tuple(gaps))
