"""Driver: letting records go whose time has come, on topics with `headrace.delay.enabled` (Q7).

Whatever waits in a partition is a queue of its own, `delays/<topic>`, which this broker receives from while it leads the
partition's journal. A due record is written to its partition again and acknowledged in one transaction (R60), so readers see
it exactly once, whoever dies in between.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.broker.queueing import names
from headrace.broker.queueing.hosting import Hosted
from headrace.broker.queueing.questions import Delivery
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.broker.queueing.transfers import NotMoved, Transfers
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.queues import commands as engine
from headrace.queues.commands import Source
from headrace.queues.config import QueueConfig
from headrace.records.build import Record

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

AT_ONCE = 1_000
LEASE_MS = 60_000
WAIT_MS = 60_000
PAUSE_S = 0.5


def delay_spec(topic: str) -> QueueSpec:
    """What waits in a topic, as a queue. It is known to nobody but its driver."""
    spec = QueueSpec(name=names.DELAYS_PREFIX + topic, id="delays", topics=(topic,), kind="subscription")
    return with_config(spec, QueueConfig(delays=True, filtered=True))


class Releases:
    def __init__(self, broker: Broker, transfers: Transfers) -> None:
        self._broker = broker
        self._transfers = transfers
        self._working: set[Hosted] = set()

    def watch(self, hosted: Hosted, source: Source) -> None:
        """From now on, as long as the shard lives here."""
        if hosted not in self._working:
            self._working.add(hosted)
            self._broker.runtime.spawn(self._work(hosted, source), f"delays of {hosted.data.tp}")

    async def _work(self, hosted: Hosted, source: Source) -> None:
        desk, spec = self._broker.queues, delay_spec(source.topic)
        try:
            while desk.shards.hosted.get(hosted.data.tp) is hosted:
                try:
                    found = await desk.receive_here(
                        spec, AT_ONCE, visibility_ms=LEASE_MS, wait_ms=WAIT_MS, sources=[source]
                    )
                    if found:
                        await self._release(hosted, source, found)
                except HeadraceError as problem:
                    log.info("%s: what is due waits: %s", source, problem.detail)
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._working.discard(hosted)
            self._transfers.forget(hosted)

    async def _release(self, hosted: Hosted, source: Source, found: list[Delivery]) -> None:
        wall_ms = self._broker.runtime.clock.wall_ms()
        handles = tuple(one.handle for one in found)
        letters = {
            TopicPartition(source.topic, source.partition): [_released(one.record, wall_ms) for one in found]
        }
        try:
            await self._transfers.transfer(
                hosted,
                letters,
                lambda waiter: engine.Ack(source, handles, engine.Outcome.MOVED, waiter=waiter),
            )
        except NotMoved:
            await self._broker.queues.release(source, handles, 0)
            raise


def _released(record: Record, wall_ms: int) -> Record:
    ours = (names.DELAY_MS, names.DELIVER_AT, names.DELAY_LEVEL)
    kept = tuple(header for header in record.headers if header[0] not in ours)
    return Record(record.key, record.value, (*kept, (names.DELAYED, b"%d" % record.offset)), wall_ms)
