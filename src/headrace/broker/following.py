"""Driver: one replica as a follower: carries out what the pure Follower machine decides about the leader's answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from headrace.broker.runtime import Runtime
from headrace.broker.supervision import describe
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.log.partition_log import PartitionLog
from headrace.log.parts import FULL_DISK
from headrace.log.results import LogCorrupt, StartReason
from headrace.replication.follower import (
    AdvanceLogStart,
    Appended,
    AppendRecords,
    Diverged,
    Fetched,
    FetchFailed,
    FetchPlan,
    Follower,
    FollowerEffect,
    GoOffline,
    LeaderChanged,
    NotCut,
    OutOfRange,
    RefreshMetadata,
    RestartAt,
    SetHighWatermark,
    Synced,
    Truncated,
    TruncateTo,
)

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 100
"""A partition whose leader has just changed is asked for again soon: this is part of every write gap after a failover."""

LONGEST_PAUSE_MS = 5_000
"""For a replica that can't take what it is sent, as on a full disk: what frees the disk takes longer than a look costs."""

REFUSED_MS = 10_000
"""A leader that refuses us this long is more than one that has just changed."""


class Following:
    """Lives as long as its replica; while the replica leads, it follows nobody."""

    def __init__(
        self,
        tp: TopicPartition,
        partition_log: PartitionLog,
        runtime: Runtime,
        *,
        waits_for_sync: bool,
        request_flush: Callable[[int], None],
        set_high_watermark: Callable[[int], None],
        go_offline: Callable[[str], None],
    ) -> None:
        self._tp = tp
        self._log = partition_log
        self._runtime = runtime
        self._request_flush = request_flush
        self._set_high_watermark = set_high_watermark
        self._go_offline = go_offline
        self._records = memoryview(b"")
        self._sync_done: asyncio.Future[None] | None = None
        self._asks_again_ms = 0
        self._refusals = 0
        self.stuck: str | None = None
        """Why nothing that the leader sends is taken, while that is so."""
        self._refused_since_ms: int | None = None
        self._refused_with = ErrorKind.NONE
        self._machine = self._from_log(partition_log.checkpointed.high_watermark, waits_for_sync)

    def _from_log(self, high_watermark: int, waits_for_sync: bool) -> Follower:
        return Follower(
            self._log.epochs,
            end_offset=self._log.end_offset,
            durable_end=self._log.durable_end,
            last_epoch=_last_epoch(self._log),
            high_watermark=high_watermark,
            log_start_offset=self._log.start_offset,
            waits_for_sync=waits_for_sync,
        )

    def led_until_now(self, high_watermark: int) -> None:
        """The log has grown while we led: go on from where it is, and from what we know to be committed (R20, R24)."""
        before = self._machine
        if not before.offline:
            self._machine = self._from_log(high_watermark, before.waits_for_sync)
            self._machine.leader_epoch = before.leader_epoch

    @property
    def leader(self) -> int:
        return self._machine.leader

    @property
    def high_watermark(self) -> int:
        return self._machine.high_watermark

    @property
    def waits_for_sync(self) -> bool:
        return self._machine.waits_for_sync

    @waits_for_sync.setter
    def waits_for_sync(self, waits: bool) -> None:
        """headrace.flush has changed (F7): whether what we have counts with the leader before it is on our disk."""
        self._machine.waits_for_sync = waits
        self._let_go_when_synced()

    def follow(self, leader: int, leader_epoch: int, unclean_epoch: int) -> None:
        self._asks_again_ms = 0
        self._refused_since_ms = None
        self._step(LeaderChanged(leader, leader_epoch, unclean_epoch))

    # -- the fetch -----------------------------------------------------------------------------------------------

    def next_fetch(self) -> FetchPlan | None:
        """None also while it rests: one replica in trouble must not slow down the others of its leader (F23)."""
        if self._asks_again_ms:
            if self._runtime.clock.now_ms() < self._asks_again_ms:
                return None
            self._asks_again_ms = 0
        return self._machine.next_fetch()

    def _rest(self, pause_ms: int) -> None:
        self._asks_again_ms = self._runtime.clock.now_ms() + pause_ms

    def sync_pending(self) -> asyncio.Future[None] | None:
        """Done once what was appended last is durable; None when nothing waits for a sync."""
        if not self._machine.waits_for_sync or self._log.durable_end >= self._log.end_offset:
            return None
        if self._sync_done is None or self._sync_done.done():
            self._sync_done = asyncio.get_running_loop().create_future()
        return self._sync_done

    def durable(self) -> None:
        self._step(Synced(self._log.durable_end))
        self._let_go_when_synced()

    def _let_go_when_synced(self) -> None:
        waiting = self._sync_done
        if waiting is not None and not waiting.done() and self.sync_pending() is None:
            waiting.set_result(None)

    def fetched(self, plan: FetchPlan, records: memoryview, high_watermark: int, log_start: int) -> None:
        self._records = records
        self._refused_since_ms = None
        self._step(Fetched(plan, bool(records), high_watermark, log_start))
        self._records = memoryview(b"")

    def diverging(self, plan: FetchPlan, epoch: int, end_offset: int) -> None:
        self._rest(FIRST_PAUSE_MS)
        self._step(Diverged(plan, epoch, end_offset))

    def out_of_range(self, plan: FetchPlan, log_start: int) -> None:
        self._rest(FIRST_PAUSE_MS)
        self._step(OutOfRange(plan, log_start))

    def failed(self, plan: FetchPlan, kind: ErrorKind) -> None:
        self._rest(FIRST_PAUSE_MS)
        if self._refused_since_ms is None:
            self._refused_since_ms = self._runtime.clock.now_ms()
        self._refused_with = kind
        self._step(FetchFailed(plan, kind))

    def trouble(self) -> str | None:
        """Why this replica falls behind, for a health check; a change of leader is none."""
        if self.stuck is not None:
            return self.stuck
        since_ms = self._refused_since_ms
        if since_ms is None or self._runtime.clock.now_ms() - since_ms < REFUSED_MS:
            return None
        return f"its leader answers {self._refused_with.name}"

    # -- effects -------------------------------------------------------------------------------------------------

    def _step(self, event: object) -> None:
        """Whatever goes wrong here is this replica's own trouble: it ends neither the fetcher, which serves every partition
        of its leader, nor group commit (F17)."""
        try:
            todo: list[FollowerEffect] = list(self._machine.step(event))  # type: ignore[arg-type]
            while todo:
                todo += self._carry_out(todo.pop(0))
        except (OSError, LogCorrupt) as problem:
            # S7: half of it may have happened; only a restart with a scan tells what is there.
            log.critical("%s goes offline: %s", self._tp, problem)
            self._go_offline(str(problem))
        except Exception as problem:
            self._runtime.unexpected("follower", problem, str(self._tp))
            self._go_offline(describe(problem))

    def _carry_out(self, effect: FollowerEffect) -> list[FollowerEffect]:
        match effect:
            case AppendRecords():
                return self._append()
            case SetHighWatermark(offset):
                self._set_high_watermark(offset)
            case AdvanceLogStart(offset):
                if self._log.advance_start(offset, StartReason.LEADER_START):
                    self._set_high_watermark(
                        self._machine.high_watermark
                    )  # who counts what is in it looks again
            case TruncateTo(offset):
                log.warning("%s: truncating from %d to %d", self._tp, self._log.end_offset, offset)
                return self._cut(partial(self._log.truncate, offset))
            case RestartAt(offset):
                log.warning("%s: starting over at the leader's first offset %d", self._tp, offset)
                return self._cut(partial(self._log.truncate_fully_and_start_at, offset))
            case GoOffline(reason):
                log.critical("%s goes offline, its bytes are kept: %s", self._tp, reason)
                self._go_offline(reason)
            case RefreshMetadata():
                pass  # the image follows the coordinator by itself; the replicator pauses before it asks again
        return []

    def _cut(self, cut: Callable[[], object]) -> list[FollowerEffect]:
        try:
            cut()
        except OSError as problem:
            if self._log.failed is not None or problem.errno not in FULL_DISK:
                raise
            # The disk was too full to begin. The next answer of the leader says the same again.
            self._not_taken(f"the disk is full: {problem}")
            return self._machine.step(NotCut())
        self._taken()
        return self._machine.step(Truncated(self._log.end_offset, _last_epoch(self._log)))

    def _append(self) -> list[FollowerEffect]:
        before = self._log.end_offset
        try:
            result = self._log.append_replicated(self._records, self._runtime.clock.wall_ms())
        except LogCorrupt as problem:
            result = Rejected(ErrorKind.KAFKA_STORAGE_ERROR, str(problem))
        if isinstance(result, Rejected):
            if self._log.failed is not None:
                log.critical("%s goes offline: %s", self._tp, self._log.failed)
                self._go_offline(self._log.failed)
                return []
            self._not_taken(result.detail)
        else:
            self._taken()
        if self._log.end_offset > before:
            self._request_flush(len(self._records))
        # Also when nothing was taken: the machine goes on from where the log really ends.
        return self._machine.step(Appended(self._log.end_offset, _last_epoch(self._log)))

    def _taken(self) -> None:
        if self.stuck is not None:
            log.warning("%s: what the leader sends is taken again", self._tp)
            self.stuck, self._refusals = None, 0

    def _not_taken(self, reason: str) -> None:
        """One line when it begins and one when it ends; in between a look now and then (F23)."""
        if self.stuck is None:
            log.error(
                "%s: what the leader sends is not taken, trying again every few seconds: %s", self._tp, reason
            )
        self.stuck = reason
        self._rest(min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(self._refusals, 10)))
        self._refusals += 1


def _last_epoch(partition_log: PartitionLog) -> int:
    """The epoch of the last batch; -1 in an empty log, whatever epochs have begun without writing."""
    if partition_log.end_offset <= partition_log.start_offset:
        return -1
    return partition_log.epochs.epoch_at(partition_log.end_offset - 1)
