"""Driver: what has to be put right about queues now and then, by whoever is controller.

A journal belongs beside its data: when a topic gets more partitions its journal gets them too, and when a partition moves
to other brokers its journal follows. Looked at anew each time, so a change that was missed costs one more look.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.broker.queueing import names
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

LOOK_S = 1.0


class QueueKeeper:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._image = broker.image

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            controller = self._image.controller
            if controller is not None and controller.broker_id == self._broker.node_id:
                await self.look()

    async def look(self) -> None:
        for topic in self._topics_with_journals():
            try:
                await self._broker.queues.ensure_journal(topic)
                await self._follow(topic)
            except HeadraceError as problem:
                log.info("the journal of %s can't be put right yet: %s", topic, problem.detail)

    def _topics_with_journals(self) -> list[str]:
        """Those that have one, and those that need one because messages wait in them."""
        found = [
            topic
            for name in self._image.topics
            if (topic := names.data_topic(name)) is not None and self._image.topic(topic) is not None
        ]
        found += [
            topic.name
            for topic in self._image.topics.values()
            if topic.config.delay_enabled and topic.name not in found and names.data_topic(topic.name) is None
        ]
        return found

    async def _follow(self, topic: str) -> None:
        data, journal = self._image.topic(topic), self._image.topic(names.journal_topic(topic))
        if data is None or journal is None:
            return
        for number, (wanted, held) in enumerate(zip(data.partitions, journal.partitions, strict=False)):
            if wanted is None or held is None or held.reassigning or set(held.target) == set(wanted.target):
                continue
            log.info("%s-%d moves to %s, to its data", journal.name, number, wanted.target)
            await self._broker.partition_admin.move(journal.name, number, wanted.target)
