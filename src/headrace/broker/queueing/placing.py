"""Driver: where a new message goes, and getting it there: to a partition, once (R59), and in order while a queue changes.

A queue places messages in its first `active` partitions; standard queues let them take turns, FIFO queues have one for each
message group. When a FIFO queue gets another number of partitions (Q11), a group may belong to another partition from then
on. Until the change is over its old partition decides, and nobody else: as long as it holds something of the group, the
message stays with it; when it holds nothing, the message goes to the new one, and since only the old one places messages with
itself, none of the group ever lies in both. The old home also knows what was sent in the last minutes, so a duplicate is
found there. Every broker learns of changes in the order of the coordinator's revisions, and a leadership begins at one, so a
new home of the old partition knows of every change that its predecessor acted on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.hosting import Hosted
from headrace.broker.queueing.questions import AskSend, AskStrays, Sent
from headrace.broker.queueing.sender import Sender
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition, shard_for
from headrace.queues import commands as engine
from headrace.queues.commands import Source
from headrace.records.build import Record

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.queueing.desk import QueueDesk

SEND_S = 35.0
"""A little longer than a send waits for its commit."""
MAX_HOPS = 3
UNKNOWN = 1 << 62


class Lingering:
    """Messages of a group that moves which its old partition kept: how many are on their way, and where the last one ends."""

    __slots__ = ("lock", "on_the_way", "upto")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.on_the_way = 0
        self.upto = 0


class Placing:
    def __init__(self, broker: Broker, desk: QueueDesk) -> None:
        self._broker = broker
        self._image = broker.image
        self._desk = desk
        self._senders: dict[TopicPartition, tuple[Partition, Sender]] = {}
        self._turn: dict[str, int] = {}
        self._deduplicating: dict[tuple[Source, bytes], asyncio.Future[None]] = {}
        self._lingering: dict[tuple[Hosted, str, bytes], Lingering] = {}

    # -- where to ------------------------------------------------------------------------------------------------------

    def active(self, topic: str) -> int:
        """How many partitions of a topic its queue places messages in."""
        known = self._image.topic(topic)
        if known is None:
            raise HeadraceError(ErrorKind.QUEUE_DOES_NOT_EXIST, f'there is no topic called "{topic}"')
        spec = self._desk.find_spec(topic)
        total = len(known.partitions)
        return total if spec is None or not spec.active else min(spec.active, total)

    def choose_partition(self, topic: str, group: str | None) -> int:
        """One partition per message group, so that its order holds (R59); else they take turns."""
        count = self.active(topic)
        if group is not None:
            return shard_for(group, count)
        held = self._broker.partitions
        near = [number for number in range(count) if _is_led(held.get((topic, number)))] or range(count)
        turn = self._turn[topic] = (self._turn.get(topic, -1) + 1) % len(near)
        return near[turn]

    async def send_to_queue(
        self, spec: QueueSpec, record: Record, group: str | None, dedup_id: bytes = b""
    ) -> Sent:
        """What the doors do. A second message with the same deduplication id within the window is the first one (R59)."""
        topic = spec.topics[0]
        if group is None:
            number = self.choose_partition(topic, None)
            if dedup_id:
                return await self._send_via(spec.name, topic, number, record, dedup_id)
            return await self.send(topic, number, record)
        number = (
            shard_for(group, spec.moving_from) if spec.moving_from else self.choose_partition(topic, group)
        )
        if not dedup_id and spec.elastic is None:
            return await self.send(topic, number, record)
        return await self._send_via(spec.name, topic, number, record, dedup_id)

    # -- to a partition ------------------------------------------------------------------------------------------------

    async def send(self, topic: str, number: int, record: Record) -> Sent:
        partition = self._broker.partitions.get((topic, number))
        leader = self._image.leader(topic, number)
        if _is_led(partition) or leader is None or leader.id == self._broker.node_id:
            return await self.send_here(topic, number, record)
        ask = AskSend(queue="", topic=topic, partition=number, record=record, dedup_id=b"")
        sent: Sent = await self._desk.anywhere.ask(leader.id, ask, SEND_S)
        return sent

    async def send_here(self, topic: str, number: int, record: Record) -> Sent:
        partition, missing = self._broker.find_partition(topic, number)
        if partition is None or not partition.is_leader:
            raise HeadraceError(missing if partition is None else ErrorKind.NOT_LEADER_OR_FOLLOWER)
        offset = await self._sender(partition).send(record)
        return Sent(names.encode_message_id(partition.topic_id, number, offset), number, offset)

    def _sender(self, partition: Partition) -> Sender:
        held = self._senders.get(partition.tp)
        if held is None or held[0] is not partition:
            held = self._senders[partition.tp] = (partition, Sender(self._broker.runtime, partition))
        return held[1]

    # -- through the home of a partition -------------------------------------------------------------------------------

    async def _send_via(
        self,
        queue: str,
        topic: str,
        number: int,
        record: Record,
        dedup_id: bytes,
        *,
        routed: bool = False,
        hops: int = 0,
    ) -> Sent:
        if hops > MAX_HOPS:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"the brokers do not agree yet where {queue} goes")
        ask = AskSend(
            queue=queue,
            topic=topic,
            partition=number,
            record=record,
            dedup_id=dedup_id,
            routed=routed,
            hops=hops,
        )
        source = Source(queue, topic, number)
        if self._desk.is_hosted(source):
            return await self.send_at_home(ask)
        sent: Sent = await self._desk.anywhere.ask(self._desk.home_of(source), ask, SEND_S)
        return sent

    async def send_at_home(self, ask: AskSend) -> Sent:
        """At the broker that has the journal of a partition: a message that somebody believes belongs there."""
        spec = self._desk.spec(ask.queue)
        source = Source(ask.queue, ask.topic, ask.partition)
        hosted = self._desk.hosted(source)
        group = names.header(ask.record.headers, names.GROUP) if spec.queue_config.fifo else None
        if group is None or spec.kind != "queue":
            return await self._send_once(hosted, source, ask)
        name = group.decode(errors="replace")
        target = shard_for(name, self.active(ask.topic))
        old = shard_for(name, spec.moving_from) if spec.moving_from else target
        if old == target or (ask.partition == target and ask.routed):
            if ask.partition == target:
                return await self._send_once(hosted, source, ask)
            return await self._pass_on(ask, target)
        if ask.partition != old:
            return await self._pass_on(ask, old)
        return await self._send_from_old(hosted, source, ask, group, target)

    async def _pass_on(self, ask: AskSend, number: int, *, routed: bool = False) -> Sent:
        return await self._send_via(
            ask.queue, ask.topic, number, ask.record, ask.dedup_id, routed=routed, hops=ask.hops + 1
        )

    async def _send_from_old(
        self, hosted: Hosted, source: Source, ask: AskSend, group: bytes, target: int
    ) -> Sent:
        if ask.dedup_id:
            first = await self._find_duplicate(hosted, source, ask.dedup_id)
            if first is not None:
                return first
        key = (hosted, source.queue, group)
        lingering = self._lingering.setdefault(key, Lingering())
        async with lingering.lock:
            if not await self._keeps(hosted, source, group, lingering):
                self._lingering.pop(key, None)
                stays = False
            else:
                lingering.on_the_way += 1
                stays = True
        if not stays:
            return await self._pass_on(ask, target, routed=True)
        try:
            sent = await self._send_once(hosted, source, ask)
            lingering.upto = max(lingering.upto, sent.offset + 1)
            return sent
        except BaseException:
            # It may come to lie here, or not: everything written so far has to be seen first.
            lingering.upto = max(
                lingering.upto, hosted.data.log.end_offset if hosted.data.is_leader else UNKNOWN
            )
            raise
        finally:
            lingering.on_the_way -= 1

    async def _keeps(self, hosted: Hosted, source: Source, group: bytes, lingering: Lingering) -> bool:
        """Whether the old partition has, or may have, something of a group. The engine's answer waits for everything it
        rests on to be committed, so a leader that was deposed answers nothing."""
        if lingering.on_the_way or not self._has_seen(hosted, source, lingering.upto):
            return True
        held = await hosted.shard.submit(lambda waiter: engine.Holding(source, group, waiter=waiter))
        return held is not False

    def _has_seen(self, hosted: Hosted, source: Source, upto: int) -> bool:
        """The engine knows everything that earlier leaders wrote, and everything up to `upto`."""
        data = hosted.data
        counts = hosted.machine.counts(source) if hosted.ready else None
        if counts is None or not data.is_leader:
            return False
        entries = data.log.epochs.entries
        began = entries[-1].start_offset if entries else 0
        return counts.end_offset >= max(began, upto)

    async def strays(self, ask: AskStrays) -> int:
        """How many groups are still in a partition that they do not belong to any more."""
        hosted, spec = self._desk.hosted(ask.source), self._desk.spec(ask.queue)
        if spec.active != ask.active or not spec.moving_from or not self._has_seen(hosted, ask.source, 0):
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, "the change is not known here yet")
        lingering = sum(
            1
            for (held, queue, _), one in self._lingering.items()
            if held is hosted
            and queue == ask.queue
            and (one.on_the_way or not self._has_seen(hosted, ask.source, one.upto))
        )
        groups = await hosted.shard.submit(lambda waiter: engine.Holding(ask.source, None, waiter=waiter))
        if groups is None:
            return 1 + lingering
        return lingering + sum(
            1
            for group in groups
            if shard_for(group.decode(errors="replace"), ask.active) != ask.source.partition
        )

    # -- once ----------------------------------------------------------------------------------------------------------

    async def _find_duplicate(self, hosted: Hosted, source: Source, dedup_id: bytes) -> Sent | None:
        wall_ms = self._broker.runtime.clock.wall_ms()
        first = await hosted.shard.submit(
            lambda waiter: engine.FindDuplicate(source, dedup_id, wall_ms, waiter=waiter)
        )
        if not isinstance(first, int):
            return None
        message_id = names.encode_message_id(hosted.data.topic_id, source.partition, first)
        return Sent(message_id, source.partition, first, True)

    async def _send_once(self, hosted: Hosted, source: Source, ask: AskSend) -> Sent:
        if not ask.dedup_id:
            sent = await self.send(ask.topic, ask.partition, ask.record)
            self._desk.shards.feed_source(hosted, source, whole=True)
            return sent
        dedup_id = ask.dedup_id
        while (running := self._deduplicating.get((source, dedup_id))) is not None:
            await asyncio.shield(running)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deduplicating[source, dedup_id] = mine
        try:
            first = await self._find_duplicate(hosted, source, dedup_id)
            if first is not None:
                return first
            sent = await self.send(ask.topic, ask.partition, ask.record)
            # The engine must have seen it before the next one with this id may ask.
            self._desk.shards.feed_source(hosted, source, whole=True)
            return sent
        finally:
            del self._deduplicating[source, dedup_id]
            mine.set_result(None)


def _is_led(partition: Partition | None) -> bool:
    return partition is not None and partition.is_leader
