"""Driver: writes the audit into the topic `__audit`, at partitions that this broker leads (A64).

It has a partition for every broker that was there when it was made; whoever leads none for a while keeps what there is to say, up to the
bound of the buffer. Requests never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.topic_admin import TopicAdmin
from headrace.cluster.topics import CreateTopic
from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import HeadraceError
from headrace.core.measures import Family, gauge
from headrace.records.build import Record, build_batch
from headrace.security.audit import AuditTrail

log = logging.getLogger(__name__)

AUDIT_TOPIC = "__audit"
RETENTION_MS = 30 * 86_400_000
LEAST_PARTITIONS = 3
MOST_AT_ONCE = 500
PAUSE_S = 1.0
LOOK_S = 10.0
"""How often counts of minutes that are over are looked for."""


class AuditLog:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        topics: TopicAdmin,
        partitions: Mapping[tuple[str, int], Partition],
        audit: AuditTrail,
    ) -> None:
        self._runtime = runtime
        self._image = metadata.image
        self._topics = topics
        self._partitions = partitions
        self._audit = audit
        self._news = asyncio.Event()
        audit.wake = self._news.set

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S if self._audit.is_on else None):
                    await self._news.wait()
            except TimeoutError:
                self._audit.fold()
            self._news.clear()
            if len(self._audit):
                await self._write()

    async def _write(self) -> None:
        try:
            if self._image.topic(AUDIT_TOPIC) is None:
                await self._make()
            while lines := self._audit.peek(MOST_AT_ONCE):
                partition = self._own()
                if partition is None:
                    await asyncio.sleep(PAUSE_S)
                    self._news.set()
                    return
                now_ms = self._runtime.clock.wall_ms()
                batch = build_batch([Record(None, line) for line in lines], wall_ms=now_ms)
                partition.append_internal(batch, urgent=False)
                self._audit.forget(len(lines))
        except (HeadraceError, CoordinatorError) as problem:
            log.info("the audit waits: %s", problem)
            await asyncio.sleep(PAUSE_S)
            self._news.set()

    async def _make(self) -> None:
        live = len(self._image.live_brokers())
        configs = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
        partitions = max(LEAST_PARTITIONS, live)
        await self._topics.ensure(CreateTopic(AUDIT_TOPIC, partitions, max(1, min(3, live)), configs=configs))

    def _own(self) -> Partition | None:
        """One that we lead and that takes writes now."""
        topic = self._image.topic(AUDIT_TOPIC)
        for number in range(0 if topic is None else len(topic.partitions)):
            partition = self._partitions.get((AUDIT_TOPIC, number))
            if partition is not None and partition.refusal(-1) is None:
                return partition
        return None

    def collect(self) -> Iterable[Family]:
        for name, text, value in (
            ("mq_audit_waiting_events", "Events of the audit that are not written yet", len(self._audit)),
            ("mq_audit_dropped_events", "Events of the audit that did not fit", self._audit.dropped),
        ):
            yield gauge(name, text, value)
