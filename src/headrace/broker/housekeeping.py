"""Driver: what has to happen now and then: timeouts, rolls, retention, checkpoints, compaction, forgetting producers.

Nothing here is on anybody's path: it works in small steps and gives the loop away between partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.broker.broker import Broker
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.log.results import LogCorrupt

log = logging.getLogger(__name__)

TICK_S = 0.2
CHECKPOINT_MS = 5_000
RETENTION_MS = 30_000


class Housekeeping:
    def __init__(self, runtime: Runtime, broker: Broker) -> None:
        self._runtime = runtime
        self._broker = broker

    async def run(self) -> None:
        clock = self._runtime.clock
        next_checkpoint = clock.now_ms() + CHECKPOINT_MS
        next_retention = clock.now_ms() + RETENTION_MS
        while True:
            await asyncio.sleep(TICK_S)
            now_ms = clock.now_ms()
            for partition in list(self._broker.partitions.values()):
                partition.expire_waiting(now_ms)
            if now_ms >= next_checkpoint:
                next_checkpoint = now_ms + CHECKPOINT_MS
                await self._each(self._checkpoint)
            if now_ms >= next_retention:
                next_retention = now_ms + RETENTION_MS
                self._broker.groups.tell_wall_clock()
                await self._each(self._clean)

    async def _each(self, work: Callable[[Partition], Awaitable[None]]) -> None:
        for partition in list(self._broker.partitions.values()):
            if partition.failed:
                continue
            try:
                await work(partition)
            except (OSError, LogCorrupt) as problem:
                log.error("%s: %s", partition.tp, problem)
            await asyncio.sleep(0)

    async def _checkpoint(self, partition: Partition) -> None:
        """A recovery point that is near the end keeps the next start short (S25)."""
        partition.log.roll_if_due(self._runtime.clock.wall_ms())
        checkpoint = partition.log.begin_checkpoint(partition.high_watermark)
        if checkpoint is not None:
            fs = partition.fs
            await self._runtime.run_blocking(
                lambda: [fs.write_file(file.path, file.data) for file in checkpoint.files]
            )
            partition.log.checkpoint_done(checkpoint)

    async def _clean(self, partition: Partition) -> None:
        """filled in with retention and compaction"""
