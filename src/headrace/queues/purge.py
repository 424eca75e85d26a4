"""Machine: whole ranges at once: purge, seek, and the opening and closing of a partition."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.queues.board import Board
from headrace.queues.commands import (
    Close,
    Open,
    Purge,
    QueuePlan,
    ReadAhead,
    SeekSource,
    Source,
    no_such_source,
)
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Deduplicated, Positioned, Purged, SourceRemoved
from headrace.queues.intake import index_plain
from headrace.queues.state import SourceState


def decide_purge(board: Board, command: Purge, now_ms: int) -> QueuePlan:
    """Also what is in flight, scheduled or dying (SQS). A dead letter that is being written may still appear."""
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    if partition.purged_ms is not None and now_ms - partition.purged_ms < command.min_interval_ms:
        detail = f"purged less than {command.min_interval_ms} ms ago"
        return Plan(replies=command.answer(Rejected(ErrorKind.PURGE_QUEUE_IN_PROGRESS, detail)))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    draft.purge(partition.end_offset if command.upto is None else command.upto)
    # Whoever sends an id again after a purge of everything means a new message: what it would repeat is gone.
    if command.upto is None and (pages := partition.dedup.page_numbers()):
        draft.do(Deduplicated(partition.source, partition.dedup.next_page, (), pages))
    draft.read_ahead()
    return draft.plan(command, None)


def decide_seek(board: Board, command: SeekSource, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    if command.offset < 0:
        return Plan(replies=command.answer(Rejected(ErrorKind.OFFSET_OUT_OF_RANGE, "an offset is 0 or more")))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    draft.position(command.offset)
    draft.wake_receivers()
    if partition.config.indexed:
        draft.effects.append(ReadAhead(partition.source))
    return draft.plan(command, None)


def decide_open(board: Board, command: Open, now_ms: int) -> QueuePlan:
    """Opening twice is harmless: the first position stays."""
    if command.source.queue not in board.queues:
        return Plan(replies=no_such_source(command, command.source))
    partition = board.partitions.get(command.source)
    if partition is not None:
        return Plan(replies=command.answer(partition.start_offset))
    start_offset = max(0, command.start_offset)
    return Plan(
        [Positioned(command.source, seq=1, slot=0, offset=start_offset)], command.answer(start_offset)
    )


def decide_close(board: Board, command: Close, now_ms: int) -> QueuePlan:
    facts = [source_removal(board, command.source)] if command.source in board.partitions else []
    return Plan(facts, command.answer(None))


def source_removal(board: Board, source: Source) -> SourceRemoved:
    partition = board.partitions[source]
    at = partition.checkpoint
    return SourceRemoved(source, at.slots, (at.parts[0], at.parts[1]), partition.dedup.page_numbers())


def apply_purged(board: Board, partition: SourceState, fact: Purged, now_ms: int) -> None:
    partition.advance_to(fact.upto)
    partition.purged_ms = now_ms


def apply_positioned(board: Board, partition: SourceState, fact: Positioned, now_ms: int) -> None:
    partition.restart_at(fact.offset)
    if not partition.config.indexed:
        index_plain(partition)
