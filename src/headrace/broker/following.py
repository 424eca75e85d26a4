"""Driver: one replica as a follower: carries out what the pure Follower machine decides about the leader's answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.log.partition_log import PartitionLog
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
    OutOfRange,
    RefreshMetadata,
    RestartAt,
    SetHighWatermark,
    Synced,
    Truncated,
    TruncateTo,
)

log = logging.getLogger(__name__)


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

    def follow(self, leader: int, leader_epoch: int, unclean_epoch: int) -> None:
        self._step(LeaderChanged(leader, leader_epoch, unclean_epoch))

    # -- the fetch -----------------------------------------------------------------------------------------------

    def next_fetch(self) -> FetchPlan | None:
        return self._machine.next_fetch()

    def sync_pending(self) -> asyncio.Future[None] | None:
        """Done once what was appended last is durable; None when nothing waits for a sync."""
        if not self._machine.waits_for_sync or self._log.durable_end >= self._log.end_offset:
            return None
        if self._sync_done is None or self._sync_done.done():
            self._sync_done = asyncio.get_running_loop().create_future()
        return self._sync_done

    def durable(self) -> None:
        self._step(Synced(self._log.durable_end))
        if (
            self._sync_done is not None
            and not self._sync_done.done()
            and self._log.durable_end >= self._log.end_offset
        ):
            self._sync_done.set_result(None)

    def fetched(self, plan: FetchPlan, records: memoryview, high_watermark: int, log_start: int) -> None:
        self._records = records
        self._step(Fetched(plan, bool(records), high_watermark, log_start))
        self._records = memoryview(b"")

    def diverging(self, plan: FetchPlan, epoch: int, end_offset: int) -> None:
        self._step(Diverged(plan, epoch, end_offset))

    def out_of_range(self, plan: FetchPlan, log_start: int) -> None:
        self._step(OutOfRange(plan, log_start))

    def failed(self, plan: FetchPlan, kind: ErrorKind) -> None:
        self._step(FetchFailed(plan, kind))

    # -- effects -------------------------------------------------------------------------------------------------

    def _step(self, event: object) -> None:
        todo: list[FollowerEffect] = list(self._machine.step(event))  # type: ignore[arg-type]
        try:
            while todo:
                todo += self._carry_out(todo.pop(0))
        except OSError as problem:
            # S7: half of it may have happened; only a restart with a scan tells what is there.
            log.critical("%s goes offline: %s", self._tp, problem)
            self._go_offline(str(problem))

    def _carry_out(self, effect: FollowerEffect) -> list[FollowerEffect]:
        match effect:
            case AppendRecords():
                return self._append()
            case SetHighWatermark(offset):
                self._set_high_watermark(offset)
            case AdvanceLogStart(offset):
                self._log.advance_start(offset, StartReason.LEADER_START)
            case TruncateTo(offset):
                log.warning("%s: truncating from %d to %d", self._tp, self._log.end_offset, offset)
                self._log.truncate(offset)
                return self._machine.step(Truncated(self._log.end_offset, _last_epoch(self._log)))
            case RestartAt(offset):
                log.warning("%s: starting over at the leader's first offset %d", self._tp, offset)
                self._log.truncate_fully_and_start_at(offset)
                return self._machine.step(Truncated(self._log.end_offset, _last_epoch(self._log)))
            case GoOffline(reason):
                log.critical("%s goes offline, its bytes are kept: %s", self._tp, reason)
                self._go_offline(reason)
            case RefreshMetadata():
                pass  # the image follows the coordinator by itself; the replicator pauses before it asks again
        return []

    def _append(self) -> list[FollowerEffect]:
        before = self._log.end_offset
        try:
            result = self._log.append_replicated(self._records, self._runtime.clock.wall_ms())
        except LogCorrupt as problem:
            result = Rejected(ErrorKind.KAFKA_STORAGE_ERROR, str(problem))
        if isinstance(result, Rejected):
            log.error("%s: what the leader sent was not taken: %s", self._tp, result.detail)
            if self._log.failed is not None:
                self._go_offline(self._log.failed)
                return []
        if self._log.end_offset > before:
            self._request_flush(len(self._records))
        # Also when nothing was taken: the machine goes on from where the log really ends.
        return self._machine.step(Appended(self._log.end_offset, _last_epoch(self._log)))


def _last_epoch(partition_log: PartitionLog) -> int:
    """The epoch of the last batch; -1 in an empty log, whatever epochs have begun without writing."""
    if partition_log.end_offset <= partition_log.start_offset:
        return -1
    return partition_log.epochs.epoch_at(partition_log.end_offset - 1)
