"""Machine: end the rest of messages that were given back: somebody says that whatever refused them works again.

Not journaled: after a failover what rests does so in full (R58), and whoever cares says it again.
"""

from __future__ import annotations

from headrace.core.plan import Plan
from headrace.queues.board import Board
from headrace.queues.commands import EndRest, QueuePlan, no_such_source
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import RestEnded
from headrace.queues.state import SourceState

MAX_ENDED = 10_000
"""In one call; a caller with more asks again."""


def decide_end_rest(board: Board, command: EndRest, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    wanted = partition.retries if command.offsets is None else command.offsets
    resting = [
        offset for offset in wanted if (held := partition.retries.get(offset)) is not None and held.held
    ]
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    if resting:
        draft.do(RestEnded(partition.source, tuple(sorted(resting)[:MAX_ENDED])))
        draft.wake_receivers()
    return draft.plan(command, min(len(resting), MAX_ENDED))


def apply_rest_ended(board: Board, partition: SourceState, fact: RestEnded, now_ms: int) -> None:
    for offset in fact.offsets:
        retry = partition.retries.get(offset)
        if retry is not None and retry.held:
            partition.wake(retry)
    partition.deadlines.tidy()
