"""Machine: dead letters (R60).

A message dies when it was delivered too often, was rejected, or expired. Death is journaled first; only then is the
driver asked, by an effect, to write the dead letter. The message is done when `DeadLettersWritten` says so, and the driver journals
that in the same transaction as the dead letter: neither lost nor doubled, wherever it crashes. Asking again is
never done by a clock, because a slow move would then be done twice: only after MoveFailed, and after a reload,
when whatever was under way has been aborted.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.plan import Plan, Rejected
from headrace.queues.ack import current_lease
from headrace.queues.board import Board
from headrace.queues.commands import (
    DeadLettersWritten,
    DeathReason,
    MoveFailed,
    MoveToDeadLetter,
    Outcome,
    QueuePlan,
    RejectMessages,
    no_such_source,
)
from headrace.queues.deadlines import Dying
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Died, Doomed, MoveDeferred, MoveRequested
from headrace.queues.ranges import as_ranges
from headrace.queues.state import SourceState


def decide_reject(board: Board, command: RejectMessages, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    results: list[Rejected | None] = []
    doomed: dict[int, Doomed] = {}
    for handle in command.handles:
        lease = current_lease(partition, handle)
        if isinstance(lease, Rejected):
            results.append(lease)
        else:
            results.append(None)
            doomed[handle.offset] = Doomed(handle.offset, lease.delivery)
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    draft.kill(sorted(doomed.values()), DeathReason.REJECTED, command.detail)
    return draft.plan(command, tuple(results))


def decide_moved(board: Board, command: DeadLettersWritten, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    moved = as_ranges({offset for offset in command.offsets if offset in partition.dying})
    if moved:
        draft.settle(moved, Outcome.MOVED)
    return draft.plan(command, ())


def decide_move_failed(board: Board, command: MoveFailed, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    offsets = tuple(sorted({offset for offset in command.offsets if offset in partition.dying}))
    facts = [MoveDeferred(partition.source, offsets, max(0, command.retry_ms))] if offsets else []
    return Plan(facts, command.answer(None))


def requests(partition: SourceState, dying: Iterable[Dying]) -> list[MoveToDeadLetter]:
    """Ask (again). A queue whose dead-letter queue was taken away since still owes these a move."""
    return [
        MoveToDeadLetter(
            partition.source, partition.config.dead_letter, one.offset, one.reason, one.deliveries, one.detail
        )
        for one in dying
    ]


def apply_died(board: Board, partition: SourceState, fact: Died, now_ms: int) -> None:
    for offset, deliveries in fact.doomed:
        partition.take_out(offset)
        partition.dying[offset] = Dying(offset, deliveries, fact.reason, fact.detail)
    partition.deadlines.tidy()


def apply_move_deferred(board: Board, partition: SourceState, fact: MoveDeferred, now_ms: int) -> None:
    for offset in fact.offsets:
        dying = partition.dying.get(offset)
        at_ms = now_ms + fact.retry_ms
        if dying is not None and not (dying.held and dying.deadline_ms == at_ms):
            dying.deadline_ms = at_ms
            dying.held = 1
            partition.deadlines.push(dying)


def apply_move_requested(board: Board, partition: SourceState, fact: MoveRequested, now_ms: int) -> None:
    for offset in fact.offsets:
        dying = partition.dying.get(offset)
        if dying is not None:
            dying.held = 0
    partition.deadlines.tidy()
