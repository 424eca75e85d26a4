"""Machine: the delivery state of one partition as one queue reads it.

Offsets fall into ranges, and only exceptions cost memory:

    0 ........ start_offset ................................ indexed_end ....... end_offset
    all done   | `done` ranges, `leases`, `retries`, `dying`, | in the log, not    |
               | `schedule`; all the others are ready, in      | looked at yet      |
               | the ranges of their lane                      | (available)        |

A plain queue has indexed_end == end_offset at all times. An indexed one (FIFO, priority, delay, ...) is fed by the
driver, in offset order, as far as its window allows.

Invariant: a message is in exactly one of done, leased, resting, scheduled, dying and ready (`invariants.py`); it is never
under two leases, and what is done is never handed out again unless an operator seeks back. After a reload the
exceptions are known before the log is read again; they carry NO_LANE until `adopt` sorts them in.

Only `apply` functions call the methods here that change something.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.queues.commands import Source
from headrace.queues.config import QueueConfig
from headrace.queues.deadlines import Dying, Holder, Lease, QueueDeadlines, RetryEntry
from headrace.queues.dedup import DedupIndex
from headrace.queues.delay import Timetable
from headrace.queues.dues import Dues
from headrace.queues.facts import NO_LANE
from headrace.queues.lanes import Lane, Lanes
from headrace.queues.ranges import OffsetSet, Range

_GENERATION_BITS = 20


class SourceState:
    __slots__ = (
        "alarm_ms",
        "checkpoint",
        "config",
        "deadlines",
        "dedup",
        "done",
        "dues",
        "dying",
        "end_offset",
        "expiries",
        "indexed_end",
        "known_from_journal",
        "lanes",
        "lease_epoch",
        "leases",
        "moved",
        "purged_ms",
        "resting",
        "retries",
        "schedule",
        "source",
        "start_offset",
    )  # fmt: skip

    def __init__(self, source: Source, config: QueueConfig, lease_epoch: int) -> None:
        self.source = source
        self.config = config
        self.lease_epoch = lease_epoch << _GENERATION_BITS
        """Goes into receipts. Grows with every load of the shard and with every seek."""
        self.start_offset = 0
        self.end_offset = 0
        self.indexed_end = 0
        self.done = OffsetSet()
        self.lanes = Lanes(config)
        self.leases: dict[int, Lease] = {}
        self.retries: dict[int, RetryEntry] = {}
        self.resting = 0
        """How many of `retries` wait for their time; the others are ready."""
        self.dying: dict[int, Dying] = {}
        self.schedule = Timetable()
        self.dues = Dues()
        """What was scheduled and fell due."""
        self.expiries = Timetable()
        self.moved: dict[int, int] = {}
        """Due times that were changed after the message was written; the log knows only the old ones."""
        self.dedup = DedupIndex()
        self.deadlines = QueueDeadlines()
        self.alarm_ms: int | None = None
        self.known_from_journal = 0
        """Below this there may be exceptions that were replayed and have no lane yet."""
        self.purged_ms: int | None = None
        self.checkpoint = CheckpointPosition()

    # --- questions -----------------------------------------------------------------------------------------------

    def is_done(self, offset: int) -> bool:
        return offset < self.start_offset or offset in self.done

    def is_expired(self, offset: int, wall_ms: int) -> bool:
        if not self.expiries.count:
            return False
        expires_ms = self.expiries.time_of(offset)
        return expires_ms is not None and expires_ms <= wall_ms

    def next_deadline(self, wall_offset_ms: int) -> int | None:
        """On the monotonic clock. Never too late; too early only after something was let go of before its time."""
        heap = self.deadlines.heap
        at = heap[0][0] if heap else None
        for timetable in (self.schedule, self.expiries):
            wall_ms = timetable.head_ms() if timetable.count else None
            if wall_ms is not None and (at is None or wall_ms - wall_offset_ms < at):
                at = wall_ms - wall_offset_ms
        return at

    # --- changes -------------------------------------------------------------------------------------------------

    def settle(self, ranges: Iterable[Range]) -> None:
        """These are done, whatever they were."""
        for first, end in ranges:
            first = max(first, self.start_offset)
            if first >= end:
                continue
            self._take_out_range(first, end)
            if first == self.start_offset:
                self.start_offset = end
            else:
                self.done.add(first, end)
        if self.done.count or self.indexed_end < self.start_offset:
            self._absorb_done()
        self.deadlines.tidy()

    def skip(self, first: int, end: int) -> None:
        """[first, end), which is not indexed yet, holds nothing for this queue. Not journaled: it is read again."""
        for offset in self.exceptions_between(first, end):
            self.take_out(offset)
        if first <= self.start_offset:
            self.start_offset = max(self.start_offset, end)
            self.done.discard(first, end)
        else:
            self.done.add(first, end)
        self._absorb_done()

    def take_out(self, offset: int) -> None:
        """Out of whatever state it is in, on its way to another that has no lane."""
        lease = self.leases.pop(offset, None)
        if lease is not None:
            self.let_go(lease, 1)
        elif (retry := self.retries.pop(offset, None)) is not None:
            self._let_go_of_retry(retry)
        elif (dying := self.dying.pop(offset, None)) is not None:
            dying.held = 0
        elif (lane_id := self.schedule.remove(offset)) is not None:
            lane = self.lanes.by_id[lane_id]
            lane.scheduled -= 1
            self.lanes.refresh(lane)
        elif offset < self.indexed_end:
            lane_id = self.expiries.lane_of(offset)
            lane = self.lanes.main if lane_id is None else self.lanes.by_id[lane_id]
            self.lanes.take(lane, offset, offset + 1)
            self.lanes.refresh(lane)
        if self.expiries.count:
            self.expiries.remove(offset)
        if self.moved:
            self.moved.pop(offset, None)

    def let_go(self, lease: Lease, count: int) -> None:
        lease.held -= count
        if lease.lane != NO_LANE:
            lane = self.lanes.by_id[lease.lane]
            lane.in_flight -= count
            self.lanes.refresh(lane)

    def rest(self, retry: RetryEntry) -> None:
        """Delivered before and now given back: available, or resting first."""
        self.retries[retry.offset] = retry
        if retry.held:
            self.resting += 1
            self.deadlines.push(retry)
        if retry.lane != NO_LANE:
            self._sort_in(retry, self.lanes.by_id[retry.lane])

    def wake(self, retry: RetryEntry) -> None:
        """It has rested enough."""
        retry.held = 0
        retry.delay_ms = 0
        self.resting -= 1
        if retry.lane != NO_LANE:
            lane = self.lanes.by_id[retry.lane]
            lane.resting -= 1
            self.lanes.put(lane, retry.offset, retry.offset + 1)

    def adopt(self, offset: int, lane: Lane) -> bool:
        """Give an exception that was replayed its lane. False when `offset` is none."""
        lease = self.leases.get(offset)
        if lease is not None:
            lease.lane = lane.id
            lane.in_flight += 1
            self.lanes.refresh(lane)
            return True
        retry = self.retries.get(offset)
        if retry is not None:
            retry.lane = lane.id
            self._sort_in(retry, lane)
            return True
        return offset in self.dying

    def advance_to(self, offset: int) -> None:
        """Everything before `offset` is done: purged, or deleted from the log."""
        if offset <= self.start_offset:
            return
        for exceptions in (self.leases, self.retries, self.dying, self.moved):
            for known in [known for known in exceptions if known < offset]:
                self.take_out(known)
        if offset >= self.indexed_end:
            self._forget_what_is_indexed()
            self.indexed_end = offset
        else:
            for entry in [*self.schedule.entries_below(offset), *self.expiries.entries_below(offset)]:
                self.take_out(entry.offset)
            for lane in self.lanes.all():
                self.lanes.take(lane, 0, offset)
                self.lanes.refresh(lane)
        self.done.discard(0, offset)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._absorb_done()
        self.deadlines.tidy()

    def restart_at(self, offset: int) -> None:
        """Forget everything but the deduplication index and begin again. Receipts from before are void (R56)."""
        holders: list[Holder] = [*self.leases.values(), *self.retries.values(), *self.dying.values()]
        for holder in holders:
            holder.held = 0
        for exceptions in (self.leases, self.retries, self.dying, self.moved):
            exceptions.clear()
        self.resting = 0
        self.done.clear()
        self.deadlines.clear()
        self._forget_what_is_indexed()
        self.start_offset = self.indexed_end = offset
        self.end_offset = max(self.end_offset, offset)
        self.known_from_journal = 0
        self.lease_epoch += 1

    def reshape(self, config: QueueConfig, now_ms: int) -> None:
        """The queue has other features now, so the log has to be read and sorted again."""
        leases = dict(self.leases)
        for offset, lease in leases.items():
            # One lease per message: neighbours may end up in different lanes.
            lease.held -= 1
            alone = Lease(
                offset, offset + 1, 1, lease.delivery, epoch=lease.epoch, owner=lease.owner, lane=NO_LANE,
                now_ms=now_ms, visibility_ms=max(lease.deadline_ms - now_ms, 0), received_ms=lease.received_ms,
                first_received_ms=lease.first_received_ms, durable=lease.durable,
            )  # fmt: skip
            alone.visibility_ms = lease.visibility_ms
            self.leases[offset] = alone
            self.deadlines.push(alone)
        for retry in self.retries.values():
            retry.lane = NO_LANE
        self.config = config
        self._forget_what_is_indexed()
        self.indexed_end = self.start_offset
        self._note_exceptions()

    def begin_reading(self) -> None:
        """After a replay: the exceptions are known, the log is not."""
        self._forget_what_is_indexed()
        self.indexed_end = self.end_offset = self.start_offset
        self._note_exceptions()

    def _note_exceptions(self) -> None:
        """Remember how far there are exceptions without a lane."""
        self.known_from_journal = 1 + max(
            max(exceptions, default=-1) for exceptions in (self.leases, self.retries, self.dying)
        )

    def exceptions_between(self, first: int, end: int) -> Iterable[int]:
        if first >= self.known_from_journal:
            return ()
        known = {o for held in (self.leases, self.retries, self.dying) for o in held if first <= o < end}
        return sorted(known)

    def _sort_in(self, retry: RetryEntry, lane: Lane) -> None:
        if retry.held:
            lane.resting += 1
            self.lanes.refresh(lane)
        else:
            self.lanes.put(lane, retry.offset, retry.offset + 1)

    def _let_go_of_retry(self, retry: RetryEntry) -> None:
        rested, retry.held = not retry.held, 0
        if not rested:
            self.resting -= 1
        if retry.lane == NO_LANE:
            return
        lane = self.lanes.by_id[retry.lane]
        if rested:
            self.lanes.take(lane, retry.offset, retry.offset + 1)
        else:
            lane.resting -= 1
        self.lanes.refresh(lane)

    def _take_out_range(self, first: int, end: int) -> None:
        """As take_out, for the acknowledgement of a batch: mostly neighbours under one lease."""
        leases = self.leases
        simple = not self.expiries.count and not self.moved
        lease: Lease | None = None
        count = 0
        for offset in range(first, end):
            held = leases.get(offset) if simple else None
            if held is None:
                self.take_out(offset)
                continue
            del leases[offset]
            if held is not lease:
                if lease is not None:
                    self.let_go(lease, count)
                lease, count = held, 0
            count += 1
        if lease is not None:
            self.let_go(lease, count)

    def _absorb_done(self) -> None:
        end = self.done.run_from(self.start_offset) if self.done.count else None
        if end is not None:
            self.done.discard(self.start_offset, end)
            self.start_offset = end
        if self.indexed_end < self.start_offset:
            self.indexed_end = self.start_offset

    def _forget_what_is_indexed(self) -> None:
        self.lanes = Lanes(self.config)
        self.schedule.clear()
        self.dues.clear()
        self.expiries.clear()
        for lease in self.leases.values():
            lease.lane = NO_LANE
        for retry in self.retries.values():
            retry.lane = NO_LANE


class CheckpointPosition:
    """How a source's journal stands: see journal.py."""

    __slots__ = ("base_seq", "bytes", "parts", "seq", "side", "slots")

    def __init__(self) -> None:
        self.seq = 0
        self.base_seq = 0
        self.side = 0
        self.parts = [0, 0]
        self.slots = 0
        self.bytes = 0
