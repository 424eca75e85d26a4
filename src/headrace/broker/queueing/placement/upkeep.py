"""Driver: what has to be put right about queues now and then, by whoever is controller.

A journal belongs beside its data: when a topic gets more partitions its journal gets them too, and when a partition moves
to other brokers its journal follows. An elastic queue gets the partitions that its load asks for (Q11): more of them are
made before they are used, and those that are not used any more are still received from until they are empty, and kept for the
next time: Kafka clients can not be told that a partition is gone. Looked at anew each time, so a change that was missed costs
one more look.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.broker.hosts import QueueHost
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.routing.peer_calls import AskLeftBehind
from headrace.broker.queueing.routing.router import QueueRouter
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster.election import ElectionType
from headrace.core.errors import HeadraceError
from headrace.queues.commands import Source
from headrace.queues.elastic import Elasticity, QueuePressure

log = logging.getLogger(__name__)

LOOK_S = 1.0


class QueueUpkeep:
    def __init__(
        self,
        host: QueueHost,
        catalog: QueueCatalog,
        layouts: Layouts,
        router: QueueRouter,
        placement: Placement,
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._layouts = layouts
        self._router = router
        self._placement = placement
        self._image = host.image
        self._elasticities: dict[str, Elasticity] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            controller = self._image.controller
            if controller is not None and controller.broker_id == self._host.node_id:
                await self.look()
            else:
                self._elasticities.clear()

    async def look(self) -> None:
        await self._tidy_journals()
        for topic in self._topics_with_journals():
            try:
                await self._catalog.ensure_journal(topic)
                await self._follow(topic)
            except HeadraceError as problem:
                log.info("the journal of %s can't be put right yet: %s", topic, problem.detail)
            except Exception as problem:  # of this one; the others are put right all the same
                self._host.runtime.unexpected("queues in shape", problem, topic)

        specs = [spec for spec in self._catalog.all() if spec.elastic is not None or spec.moving_from]
        for name in self._elasticities.keys() - {spec.name for spec in specs}:
            del self._elasticities[name]
        for spec in specs:
            try:
                await self._stretch(spec)
            except HeadraceError as problem:
                log.info("the partitions of %s stay as they are: %s", spec.name, problem.detail)
            except Exception as problem:
                self._host.runtime.unexpected("queues in shape", problem, spec.name)

    async def _stretch(self, spec: QueueSpec) -> None:
        catalog, elastic = self._catalog, spec.elastic
        topic = self._image.topic(spec.topics[0])
        if topic is None or spec.kind != "queue":
            return
        if spec.moving_from:
            await self._end_move(spec)
            return
        if elastic is None:
            return
        if not spec.active:
            # Said before there are more of them: groups must not begin to move by themselves.
            await catalog.change(spec.name, seen=spec, active=len(topic.partitions))
            return
        counts = (await self._router.stats(spec)).counts
        if len(counts) < len(topic.partitions):
            return  # somebody did not answer
        active = min(spec.active, len(topic.partitions))
        load = QueuePressure(
            sum(count.end_offset for _, count in counts), sum(count.visible for _, count in counts)
        )
        elasticity = self._elasticities.setdefault(spec.name, Elasticity())
        wanted = elasticity.step(elastic, active, load, self._host.runtime.clock.now_ms())
        if wanted == active:
            return
        if wanted > len(topic.partitions):
            await self._host.topics.grow(topic.name, wanted)
            await catalog.ensure_journal(topic.name)
        log.info("%s: %d partitions, %d before", spec.name, wanted, active)
        if spec.queue_config.fifo:
            await catalog.change(
                spec.name, seen=spec, active=wanted, moving_from=active, moved_ms=0, era=spec.era + 1
            )
        else:
            await catalog.change(spec.name, seen=spec, active=wanted)

    async def _end_move(self, spec: QueueSpec) -> None:
        """First the groups are all where they belong: no old partition gets anything of them any more. A deduplication
        window later nothing that an old partition got can be sent again unnoticed, and the change is over."""
        catalog, layouts = self._catalog, self._layouts
        for source in layouts.of(spec).sources[: spec.moving_from]:
            await self._unite(source)
            ask = AskLeftBehind(queue=spec.name, queue_id=spec.id, source=source, era=spec.era)
            if layouts.is_here(source):
                left = await self._placement.migration.left_behind(ask)
            else:
                left = await self._router.ask(layouts.home_of(source), ask)
            if left:
                return
        wall_ms = self._host.runtime.clock.wall_ms()
        if (
            not spec.moved_ms or wall_ms < spec.moved_ms
        ):  # a clock was set back: begin anew, rather late than early
            await catalog.change(spec.name, seen=spec, moved_ms=wall_ms)
        elif wall_ms - spec.moved_ms >= spec.queue_config.dedup_window_ms:
            log.info("%s: its groups have moved", spec.name)
            await catalog.change(spec.name, seen=spec, moving_from=0, moved_ms=0, era=spec.era + 1)

    async def _unite(self, source: Source) -> None:
        """Only who leads a partition and its journal can tell what is in it (migration.py): bring them together."""
        found = [
            (name, self._image.topic(name)) for name in (source.topic, names.journal_topic(source.topic))
        ]
        states = [
            (name, topic.partitions[source.partition])
            for name, topic in found
            if topic is not None and source.partition < len(topic.partitions)
        ]
        if len({state.leader for _, state in states if state is not None}) < 2:
            return
        for name, state in states:
            if state is not None and state.leader != state.target[0]:
                try:
                    await self._host.partition_admin.elect(name, source.partition, ElectionType.PREFERRED)
                except HeadraceError as problem:
                    log.info(
                        "%s-%d is not led beside its journal: %s", name, source.partition, problem.detail
                    )

    async def _tidy_journals(self) -> None:
        """A journal goes with its topic. Those of older versions did not, and did not say whose they were."""
        for journal in list(self._image.topics.values()):
            topic = names.data_topic(journal.name)
            if topic is None:
                continue
            data = self._image.topic(topic)
            try:
                if data is None:
                    await self._host.topics.delete_left_over(journal.name, topic)
                elif not journal.state.journal_of:
                    await self._host.topics.adopt_journal(journal, data)
            except HeadraceError as problem:
                log.info("%s stays as it is for now: %s", journal.name, problem.detail)

    def _topics_with_journals(self) -> list[str]:
        """Those that have one, and those that need one: queues read them, or messages wait in them."""
        found = [
            topic
            for name in self._image.topics
            if (topic := names.data_topic(name)) is not None and self._image.topic(topic) is not None
        ]
        found += [
            topic.name
            for topic in self._image.topics.values()
            if topic.config.delay_enabled and names.data_topic(topic.name) is None
        ]
        found += (
            name
            for spec in self._catalog.all()
            for name in spec.topics
            if (known := self._image.topic(name)) is not None and known.view is None
        )
        return list(dict.fromkeys(found))

    async def _follow(self, topic: str) -> None:
        data, journal = self._image.topic(topic), self._image.topic(names.journal_topic(topic))
        if data is None or journal is None:
            return
        for number, (wanted, held) in enumerate(zip(data.partitions, journal.partitions, strict=False)):
            if wanted is None or held is None or held.reassigning or held.target == wanted.target:
                continue
            log.info("%s-%d moves to %s, to its data", journal.name, number, wanted.target)
            await self._host.partition_admin.move(journal.name, number, wanted.target)
