"""Machine: hand messages out under a lease.

A lease is journaled when the queue asks for it (`journaled_leases`). Queues made over SQS and REST do, webhooks' too: after a
failover their receipts are good. Share groups do not: they write nothing when records are acquired, as KIP-932 has it.
After a failover such messages are available at once and their old receipts are void, because the lease epoch is another (R56).
"""

from __future__ import annotations

from headrace.core.plan import Plan
from headrace.queues.board import Board
from headrace.queues.commands import (
    DeathReason,
    Delivered,
    QueuePlan,
    ReadAhead,
    Receive,
    ReceivedRuns,
    no_such_source,
)
from headrace.queues.deadlines import Lease
from headrace.queues.draft import QueueDraft
from headrace.queues.facts import NO_LANE, Doomed, Grant, Leased, LeasedDurably
from headrace.queues.priority import pick
from headrace.queues.ranges import Range
from headrace.queues.state import SourceState


def decide_receive(board: Board, command: Receive, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    config = partition.config
    if board.queues[command.source.queue].paused:
        return Plan(replies=command.answer(ReceivedRuns(paused=True)))
    room = config.max_in_flight - len(partition.leases)
    limit = min(command.max_messages, room)
    if limit <= 0 or not partition.lanes.ready_count:
        effects = _read_ahead(partition)
        return Plan(replies=command.answer(ReceivedRuns(limited=room <= 0)), effects=effects)
    wall_ms = now_ms + board.wall_offset_ms
    refuse = (lambda offset: partition.is_expired(offset, wall_ms)) if partition.expiries.count else None
    grants: list[Grant] = []
    doomed: list[Doomed] = []
    for run, lane in pick(partition.lanes, limit, refuse):
        if command.below is not None and run[1] > command.below:
            run = (run[0], command.below)
            if run[0] >= run[1]:
                continue
        if partition.retries:
            _grant_one_by_one(partition, run, lane, wall_ms, grants, doomed)
        else:
            grants.append(Grant(run[0], run[1], 1, wall_ms, lane))
    visibility_ms = config.visibility_ms if command.visibility_ms is None else command.visibility_ms
    draft = QueueDraft(partition, wall_ms)
    if doomed:
        draft.kill(doomed, DeathReason.MAX_DELIVERIES)
    if grants and config.journaled_leases:
        draft.lease_durably(tuple(grants), visibility_ms, command.owner)
    elif grants:
        epoch = partition.lease_epoch
        draft.do(Leased(partition.source, tuple(grants), visibility_ms, epoch, command.owner))
    if partition.indexed_end < partition.end_offset:
        draft.effects += _read_ahead(partition)
    runs = tuple([Delivered(*grant[:4]) for grant in grants])
    return draft.plan(command, ReceivedRuns(runs, partition.lease_epoch, visibility_ms))


def _grant_one_by_one(
    partition: SourceState, run: Range, lane: int, wall_ms: int, grants: list[Grant], doomed: list[Doomed]
) -> None:
    """Some may have been delivered before. A limit that was lowered since, or a reload, can find worn out ones here."""
    limit = partition.config.max_deliveries
    for offset in range(*run):
        retry = partition.retries.get(offset)
        if retry is None:
            grant = Grant(offset, offset + 1, 1, wall_ms, lane)
        elif limit and retry.deliveries >= limit:
            doomed.append(Doomed(offset, retry.deliveries))
            continue
        else:
            grant = Grant(offset, offset + 1, retry.deliveries + 1, retry.first_received_ms, lane)
        last = grants[-1] if grants else None
        if last is not None and last.end == offset and last[2:] == grant[2:]:
            grants[-1] = last._replace(end=offset + 1)
        else:
            grants.append(grant)


def _read_ahead(partition: SourceState) -> list[ReadAhead]:
    """When half of the window is used up, ask for more."""
    if (
        partition.indexed_end >= partition.end_offset
        or partition.lanes.ready_count * 2 > partition.config.window
    ):
        return []
    return [ReadAhead(partition.source)]


def apply_leased(board: Board, partition: SourceState, fact: Leased | LeasedDurably, now_ms: int) -> None:
    leases, retries, lanes = partition.leases, partition.retries, partition.lanes
    for first, end, delivery, first_received_ms, lane_id in fact.grants:
        # Replayed: nobody knows the lanes yet, and neighbours may be of different ones. One lease for each.
        step = end - first if lane_id != NO_LANE else 1
        for low in range(first, end, step):
            lease = Lease(
                low, low + step, step, delivery, epoch=fact.epoch, owner=fact.owner, lane=lane_id, now_ms=now_ms,
                visibility_ms=fact.visibility_ms, received_ms=now_ms, first_received_ms=first_received_ms,
                durable=fact.durable,
            )  # fmt: skip
            for offset in range(low, low + step):
                leases[offset] = lease
            partition.deadlines.push(lease)
        if retries:
            for offset in range(first, end):
                retry = retries.pop(offset, None)
                if retry is not None and retry.held:  # only in a replay, where nobody wakes the resting
                    retry.held = 0
                    partition.resting -= 1
        if lane_id != NO_LANE:
            lanes.lease(lanes.by_id[lane_id], first, end)
