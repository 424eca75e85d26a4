"""Driver: what has to happen now and then: timeouts, rolls, retention, checkpoints, compaction, forgetting producers.

Nothing here is on anybody's path: it works in small steps and gives the loop away between them. What stands still costs nothing but a
glance at each cleaning pass (Watchlist).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from headrace.broker.groups import Groups
from headrace.broker.pacing import Pace
from headrace.broker.partition import Partition
from headrace.broker.queueing.local.local_queues import LocalQueues
from headrace.broker.replicas import Replicas
from headrace.broker.runtime import Runtime
from headrace.cluster.broker_configs import CLEANER_BYTES_PER_SECOND, PRODUCER_ID_EXPIRATION_MS
from headrace.cluster.image import ClusterImage
from headrace.log.parts import FULL_DISK
from headrace.log.results import LogCorrupt

log = logging.getLogger(__name__)

TICK_MS = 200
LEADER_TICK_MS = 1_000
CHECKPOINT_MS = 5_000
CLEAN_MS = 30_000
SCRUB_BYTES = 1024 * 1024
"""Of each partition per round: about three gigabytes a day."""
SCRUB_AGAIN_MS = 300_000
"""Between two readings of the whole log, where that is short."""
STALL_MS = 2_000
LAG_WINDOW_MS = 10_000


class Housekeeping:
    def __init__(
        self,
        runtime: Runtime,
        replicas: Replicas,
        image: ClusterImage,
        groups: Groups,
        queues: LocalQueues,
        lease_held: Callable[[], bool],
        clean_ms: int = CLEAN_MS,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._image = image
        self._groups = groups
        self._queues = queues
        self._lease_held = lease_held
        self._due = {"leaders": 0, "checkpoint": CHECKPOINT_MS, "clean": clean_ms}
        self._clean_ms = clean_ms
        self._expiration_ms = 0
        self._started_ms = runtime.clock.now_ms()
        self._lags = (0, 0)
        """In the last half of a window, and in this one."""
        self._lag_since_ms = self._started_ms

    async def watch_the_clock(self) -> None:
        """Quick things, on time: produce timeouts, the lease, slow followers."""
        last_ms = self._runtime.clock.now_ms()
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            now_ms = self._runtime.clock.now_ms()
            stalled = now_ms - last_ms > STALL_MS
            self._note_lag(max(0, now_ms - last_ms - TICK_MS), now_ms)
            if stalled:
                log.warning("the event loop stood still for %d ms", now_ms - last_ms)
            last_ms = now_ms
            self._replicas.room.look()
            self._replicas.watchlist.overdue(now_ms)
            if stalled or self._is_due("leaders", LEADER_TICK_MS):
                await self._replicas.tick(self._lease_held, stalled)

    def _note_lag(self, lag_ms: int, now_ms: int) -> None:
        if now_ms - self._lag_since_ms >= LAG_WINDOW_MS // 2:
            self._lags = (self._lags[1], 0)
            self._lag_since_ms = now_ms
        self._lags = (self._lags[0], max(self._lags[1], lag_ms))

    @property
    def worst_lag_ms(self) -> int:
        """The longest that the event loop was late in the last ten seconds."""
        return max(self._lags)

    async def run(self) -> None:
        """Slow things, when there is time."""
        while True:
            await asyncio.sleep(self._until_due_s("checkpoint", "clean"))
            if self._is_due("checkpoint", CHECKPOINT_MS):
                await self._each(self._replicas.watchlist.take_moved(), self._checkpoint)
            if self._is_due("clean", self._clean_ms):
                self._groups.tell_wall_clock()
                self._expiration_ms = int(self._image.number_config(PRODUCER_ID_EXPIRATION_MS))
                await self._each(list(self._replicas.partitions.values()), self._clean)

    def _elapsed_ms(self) -> int:
        return self._runtime.clock.now_ms() - self._started_ms

    def _until_due_s(self, *what: str) -> float:
        return max(TICK_MS, min(self._due[name] for name in what) - self._elapsed_ms()) / 1000

    def _is_due(self, what: str, every_ms: int) -> bool:
        elapsed_ms = self._elapsed_ms()
        if elapsed_ms < self._due[what]:
            return False
        self._due[what] = elapsed_ms + every_ms
        return True

    async def _each(
        self, partitions: Iterable[Partition], work: Callable[[Partition], Awaitable[None]]
    ) -> None:
        pace = Pace(self._runtime.clock)
        for partition in partitions:
            if not partition.failed and self._replicas.partitions.get(partition.tp) is partition:
                try:
                    await work(partition)
                except (OSError, LogCorrupt) as problem:
                    is_full = isinstance(problem, OSError) and problem.errno in FULL_DISK
                    if self._replicas.partitions.get(partition.tp) is partition and not is_full:
                        log.error("%s: %s", partition.tp, problem)
                    # Else the topic was deleted under our hands, and its files with it; or DiskRoom has said it for all.
                except Exception as problem:  # of this one; the others must not go without
                    self._runtime.unexpected("housekeeping", problem, str(partition.tp))
                await pace.step()

    async def _checkpoint(self, partition: Partition) -> None:
        """A recovery point that is near the end keeps the next start short (S25)."""
        partition.log.roll_if_due(self._runtime.clock.wall_ms())
        checkpoint = partition.log.begin_checkpoint(partition.high_watermark)
        if checkpoint is None:
            return

        def write() -> None:
            for file in checkpoint.files:
                partition.fs.write_file(file.path, file.data)

        try:
            await self._runtime.run_blocking(write)
        except OSError as problem:
            self._replicas.watchlist.moved[partition] = None
            partition.log.checkpoint_failed(checkpoint, problem)
            if partition.log.failed is not None:
                partition.mark_failed()
            raise
        partition.log.checkpoint_done(checkpoint)

    async def _clean(self, partition: Partition) -> None:
        clock = self._runtime.clock
        now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
        if partition.log.is_untouched:
            partition.log.pass_time(wall_ms, now_ms)
            return
        self._drop_delivered(partition)
        report = partition.log.apply_retention(wall_ms, now_ms, self._queues.retention_limit(partition))
        if report.deleted_segments:
            log.info("%s: %d segments are past retention", partition.tp, report.deleted_segments)
            partition.start_moved()
        partition.log.purge_deleted(now_ms)
        partition.log.expire_producers(wall_ms, now_ms, self._expiration_ms)
        self._scrub(partition, now_ms)
        if partition.config.is_compacted:
            await self._compact(partition)
        await self._checkpoint(partition)

    def _drop_delivered(self, partition: Partition) -> None:
        """`retention=delivered`: what every subscription has acknowledged is not needed any more (Q9)."""
        topic = self._image.topic(partition.tp.topic)
        if topic is None or topic.config.retention != "delivered" or not partition.is_leader:
            return
        done = self._queues.delivered_to(partition.tp)
        if done is not None and done > partition.log.start_offset:
            partition.delete_records(min(done, partition.high_watermark))

    def _scrub(self, partition: Partition, now_ms: int) -> None:
        """S22: read what is old, a little each time, so that rot is found while another replica still has it right."""
        if partition.scrubbed_to >= partition.log.durable_end:
            if now_ms < partition.scrub_again_ms:
                return
            partition.scrub_again_ms = now_ms + SCRUB_AGAIN_MS
        try:
            partition.scrubbed_to = partition.log.scrub(partition.scrubbed_to, SCRUB_BYTES)
        except LogCorrupt as problem:
            log.critical("%s is damaged on disk: %s", partition.tp, problem)
            partition.mark_failed()

    async def _rest_after(self, moved_bytes: int) -> None:
        """`log.cleaner.io.max.bytes.per.second`: a step is done, and paid for before the next one."""
        rate = self._image.number_config(CLEANER_BYTES_PER_SECOND)
        if moved_bytes > rate / 1000:
            await asyncio.sleep(moved_bytes / rate)

    async def _compact(self, partition: Partition) -> None:
        """The pass reads closed segments and writes files of its own, so it may run beside the broker, step by step."""
        clock = self._runtime.clock
        run = partition.log.begin_compaction(clock.wall_ms(), clock.now_ms(), partition.high_watermark)
        while run is not None:
            try:
                more = True
                while more:
                    more = await self._runtime.run_blocking(run.step)
                    await self._rest_after(run.take_moved_bytes())
            except BaseException:
                run.abandon()
                raise
            report = partition.log.finish_compaction(run)
            log.info("%s: compacted %d bytes away", partition.tp, report.freed_bytes)
            for offset in run.unreadable:
                partition.step_over(offset, "compaction leaves it as it is")
            if not report.unfinished:
                return
            run = partition.log.begin_compaction(clock.wall_ms(), clock.now_ms(), partition.high_watermark)
