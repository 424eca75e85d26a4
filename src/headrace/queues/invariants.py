"""Machine: what must be true of a queue shard after every fact. For tests and simulation: it looks at everything.

Every message is in exactly one state; nobody holds what is done; no message is under two leases (an offset maps to one,
and each lease counts what it holds); lanes add up; an alarm is set no later than it has to be.
"""

from __future__ import annotations

from collections import Counter

from headrace.queues.board import Board
from headrace.queues.facts import NO_LANE
from headrace.queues.lanes import MAIN
from headrace.queues.state import SourceState


def check_board(board: Board) -> None:
    for source, partition in board.partitions.items():
        assert source in board.queues[source.queue].sources
        check_partition(partition)
        at = partition.next_deadline(board.wall_offset_ms)
        assert at is None or (partition.alarm_ms is not None and partition.alarm_ms <= at), "no alarm is set"
        if partition.alarm_ms is not None:
            head = board.next_alarm()
            assert head is not None and head <= partition.alarm_ms, "an alarm was lost"


def check_partition(partition: SourceState) -> None:
    p = partition
    assert p.start_offset <= p.indexed_end <= p.end_offset
    assert p.start_offset not in p.done, "the start is done, so it is not the start"
    first_done = p.done.first()
    assert first_done is None or first_done > p.start_offset
    _check_exceptions(p)
    _check_one_state_each(p)
    _check_leases(p)
    _check_lanes(p)


def _check_exceptions(p: SourceState) -> None:
    known = [*p.leases, *p.retries, *p.dying]
    assert len(known) == len(set(known)), "a message is in two states"
    for offset in known:
        assert not p.is_done(offset), f"{offset} is done and is held as well"
    resting = [retry for retry in p.retries.values() if retry.held]
    assert p.resting == len(resting)
    assert all(retry.offset == offset for offset, retry in p.retries.items())


def _check_one_state_each(p: SourceState) -> None:
    """The states add up to the range, and no two of them share an offset: so each offset is in exactly one."""
    end = p.indexed_end
    resting = {offset for offset, retry in p.retries.items() if retry.held and offset < end}
    held = {o for o in p.leases if o < end} | {o for o in p.dying if o < end} | resting
    ready = 0
    for lane in p.lanes.all():
        for first, stop in lane.ready.runs():
            assert p.start_offset <= first and stop <= end
            ready += stop - first
            for other in p.lanes.all():
                assert other is lane or not any(offset in other.ready for offset in (first, stop - 1))
            assert not any(first <= offset < stop for offset in held), "a message is held and ready"
            assert not any(not (high <= first or stop <= low) for low, high in p.done.runs()), (
                "done and ready"
            )
    scheduled = [offset for offset, _ in p.schedule.items(0, p.schedule.count)]
    assert len(scheduled) == p.schedule.count
    for offset in scheduled:
        assert p.start_offset <= offset < end and offset not in held and not p.is_done(offset)
        assert offset not in p.retries and not any(offset in lane.ready for lane in p.lanes.all())
    done = sum(min(high, end) - low for low, high in p.done.runs() if low < end)
    assert done + len(held) + len(scheduled) + ready == end - p.start_offset, (
        "a message is in no state or in two"
    )
    assert ready == p.lanes.ready_count
    for offset, retry in p.retries.items():
        if retry.lane != NO_LANE and not retry.held:
            assert offset in p.lanes.by_id[retry.lane].ready


def _check_leases(p: SourceState) -> None:
    holding = Counter(id(lease) for lease in p.leases.values())
    for offset, lease in p.leases.items():
        assert lease.first <= offset < lease.end
        assert lease.held == holding[id(lease)]
    heap = p.deadlines.heap
    head = heap[0][0] if heap else None
    waiting = [lease.deadline_ms for lease in p.leases.values()]
    waiting += [retry.deadline_ms for retry in p.retries.values() if retry.held]
    assert not waiting or (head is not None and head <= min(waiting)), "a deadline was lost"


def _check_lanes(p: SourceState) -> None:
    in_flight = Counter(lease.lane for lease in p.leases.values())
    resting = Counter(retry.lane for retry in p.retries.values() if retry.held)
    scheduled = Counter(p.schedule.lane_of(offset) for offset, _ in p.schedule.items(0, p.schedule.count))
    for lane in p.lanes.all():
        assert lane.in_flight == in_flight[lane.id]
        assert lane.resting == resting[lane.id]
        assert lane.scheduled == scheduled[lane.id]
        assert lane.id == MAIN or not lane.unused, "a lane with nothing in it is kept"
        blocked = p.lanes.fifo and (lane.in_flight or lane.resting)
        assert (lane.id in p.lanes.levels[lane.level]) == bool(lane.ready.count and not blocked)
