"""Driver: where a new message goes, and getting it there: to a partition, once (R59), and in order while a queue changes.

A queue places messages in its first `active` partitions; standard queues let them take turns, FIFO queues have one for each
message group. When a FIFO queue gets another number of partitions (Q11), a group may belong to another partition from then
on. Until the change is over its old partition decides, and nobody else (migration.py): what stays with it, and what goes to the
new one. The old home also knows what was sent in the last minutes, so a duplicate is found there.

Every broker learns of changes in the order of the coordinator's revisions, and a leadership begins at one, so a new home of
the old partition knows of every change that its predecessor acted on. Each beginning and each end of a change is a new era
of the queue: a message is written to the partition that was chosen for it only while the broker that writes it is in the era
that it was chosen in, so that no message that was long on its way appears where its group has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial

import msgspec

from headrace.broker.hosts import QueueHost
from headrace.broker.load import CommandRefused
from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.hosted import Hosted
from headrace.broker.queueing.local.sender import Fence, Sender
from headrace.broker.queueing.local.shards import QueueShards
from headrace.broker.queueing.placement.migration import GroupMigration
from headrace.broker.queueing.routing.caller import PeerCaller
from headrace.broker.queueing.routing.lives import OTHER_LIFE
from headrace.broker.queueing.routing.peer_calls import AskSend, Outgoing, Sent, SentSome
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition, shard_for
from headrace.core.plan import Rejected
from headrace.queues import commands as engine
from headrace.queues.commands import Source
from headrace.records.build import Record

SEND_S = 35.0
"""A little longer than a send waits for its commit."""
MAX_HOPS = 3
PATIENCE_MS = 3_000
FIRST_PAUSE_S = 0.05
"""Before what was refused is tried again, unless the cluster changes before; each time twice as long."""


class Placement:
    def __init__(
        self,
        host: QueueHost,
        catalog: QueueCatalog,
        layouts: Layouts,
        shards: QueueShards,
        caller: PeerCaller,
    ) -> None:
        self._host = host
        self._image = host.image
        self._catalog = catalog
        self._layouts = layouts
        self._shards = shards
        self._caller = caller
        self._senders: dict[TopicPartition, tuple[Partition, Sender]] = {}
        self._turn: dict[str, int] = {}
        self._deduplicating: dict[tuple[Source, bytes], asyncio.Future[None]] = {}
        self.migration = GroupMigration(host, catalog, layouts, shards)

    # -- where to ------------------------------------------------------------------------------------------------------

    def active(self, topic: str) -> int:
        """How many partitions of a topic its queue places messages in."""
        known = self._image.topic(topic)
        if known is None:
            raise HeadraceError(ErrorKind.QUEUE_DOES_NOT_EXIST, f'there is no topic called "{topic}"')
        spec = self._catalog.find(topic)
        total = len(known.partitions)
        return total if spec is None or not spec.active else min(spec.active, total)

    def choose_partition(self, topic: str, group: str | None) -> int:
        """One partition per message group, so that its order holds (R59); else they take turns."""
        count = self.active(topic)
        if group is not None:
            return shard_for(group, count)
        return 0 if count == 1 else self._take_turns(topic, count, 1)[0]

    def _take_turns(self, topic: str, count: int, messages: int) -> list[int]:
        """A partition for each message: those that this broker leads, if there are any."""
        held = self._host.partitions
        near = [number for number in range(count) if _is_led(held.get((topic, number)))] or range(count)
        turn = self._turn.get(topic, -1) + 1
        self._turn[topic] = (turn + messages - 1) % len(near)
        return [near[(turn + place) % len(near)] for place in range(messages)]

    def send(
        self, spec: QueueSpec, record: Record, group: str | None = None, dedup_id: bytes = b""
    ) -> Awaitable[Sent]:
        """What the doors do. A second message with the same deduplication id within the window is the first one (R59)."""
        if group is not None or dedup_id:
            return self._send_in_order(spec, record, group, dedup_id)
        topic = spec.topics[0]
        return self.send_to_partition(topic, self.choose_partition(topic, None), record)

    async def send_all(self, spec: QueueSpec, records: Sequence[Record]) -> list[Sent | HeadraceError]:
        """Several at once, in no order and without deduplication: what became of each. Raises, and has sent none, when nobody
        knows where to."""
        topic = spec.topics[0]
        count = self.active(topic)
        numbers = [0] * len(records) if count == 1 else self._take_turns(topic, count, len(records))
        held = {number: self._led(topic, number) for number in set(numbers)}
        under_way: list[Awaitable[int | Sent]] = []
        for record, number in zip(records, numbers, strict=True):
            here = held[number]
            under_way.append(
                self.send_to_partition(topic, number, record) if here is None else here[1].send(record)
            )
        done = await asyncio.gather(*under_way, return_exceptions=True)
        return [_outcome(held[number], one) for number, one in zip(numbers, done, strict=True)]

    def _led(self, topic: str, number: int) -> tuple[Partition, Sender] | None:
        partition = self._host.partitions.get((topic, number))
        return None if partition is None or not partition.is_leader else (partition, self._sender(partition))

    async def _send_in_order(
        self, spec: QueueSpec, record: Record, group: str | None, dedup_id: bytes
    ) -> Sent:
        topic = spec.topics[0]
        if group is not None and (dedup_id or spec.elastic or spec.moving_from):
            return _only(await self.send_group(spec, group, (Outgoing(record, dedup_id),)))
        if group is not None:
            number = self.choose_partition(topic, group)
            return await self.send_to_partition(topic, number, record, spec.era)
        # By its id, or its twin would not meet it.
        number = self.choose_partition(topic, dedup_id.decode(errors="replace"))
        messages = (Outgoing(record, dedup_id),)
        ask = AskSend(queue=spec.name, queue_id=spec.id, topic=topic, partition=number, messages=messages)
        return _only(await self._send_via(ask))

    async def send_group(self, spec: QueueSpec, group: str, messages: tuple[Outgoing, ...]) -> SentSome:
        """Several of one group, in their order. Behind one that fails none counts as sent, so that who sends them again has
        them in order. What was refused before anything was written, because the queue changes or its home does, is tried
        again for a while: clients need not notice (Q11)."""
        clock = self._host.runtime.clock
        deadline_ms = clock.now_ms() + PATIENCE_MS
        pause_s, is_late = FIRST_PAUSE_S, False
        while True:
            spec = self._catalog.spec(spec.name)
            topic = spec.topics[0]
            number = (
                shard_for(group, spec.moving_from)
                if spec.moving_from
                else self.choose_partition(topic, group)
            )
            key = partial(spec.queue_config.dedup_key, group.encode())
            keyed = tuple(one._replace(dedup_id=key(one.dedup_id)) for one in messages)
            ask = AskSend(queue=spec.name, queue_id=spec.id, topic=topic, partition=number, messages=keyed)
            try:
                sent = await self._send_via(ask)
                if is_late or sent.sent or not _is_refused(sent.problem):
                    return sent
            except HeadraceError as problem:
                if is_late or isinstance(problem, WrongBroker) or not _is_refused(problem):
                    raise
            await self._changed(pause_s)
            pause_s *= 2
            is_late = clock.now_ms() >= deadline_ms

    async def _changed(self, seconds: float) -> None:
        metadata = self._host.metadata
        revision = metadata.revision
        try:
            await metadata.wait_until(lambda: metadata.revision != revision, seconds)
        except HeadraceError:
            pass  # it may be another broker that was not ready

    def choose_for_moved(self, spec: QueueSpec, record: Record) -> TopicPartition:
        """Where a message goes that is moved to a queue in a transaction (R60): a FIFO queue keeps its groups together."""
        topic = spec.topics[0]
        raw = names.header(record.headers, names.GROUP) if spec.queue_config.fifo else None
        group = None if raw is None else raw.decode(errors="replace")
        number = self.choose_partition(topic, group)
        if group is not None and spec.moving_from and shard_for(group, spec.moving_from) != number:
            # Only the group's old partition knows where it is (migration.py), and a transaction can not ask it.
            raise HeadraceError(
                ErrorKind.NOT_COORDINATOR,
                f"{spec.name} gets another number of partitions; try again when it has them",
            )
        return TopicPartition(topic, number)

    # -- to a partition ------------------------------------------------------------------------------------------------

    async def send_to_partition(
        self, topic: str, number: int, record: Record, era: int = -1, fence: Fence | None = None
    ) -> Sent:
        """With an era: only while the queue is in it. With a fence: only here, and only while that holds."""
        partition = self._host.partitions.get((topic, number))
        if partition is not None and partition.is_leader:
            if fence is None and era >= 0:
                fence = partial(self._is_in, topic, era)
            held = self._senders.get(partition.tp)
            sender = held[1] if held is not None and held[0] is partition else self._sender(partition)
            offset = await sender.send(record, fence)
            return Sent(names.encode_message_id(partition.topic_id, number, offset), number, offset)
        leader = self._image.leader(topic, number)
        if fence or leader is None or leader.id == self._host.node_id:
            return await self.write_here(topic, number, record, era, fence)
        messages = (Outgoing(record),)
        ask = AskSend(queue="", topic=topic, partition=number, messages=messages, era=era)
        return _only(await self._caller.ask(leader.id, ask, SEND_S))

    async def send_for_another(self, ask: AskSend) -> SentSome:
        """A home that does not lead the data itself sends one after the other."""
        sent: list[Sent] = []
        for one in ask.messages:
            try:
                sent.append(await self.write_here(ask.topic, ask.partition, one.record, ask.era))
            except Unknown as refusal:
                if sent:  # some are written: not to be asked for once more
                    raise HeadraceError(refusal.kind, refusal.detail) from refusal
                raise
        return SentSome(sent)

    async def write_here(
        self, topic: str, number: int, record: Record, era: int = -1, fence: Fence | None = None
    ) -> Sent:
        partition, written = self._write(topic, number, record, era, fence)
        return _sent(partition, await written)

    def _write(
        self, topic: str, number: int, record: Record, era: int, fence: Fence | None
    ) -> tuple[Partition, asyncio.Future[int]]:
        """In the order of the calls."""
        partition, missing = self._host.find_partition(topic, number)
        if partition is None or not partition.is_leader:
            # Nothing is written yet, and that we lead it may be the youngest news (F34).
            raise Unknown(missing if partition is None else ErrorKind.NOT_LEADER_OR_FOLLOWER)
        if fence is None and era >= 0:
            fence = partial(self._is_in, topic, era)
        return partition, self._sender(partition).send(record, fence)

    def _is_in(self, queue: str, era: int) -> bool:
        spec = self._catalog.find(queue)
        return spec is not None and spec.era == era

    def _sender(self, partition: Partition) -> Sender:
        held = self._senders.get(partition.tp)
        if held is None or held[0] is not partition:
            sender = Sender(self._host.runtime, partition, self._shards.wrote, self._shards.committed)
            held = self._senders[partition.tp] = (partition, sender)
        return held[1]

    # -- through the home of a partition -------------------------------------------------------------------------------

    async def _send_via(self, ask: AskSend) -> SentSome:
        if ask.hops > MAX_HOPS:
            raise HeadraceError(
                ErrorKind.NOT_COORDINATOR, f"the brokers do not agree yet where {ask.queue} goes"
            )
        source = Source(ask.queue, ask.topic, ask.partition)
        if self._layouts.is_here(source):
            return await self.send_at_home(ask)
        sent: SentSome = await self._caller.ask(self._layouts.home_of(source), ask, SEND_S)
        return sent

    async def send_at_home(self, ask: AskSend) -> SentSome:
        """At the broker that has the journal of a partition: messages that somebody believes belong there."""
        spec = self._catalog.spec(ask.queue)
        source = Source(ask.queue, ask.topic, ask.partition)
        hosted = self._layouts.hosted(source)
        headers = ask.messages[0].record.headers
        group = names.header(headers, names.GROUP) if spec.queue_config.fifo else None
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

    async def _pass_on(self, ask: AskSend, number: int, *, routed_in: int = -1) -> SentSome:
        return await self._send_via(
            msgspec.structs.replace(ask, partition=number, routed_in=routed_in, hops=ask.hops + 1)
        )

    async def _send_from_old(
        self, hosted: Hosted, source: Source, ask: AskSend, group: bytes, era: int, target: int
    ) -> SentSome:
        stay = await self.migration.decide(source, era, group)
        if stay is not None:
            try:
                return await self._send_once(hosted, source, ask, era, stay.holds)
            finally:
                stay.is_over()
        known = [
            await self._find_duplicate(hosted, source, one.dedup_id) if one.dedup_id else None
            for one in ask.messages
        ]
        new = tuple(one for one, first in zip(ask.messages, known, strict=True) if first is None)
        if not new:
            return SentSome([first for first in known if first is not None])
        there = await self._pass_on(msgspec.structs.replace(ask, messages=new), target, routed_in=era)
        rest = iter(there.sent)
        sent: list[Sent] = []
        for first in known:
            one = next(rest, None) if first is None else first
            if one is None:
                break
            sent.append(one)
        return SentSome(sent, there.problem)

    # -- once ----------------------------------------------------------------------------------------------------------

    async def _find_duplicate(self, hosted: Hosted, source: Source, dedup_id: bytes) -> Sent | None:
        wall_ms = self._host.runtime.clock.wall_ms()
        try:
            first = await hosted.submit(engine.FindDuplicate(source, dedup_id, wall_ms))
        except CommandRefused:
            return None  # nothing of this queue has been seen here yet
        if first is None:
            return None
        message_id = names.encode_message_id(hosted.data.topic_id, source.partition, first)
        return Sent(message_id, source.partition, first, True)

    async def _send_once(
        self, hosted: Hosted, source: Source, ask: AskSend, era: int = -1, fence: Fence | None = None
    ) -> SentSome:
        """Each of them unless the engine has seen its like."""
        ids = sorted({one.dedup_id for one in ask.messages} - {b""})
        mine: list[tuple[bytes, asyncio.Future[None]]] = []
        try:
            for dedup_id in ids:  # in their order, so that no two batches wait for each other
                while (running := self._deduplicating.get((source, dedup_id))) is not None:
                    await asyncio.shield(running)
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._deduplicating[source, dedup_id] = future
                mine.append((dedup_id, future))
            known = {one: await self._find_duplicate(hosted, source, one) for one in ids}
            sent = await self._send_new(ask, known, era, fence)
            # To the engine, at once, so that a twin finds what was sent. Behind a long backlog that nobody has looked at yet
            # it is found when it is read: the log decides (queues/dedup.py), and others have their turn in between.
            self._shards.feed_source(hosted, source, at_once=True)
            return sent
        finally:
            for dedup_id, future in mine:
                del self._deduplicating[source, dedup_id]
                future.set_result(None)

    async def _send_new(
        self, ask: AskSend, known: dict[bytes, Sent | None], era: int, fence: Fence | None
    ) -> SentSome:
        """One behind the other, with nothing in between; `known` are duplicates, and what is sent joins them."""
        is_here = fence is not None or _is_led(self._host.partitions.get((ask.topic, ask.partition)))
        partition: Partition | None = None
        written: dict[int, asyncio.Future[int]] = {}
        ids: set[bytes] = {one for one, first in known.items() if first is not None}
        sent: list[Sent] = []
        try:
            if is_here:
                for place, (record, dedup_id) in enumerate(ask.messages):
                    if dedup_id not in ids:
                        partition, written[place] = self._write(ask.topic, ask.partition, record, era, fence)
                        ids |= {dedup_id} - {b""}
            for place, (record, dedup_id) in enumerate(ask.messages):
                first = known.get(dedup_id)
                if first is not None:
                    one = first
                elif partition is not None:
                    one = _sent(partition, await written[place])
                else:
                    one = await self.send_to_partition(ask.topic, ask.partition, record, era)
                sent.append(one)
                if dedup_id:
                    known[dedup_id] = one._replace(duplicate=True)
        except HeadraceError as problem:
            return SentSome(sent, Rejected(problem.kind, problem.detail))
        finally:
            for future in written.values():
                future.add_done_callback(_look_at)  # those behind one that failed
        return SentSome(sent)


def _is_refused(problem: HeadraceError | Rejected | None) -> bool:
    """By somebody who is not, or not for certain, the one to ask: then nothing was written."""
    return problem is not None and problem.kind in (ErrorKind.NOT_COORDINATOR, OTHER_LIFE)


def _look_at(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()


def _only(sent: SentSome) -> Sent:
    if not sent.sent:
        kind, detail = sent.problem or Rejected(ErrorKind.UNKNOWN_SERVER_ERROR)
        raise HeadraceError(kind, detail)
    return sent.sent[0]


def _outcome(
    here: tuple[Partition, Sender] | None, found: int | Sent | BaseException
) -> Sent | HeadraceError:
    if isinstance(found, (Sent, HeadraceError)):
        return found
    if isinstance(found, BaseException):
        raise found
    assert here is not None
    partition = here[0]
    number = partition.tp.partition
    return Sent(names.encode_message_id(partition.topic_id, number, found), number, found)


def _sent(partition: Partition, offset: int) -> Sent:
    number = partition.tp.partition
    return Sent(names.encode_message_id(partition.topic_id, number, offset), number, offset)


def _is_led(partition: Partition | None) -> bool:
    return partition is not None and partition.is_leader
