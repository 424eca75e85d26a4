"""Machine: queues come, change, rest and go."""

from __future__ import annotations

from typing import Any

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact, Plan, Rejected
from headrace.queues.board import Board, Queue
from headrace.queues.commands import (
    Configure,
    Pause,
    QueuePlan,
    ReadAhead,
    RemoveQueue,
    SetClock,
    WakeReceivers,
)
from headrace.queues.facts import ClockSet, Configured, Paused, QueueRemoved, SourceRemoved
from headrace.queues.intake import index_plain
from headrace.queues.purge import source_removal


def decide_configure(board: Board, command: Configure, now_ms: int) -> QueuePlan:
    problem = command.config.problem()
    if problem is not None:
        return Plan(replies=command.answer(Rejected(ErrorKind.INVALID_CONFIG, problem)))
    queue = board.queues.get(command.queue)
    if queue is not None and queue.config == command.config:
        return Plan(replies=command.answer(None))
    effects: list[WakeReceivers | ReadAhead] = [WakeReceivers(command.queue)]
    if queue is not None and command.config.indexed and queue.config.shape != command.config.shape:
        effects += [ReadAhead(source) for source in queue.sources]
    return Plan([Configured(command.queue, command.config)], command.answer(None), effects)


def decide_pause(board: Board, command: Pause, now_ms: int) -> QueuePlan:
    queue = board.queues.get(command.queue)
    if queue is None:
        return Plan(replies=command.answer(_unknown(command.queue)))
    if queue.paused == command.paused:
        return Plan(replies=command.answer(None))
    effects = () if command.paused else (WakeReceivers(command.queue),)
    return Plan([Paused(command.queue, command.paused)], command.answer(None), effects)


def decide_remove_queue(board: Board, command: RemoveQueue, now_ms: int) -> QueuePlan:
    queue = board.queues.get(command.queue)
    if queue is None:
        return Plan(replies=command.answer(_unknown(command.queue)))
    facts: list[Fact] = [source_removal(board, source) for source in queue.sources]
    facts.append(QueueRemoved(command.queue))
    return Plan(facts, command.answer(None), [WakeReceivers(command.queue)])


def decide_set_clock(board: Board, command: SetClock, now_ms: int) -> QueuePlan:
    return Plan([ClockSet(command.wall_ms - now_ms)], command.answer(None))


def apply_to_board(board: Board, fact: Any, now_ms: int) -> None:
    """Facts that are not about one source."""
    match fact:
        case Configured():
            _apply_configured(board, fact, now_ms)
        case Paused():
            queue = board.queues.get(fact.queue)
            if queue is not None:
                queue.paused = fact.paused
        case QueueRemoved():
            board.queues.pop(fact.queue, None)
        case SourceRemoved():
            board.close(fact.source)
            board.tidy()
        case ClockSet():
            board.wall_offset_ms = fact.wall_offset_ms
            board.rearm_all()


def _apply_configured(board: Board, fact: Configured, now_ms: int) -> None:
    queue = board.queues.get(fact.queue)
    if queue is None:
        board.queues[fact.queue] = Queue(fact.config)
        return
    changed_shape = queue.config.shape != fact.config.shape
    queue.config = fact.config
    for source in queue.sources:
        partition = board.partitions[source]
        if changed_shape:
            partition.reshape(fact.config, now_ms)
            if not fact.config.indexed:
                index_plain(partition)
            board.rearm(partition)
        partition.config = fact.config


def _unknown(queue: str) -> Rejected:
    return Rejected(ErrorKind.QUEUE_DOES_NOT_EXIST, f"no queue {queue}")
