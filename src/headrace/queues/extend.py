"""Machine: keep a message longer, or less long. The new deadline counts from now, not from the old one (SQS).

`max_lease_ms` bounds the whole time since the receive; a change beyond it is refused and never cut down silently.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.queues.ack import STALE, current_lease
from headrace.queues.board import Board
from headrace.queues.commands import Extend, Handle, QueuePlan, no_such_source
from headrace.queues.deadlines import Lease
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import Extended, ExtendedDurably
from headrace.queues.state import SourceState


def decide_extend(board: Board, command: Extend, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    longest_ms = partition.config.max_lease_ms
    results: list[Rejected | None] = []
    held: dict[int, Lease] = {}
    for handle in command.handles:
        lease = current_lease(partition, handle)
        if lease is STALE and command.stale_may_prolong:
            lease = _prolonged(partition, handle, now_ms + command.visibility_ms)
        if isinstance(lease, Rejected):
            results.append(lease)
        elif longest_ms and now_ms + command.visibility_ms - lease.received_ms > longest_ms:
            detail = f"the message would be held for longer than {longest_ms} ms since it was received"
            results.append(Rejected(ErrorKind.INVALID_PARAMETER, detail))
        else:
            results.append(None)
            held[handle.offset] = lease
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    ordered = sorted(held.items())
    if ordered and command.visibility_ms <= 0:
        draft.give_back(ordered, [0] * len(ordered))
    elif ordered:
        plan_extension(draft, ordered, command.visibility_ms)
    return draft.plan(command, tuple(results))


def _prolonged(partition: SourceState, handle: Handle, until_ms: int) -> Lease | Rejected:
    """The lease of a later delivery, if there is no harm in it for whoever holds it. In a FIFO queue the rest of the group
    waits for that one, so there it is up to the holder alone."""
    lease = partition.leases.get(handle.offset)
    if (
        lease is None
        or partition.lanes.fifo
        or handle.delivery >= lease.delivery
        or until_ms < lease.deadline_ms
    ):
        return STALE
    return lease


def plan_extension(draft: QueueDraft, leased: list[tuple[int, Lease]], visibility_ms: int) -> None:
    """Journaled leases are extended in the journal."""
    durable = tuple([offset for offset, lease in leased if lease.durable])
    others = tuple([offset for offset, lease in leased if not lease.durable])
    if durable:
        draft.extend_durably(durable, visibility_ms)
    if others:
        draft.do(Extended(draft.partition.source, others, visibility_ms))


def apply_extended(
    board: Board, partition: SourceState, fact: Extended | ExtendedDurably, now_ms: int
) -> None:
    together: dict[int, list[int]] = {}
    for offset in fact.offsets:
        lease = partition.leases.get(offset)
        if lease is not None:
            together.setdefault(id(lease), []).append(offset)
    for offsets in together.values():
        old = partition.leases[offsets[0]]
        new = Lease(
            offsets[0], offsets[-1] + 1, len(offsets), old.delivery, epoch=old.epoch, owner=old.owner, lane=old.lane,
            now_ms=now_ms, visibility_ms=fact.visibility_ms, received_ms=old.received_ms,
            first_received_ms=old.first_received_ms, durable=old.durable,
        )  # fmt: skip
        for offset in offsets:
            partition.leases[offset] = new
        old.held -= len(offsets)
        partition.deadlines.push(new)
    partition.deadlines.tidy()
