"""Machine: done for good. A confirmed acknowledgement is journaled before it is answered (R57).

Which receipts count (R56): the one of the current delivery. On a queue without order that is the latest delivery until
somebody else receives the message, also when its lease has just run out: a slow worker's delete still prevents the
second delivery, as on SQS. On a FIFO queue the lease must still be held. An older receipt than the latest is refused;
SQS standard queues say success there and may or may not delete; here nothing pretends.
Deleting what is gone already succeeds, so that a client may repeat a delete whose answer was lost.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.queues.board import Board
from headrace.queues.commands import Ack, Handle, QueuePlan, no_such_source
from headrace.queues.deadlines import Lease
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Settled
from headrace.queues.ranges import as_ranges
from headrace.queues.state import SourceState

STALE = Rejected(
    ErrorKind.RECEIPT_HANDLE_IS_INVALID, "the message was delivered again since, or the queue moved"
)
NOT_IN_FLIGHT = Rejected(ErrorKind.MESSAGE_NOT_INFLIGHT, "nobody holds the message")


def current_lease(partition: SourceState, handle: Handle) -> Lease | Rejected:
    """The lease that `handle` was given for, if it is still held."""
    lease = partition.leases.get(handle.offset)
    if lease is not None:
        return lease if lease.delivery == handle.delivery and lease.epoch == handle.epoch else STALE
    retry = partition.retries.get(handle.offset)
    if retry is not None and (retry.deliveries != handle.delivery or retry.epoch != handle.epoch):
        return STALE
    return NOT_IN_FLIGHT


def decide_ack(board: Board, command: Ack, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    leases = partition.leases
    results: list[Rejected | None] = []
    acked: set[int] = set()
    for handle in command.handles:
        offset, delivery, epoch = handle
        lease = leases.get(offset)
        if (lease is not None and lease.delivery == delivery and lease.epoch == epoch) or (
            lease is None and _too_late_but_in_time(partition, handle)
        ):
            acked.add(offset)
            results.append(None)
        else:
            results.append(None if lease is None and partition.is_done(offset) else STALE)
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    if acked:
        ranges = ((offset, offset + 1),) if len(results) == 1 else as_ranges(acked)
        draft.settle(ranges, command.outcome)
        if partition.lanes.fifo or len(leases) >= partition.config.max_in_flight:
            draft.wake_receivers()
    return draft.plan(command, tuple(results))


def _too_late_but_in_time(partition: SourceState, handle: Handle) -> bool:
    """The lease ran out, but nobody received the message since."""
    retry = partition.retries.get(handle.offset)
    return (
        retry is not None and not partition.lanes.fifo
        and retry.deliveries == handle.delivery and retry.epoch == handle.epoch
    )  # fmt: skip


def apply_settled(board: Board, partition: SourceState, fact: Settled, now_ms: int) -> None:
    partition.settle(fact.ranges)
