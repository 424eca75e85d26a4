"""Machine: the queue shard. One journal partition; many queues, each over many data partitions.

Clocks (R58): `now_ms` is monotonic and is what leases and rests are measured with. Due times and expiry are wall clock;
the shard takes the wall clock to be `now_ms + wall_offset_ms`, where the offset is given when the shard is made and
by `SetClock`. A driver that never says SetClock has delays that no jump of the wall clock can shorten; one that says it now
and then follows corrections of the clock.

A driver: calls `expire` when `next_deadline() <= now_ms`, before it decides anything else; after `loaded`, sends
DataAvailable for each of `sources()`; reads `wanted(source)` when the effect ReadAhead asks for it; and gives each load of the
shard a `lease_epoch` that is larger than all before (the journal partition's leader epoch, if a leader never loads twice).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, get_args

from headrace.core.plan import AnyCommand, JournalRecord, Plan
from headrace.queues import (
    ack,
    commands,
    configure,
    dead,
    describe,
    draft,
    end_rest,
    expire,
    extend,
    facts,
    intake,
    owed,
    purge,
    receive,
    release,
    schedules,
    share,
)
from headrace.queues.board import Board
from headrace.queues.commands import (
    Counts,
    Lock,
    MessageGroup,
    MessageStatus,
    MoveToDeadLetter,
    QueuePlan,
    Source,
    WantedRecords,
)
from headrace.queues.config import QueueConfig
from headrace.queues.invariants import check_board
from headrace.queues.journal import encode_fact
from headrace.queues.replay import QueueReplay, restart_clocks
from headrace.queues.state import SourceState

_DECIDE: dict[type, Callable[[Board, Any, int], QueuePlan]] = {
    commands.Receive: receive.decide_receive,
    commands.Ack: ack.decide_ack,
    commands.DataAvailable: intake.decide_data_available,
    commands.Release: release.decide_release,
    commands.Extend: extend.decide_extend,
    commands.RejectMessages: dead.decide_reject,
    commands.Acknowledge: share.decide_acknowledge,
    commands.ReleaseOwner: release.decide_release_owner,
    commands.EndRest: end_rest.decide_end_rest,
    commands.DeadLettersWritten: dead.decide_moved,
    commands.Released: schedules.decide_released,
    commands.MoveFailed: dead.decide_move_failed,
    commands.FindDuplicate: intake.decide_find_duplicate,
    commands.Purge: purge.decide_purge,
    commands.SeekSource: purge.decide_seek,
    commands.Open: purge.decide_open,
    commands.Close: purge.decide_close,
    commands.Configure: configure.decide_configure,
    commands.Pause: configure.decide_pause,
    commands.RemoveQueue: configure.decide_remove_queue,
    commands.SetClock: configure.decide_set_clock,
    commands.ListSchedules: schedules.decide_list_schedules,
    commands.MoveSchedule: schedules.decide_move_schedule,
    commands.CancelSchedule: schedules.decide_cancel_schedule,
    commands.Describe: describe.decide_describe,
    commands.Holding: describe.decide_holding,
    commands.HeldGroups: describe.decide_held_groups,
    commands.Peek: describe.decide_peek,
    commands.Inspect: describe.decide_inspect,
}

_APPLY: dict[type, Callable[[Board, SourceState, Any, int], None]] = {
    facts.Leased: receive.apply_leased,
    facts.LeasedDurably: receive.apply_leased,
    facts.Settled: ack.apply_settled,
    facts.Indexed: intake.apply_indexed,
    facts.Deduplicated: intake.apply_deduplicated,
    facts.Returned: release.apply_returned,
    facts.Extended: extend.apply_extended,
    facts.ExtendedDurably: extend.apply_extended,
    facts.Died: dead.apply_died,
    facts.MoveDeferred: dead.apply_move_deferred,
    facts.MoveRequested: dead.apply_move_requested,
    facts.Promoted: schedules.apply_promoted,
    facts.Rescheduled: schedules.apply_rescheduled,
    facts.RestEnded: end_rest.apply_rest_ended,
    facts.Rearmed: expire.apply_rearmed,
    facts.Positioned: purge.apply_positioned,
    facts.Purged: purge.apply_purged,
    facts.Checkpointed: draft.apply_checkpointed,
}

_DELTAS = frozenset(get_args(facts.Delta))
MAX_ASKED = 100


class QueueShard:
    __slots__ = ("_board", "_replay")

    def __init__(self, *, lease_epoch: int, wall_offset_ms: int) -> None:
        self._board = Board(lease_epoch, wall_offset_ms)
        self._replay = QueueReplay()

    # --- core.plan.Machine ---------------------------------------------------------------------------------------

    def decide(self, command: AnyCommand, now_ms: int) -> QueuePlan:
        return _DECIDE[type(command)](self._board, command, now_ms)

    def apply(self, fact: Any, now_ms: int) -> None:
        board = self._board
        change = _APPLY.get(type(fact))
        if change is None:
            configure.apply_to_board(board, fact, now_ms)
            return
        partition = board.partitions.get(fact.source)
        if partition is None:
            if not isinstance(fact, facts.Positioned):
                return
            partition = board.open(fact.source)
        change(board, partition, fact, now_ms)
        if type(fact) in _DELTAS:
            at = partition.checkpoint
            at.seq = fact.seq
            at.slots = max(at.slots, fact.slot + 1)
        board.arm(partition)

    encode = staticmethod(encode_fact)

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        """Records become state in `loaded`: see replay.py."""
        self._replay.collect(record)

    def loaded(self, now_ms: int) -> QueuePlan:
        effects: list[MoveToDeadLetter] = []
        for partition, deltas in self._replay.finish(self._board):
            for delta in deltas:
                self.apply(delta, now_ms)
            partition.begin_reading()
            restart_clocks(partition, now_ms)
            self._board.rearm(partition)
            effects += dead.requests(partition, partition.dying.values())
        self._replay = QueueReplay()
        return Plan(effects=effects)

    def next_deadline(self) -> int | None:
        alarms = self._board.alarms
        return alarms[0][0] if alarms else None

    def expire(self, now_ms: int) -> QueuePlan:
        return expire.decide_expire(self._board, now_ms)

    # --- questions of the driver -----------------------------------------------------------------------------------

    def sources(self) -> list[Source]:
        return list(self._board.partitions)

    def config(self, queue: str) -> QueueConfig | None:
        held = self._board.queues.get(queue)
        return None if held is None else held.config

    def done_offset(self, source: Source) -> int | None:
        """Everything before this is done, so the log may drop it as far as this queue is concerned
        (`retention=delivered`: the smallest over all subscriptions). None when the source is not open here. To be
        asked when the facts planned so far are committed."""
        partition = self._board.partitions.get(source)
        return None if partition is None else partition.start_offset

    def owed_from(self, now_ms: int, retention_ms: int) -> int | None:
        """The first offset that some queue still owes somebody; None when nobody reads anything here. As far as it has been
        looked at: the backlog behind the window goes by its age."""
        wall_ms = now_ms + self._board.wall_offset_ms
        partitions = self._board.partitions.values()
        return min((owed.owed_from(one, wall_ms, retention_ms) for one in partitions), default=None)

    def wanted(self, source: Source, log_end: int = 0) -> WantedRecords | None:
        partition = self._board.partitions.get(source)
        return None if partition is None else intake.wanted(partition, log_end)

    def knows(self, source: Source, start: int, end: int) -> bool:
        """Whether there is nothing to be told: the log is known from its start to its end."""
        partition = self._board.partitions.get(source)
        return partition is not None and partition.start_offset >= start and partition.indexed_end >= end

    def holds(self, source: Source, group: bytes) -> bool:
        """Whether there is something of a message group among what has been looked at. If so, that is certain; if not,
        only an answer to `Holding` is, since what is done here may not be committed yet."""
        partition = self._board.partitions.get(source)
        return partition is not None and partition.lanes.holds(group)

    def is_done(self, source: Source, offset: int) -> bool:
        """Whether a message that is there needs nobody any more."""
        partition = self._board.partitions.get(source)
        return partition is not None and partition.is_done(offset)

    def is_moving(self, source: Source) -> bool:
        """Whether a dead letter is on its way, and not waiting for another attempt. The latest deaths tell: those before them
        were asked for before them."""
        partition = self._board.partitions.get(source)
        if partition is None or not partition.dying:
            return False
        latest = islice(reversed(partition.dying.values()), MAX_ASKED)
        return any(not dying.held for dying in latest)

    def counts(self, source: Source) -> Counts | None:
        partition = self._board.partitions.get(source)
        return (
            None if partition is None else describe.counts(partition, self._board.queues[source.queue].paused)
        )

    def locks(self, source: Source, limit: int) -> list[Lock]:
        partition = self._board.partitions.get(source)
        return [] if partition is None else describe.locks(partition, limit)

    def groups(self, source: Source, limit: int) -> list[MessageGroup]:
        """Of a FIFO queue."""
        partition = self._board.partitions.get(source)
        return [] if partition is None or not partition.lanes.fifo else describe.groups(partition, limit)

    def status(self, source: Source, offset: int) -> MessageStatus | None:
        partition = self._board.partitions.get(source)
        return None if partition is None else describe.status(partition, offset)

    def invariants(self) -> None:
        check_board(self._board)
