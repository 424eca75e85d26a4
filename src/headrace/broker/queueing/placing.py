"""Driver: where a new message goes, and getting it there: to a partition, once (R59), and in order while a queue changes.

A queue places messages in its first `active` partitions; standard queues let them take turns, FIFO queues have one for each
message group. When a FIFO queue gets another number of partitions (Q11), a group may belong to another partition from then
on. Until the change is over its old partition decides, and nobody else (moving.py): what stays with it, and what goes to the
new one. The old home also knows what was sent in the last minutes, so a duplicate is found there.

Every broker learns of changes in the order of the coordinator's revisions, and a leadership begins at one, so a new home of
the old partition knows of every change that its predecessor acted on. Each beginning and each end of a change is a new era
of the queue: a message is written to the partition that was chosen for it only while the broker that writes it is in the era
that it was chosen in, so that no message that was long on its way appears where its group has left.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.hosting import Hosted
from headrace.broker.queueing.moving import Moving
from headrace.broker.queueing.questions import AskSend, Sent
from headrace.broker.queueing.sender import Fence, Sender
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


class Placing:
    def __init__(self, broker: Broker, desk: QueueDesk) -> None:
        self._broker = broker
        self._image = broker.image
        self._desk = desk
        self._senders: dict[TopicPartition, tuple[Partition, Sender]] = {}
        self._turn: dict[str, int] = {}
        self._deduplicating: dict[tuple[Source, bytes], asyncio.Future[None]] = {}
        self.moving = Moving(broker, desk)

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
            if dedup_id:  # by its id, or its twin would not meet it
                number = self.choose_partition(topic, dedup_id.decode(errors="replace"))
                return await self._send_via(spec.name, topic, number, record, dedup_id)
            return await self.send(topic, self.choose_partition(topic, None), record)
        number = (
            shard_for(group, spec.moving_from) if spec.moving_from else self.choose_partition(topic, group)
        )
        if not (dedup_id or spec.elastic or spec.moving_from):
            return await self.send(topic, number, record, spec.era)
        return await self._send_via(spec.name, topic, number, record, dedup_id)

    def choose_for_moved(self, spec: QueueSpec, record: Record) -> TopicPartition:
        """Where a message goes that is moved to a queue in a transaction (R60): a FIFO queue keeps its groups together."""
        topic = spec.topics[0]
        raw = names.header(record.headers, names.GROUP) if spec.queue_config.fifo else None
        group = None if raw is None else raw.decode(errors="replace")
        number = self.choose_partition(topic, group)
        if group is not None and spec.moving_from and shard_for(group, spec.moving_from) != number:
            # Only the group's old partition knows where it is (moving.py), and a transaction can not ask it.
            raise HeadraceError(
                ErrorKind.NOT_COORDINATOR,
                f"{spec.name} gets another number of partitions; try again when it has them",
            )
        return TopicPartition(topic, number)

    # -- to a partition ------------------------------------------------------------------------------------------------

    async def send(
        self, topic: str, number: int, record: Record, era: int = -1, fence: Fence | None = None
    ) -> Sent:
        """With an era: only while the queue is in it. With a fence: only here, and only while that holds."""
        partition = self._broker.partitions.get((topic, number))
        leader = self._image.leader(topic, number)
        if fence or _is_led(partition) or leader is None or leader.id == self._broker.node_id:
            return await self.send_here(topic, number, record, era, fence)
        ask = AskSend(queue="", topic=topic, partition=number, record=record, dedup_id=b"", era=era)
        sent: Sent = await self._desk.anywhere.ask(leader.id, ask, SEND_S)
        return sent

    async def send_here(
        self, topic: str, number: int, record: Record, era: int = -1, fence: Fence | None = None
    ) -> Sent:
        partition, missing = self._broker.find_partition(topic, number)
        if partition is None or not partition.is_leader:
            raise HeadraceError(missing if partition is None else ErrorKind.NOT_LEADER_OR_FOLLOWER)
        if fence is None and era >= 0:
            fence = partial(self._is_in, topic, era)
        offset = await self._sender(partition).send(record, fence)
        return Sent(names.encode_message_id(partition.topic_id, number, offset), number, offset)

    def _is_in(self, queue: str, era: int) -> bool:
        spec = self._desk.find_spec(queue)
        return spec is not None and spec.era == era

    def _sender(self, partition: Partition) -> Sender:
        held = self._senders.get(partition.tp)
        if held is None or held[0] is not partition:
            sender = Sender(self._broker.runtime, partition, self._desk.shards.wrote)
            held = self._senders[partition.tp] = (partition, sender)
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
        routed_in: int = -1,
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
            routed_in=routed_in,
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
        # What an old home sent on in an earlier change says nothing about this one.
        decides = target if ask.routed_in == spec.era else old
        if ask.partition != decides:
            return await self._pass_on(ask, decides)
        if decides == target:
            return await self._send_once(hosted, source, ask, spec.era)
        return await self._send_from_old(hosted, source, ask, group, spec.era, target)

    async def _pass_on(self, ask: AskSend, number: int, *, routed_in: int = -1) -> Sent:
        return await self._send_via(
            ask.queue, ask.topic, number, ask.record, ask.dedup_id, routed_in=routed_in, hops=ask.hops + 1
        )

    async def _send_from_old(
        self, hosted: Hosted, source: Source, ask: AskSend, group: bytes, era: int, target: int
    ) -> Sent:
        stay = await self.moving.decide(source, era, group)
        if stay is not None:
            try:
                return await self._send_once(hosted, source, ask, era, stay.holds)
            finally:
                stay.is_over()
        if ask.dedup_id:
            first = await self._find_duplicate(hosted, source, ask.dedup_id)
            if first is not None:
                return first
        return await self._pass_on(ask, target, routed_in=era)

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

    async def _send_once(
        self, hosted: Hosted, source: Source, ask: AskSend, era: int = -1, fence: Fence | None = None
    ) -> Sent:
        if not ask.dedup_id:
            sent = await self.send(ask.topic, ask.partition, ask.record, era, fence)
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
            sent = await self.send(ask.topic, ask.partition, ask.record, era, fence)
            # The engine must have seen it before the next one with this id may ask.
            self._desk.shards.feed_source(hosted, source, whole=True)
            return sent
        finally:
            del self._deduplicating[source, dedup_id]
            mine.set_result(None)


def _is_led(partition: Partition | None) -> bool:
    return partition is not None and partition.is_leader
