"""Driver: what the doors ask of queues: send, receive, acknowledge, look. Knows no SQS and no HTTP.

Verbs that end in `_here` work on the partitions whose journal this broker leads; the others ask around (anywhere.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.anywhere import Anywhere
from headrace.broker.queueing.dead_letters import DeadLetters
from headrace.broker.queueing.elsewhere import Elsewhere
from headrace.broker.queueing.hosting import Hosted, QueueShards, is_delays
from headrace.broker.queueing.move_tasks import MoveTasks
from headrace.broker.queueing.placing import Placing
from headrace.broker.queueing.questions import AskReceive, AskScheduled, AskSettle, Delivery
from headrace.broker.queueing.releases import Releases, delay_spec
from headrace.broker.queueing.specs import QueueSpec, decode_spec, encode_spec
from headrace.broker.queueing.transfers import Transfers
from headrace.cluster import keys
from headrace.cluster.changes import Change, Compare, Delete, Put
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.image import Delta, OpaqueChanged, TopicConfigChanged
from headrace.cluster.topics import CreateTopic
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.queues import commands as engine
from headrace.queues.commands import Counts, Handle, Received, Source
from headrace.records.build import Record

if TYPE_CHECKING:
    from headrace.broker.hosts import QueueHost

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
MAX_REMEMBERED = 10_000
"""Names of queues that were deleted."""


class QueueDesk:
    def __init__(self, broker: QueueHost) -> None:
        self._broker = broker
        self._image = broker.image
        self._specs: dict[str, QueueSpec] = {}
        self._over: dict[str, list[str]] = {}
        self._turn: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        self.shards = QueueShards(broker.runtime, self._find_data, self._specs_over, self._spec_of)
        transfers = Transfers(broker)
        self.shards.on_delays = Releases(broker, self, transfers).watch
        self._dead_letters = DeadLetters(broker, self, transfers)
        self.shards.on_dead = self._dead_letters.move
        self.shards.settle = transfers.settle
        self.shards.belongs = self._belongs
        broker.topics.owned_keys = self._owned_keys
        broker.topics.complete = self._topic_made
        self.moves = MoveTasks(broker, self, transfers)
        self.anywhere = Anywhere(broker, self)
        self.placing = Placing(broker, self)
        self.choose_partition = self.placing.choose_partition
        self.send = self.placing.send
        self.send_here = self.placing.send_here
        self.load_specs()

    # -- specs -----------------------------------------------------------------------------------------------------

    def heard(self, deltas: list[Delta]) -> None:
        if any(isinstance(delta, OpaqueChanged) and delta.key.startswith("queues/") for delta in deltas):
            self.load_specs()
        changed = {delta.topic.name for delta in deltas if isinstance(delta, TopicConfigChanged)}
        if changed:
            self.shards.specs_changed(changed)

    def opened(self, partition: Partition) -> None:
        """A queue's journal may have been led before its data was opened here."""
        journal = self._broker.partitions.get(
            (names.journal_topic(partition.tp.topic), partition.tp.partition)
        )
        self.shards.data_opened(partition, journal)

    def load_specs(self) -> None:
        """Read every queue from the image: at start, and whenever one of them changed."""
        before = self._specs
        specs: dict[str, QueueSpec] = {}
        for name, raw in self._image.opaque("queues").items():
            spec = decode_spec(raw)
            if spec is not None and spec.name == name:
                specs[name] = spec
        touched = {
            topic
            for name in {*before, *specs}
            if before.get(name) != specs.get(name)
            for spec in (before.get(name), specs.get(name))
            if spec is not None
            for topic in spec.topics
        }
        for name in before.keys() - specs.keys():
            self._deleted[name] = self._broker.runtime.clock.wall_ms()
            if len(self._deleted) > MAX_REMEMBERED:
                del self._deleted[next(iter(self._deleted))]
        self._specs = specs
        self._over = {}
        for spec in specs.values():
            for topic in spec.topics:
                self._over.setdefault(topic, []).append(spec.name)
        self.shards.specs_changed(touched)

    def _specs_over(self, topic: str) -> list[QueueSpec]:
        found = [self._specs[name] for name in self._over.get(topic, ())]
        known = self._image.topic(topic)
        if known is not None and known.config.delay_enabled:
            found.append(delay_spec(topic))
        return found

    def _spec_of(self, queue: str) -> QueueSpec | None:
        if queue.startswith(names.DELAYS_PREFIX):
            return delay_spec(queue.removeprefix(names.DELAYS_PREFIX))
        return self._specs.get(queue)

    def schedule_spec(self, name: str) -> QueueSpec | None:
        """Where messages wait under this name: in a queue, or in a topic with delays."""
        topic = self._image.topic(name)
        if name not in self._specs and topic is not None and topic.config.delay_enabled:
            return delay_spec(name)
        return self._specs.get(name)

    def spec(self, name: str) -> QueueSpec:
        spec = self._specs.get(name)
        if spec is None:
            raise Unknown(ErrorKind.QUEUE_DOES_NOT_EXIST, f'there is no queue called "{name}"')
        return spec

    def find_spec(self, name: str) -> QueueSpec | None:
        return self._specs.get(name)

    def specs(self) -> list[QueueSpec]:
        return [self._specs[name] for name in sorted(self._specs)]

    async def create(
        self, spec: QueueSpec, partitions: int = 1, topic_configs: Mapping[str, str] | None = None
    ) -> QueueSpec:
        """Make a queue, its topic if it is new, and its journals. An identical one that is there already is fine."""
        problem = spec.queue_config.problem()
        if problem is not None:
            raise HeadraceError(ErrorKind.INVALID_CONFIG, problem)
        key = keys.opaque("queues", spec.name)
        for _ in range(MAX_ATTEMPTS):
            for topic in spec.topics:
                await self._ensure_topic(topic, partitions, topic_configs or {})
                await self.ensure_journal(topic)
            spec = self._placed(spec)
            compares = [Compare(key, "mod", 0)]
            if spec.kind == "queue":
                # It is nothing without its topic, which somebody may be deleting right now.
                own = keys.topic(spec.topics[0])
                compares.append(Compare(own, "mod", self._image.mod_revision(own)))
            change = Change(tuple(compares), (Put(key, encode_spec(spec)),), f"queue {spec.name} is created")
            if (await self._broker.metadata.commit(change)).succeeded:
                await self._broker.caught_up()
                return self.spec(spec.name)
            if self._image.mod_revision(key):
                raise HeadraceError(
                    ErrorKind.QUEUE_ALREADY_EXISTS, f'a queue called "{spec.name}" exists already'
                )
        raise HeadraceError(ErrorKind.CONFLICT, "others keep changing the topic of this queue; try again")

    def _placed(self, spec: QueueSpec) -> QueueSpec:
        """With what depends on the partitions that its topics have now."""
        topics = [topic for topic in map(self._image.topic, spec.topics) if topic is not None]
        if spec.queue_config.fifo and spec.kind == "queue":
            # Were its topic to get more partitions, its groups must not change places by themselves (R59).
            active = len(topics[0].partitions) if topics else 0
            spec = msgspec.structs.replace(spec, active=active)
        if spec.start == "latest":
            since = {topic.id.hex(): len(topic.partitions) for topic in topics}
            spec = msgspec.structs.replace(spec, since=since)
        return spec

    async def change(self, name: str, *, attempts: int = MAX_ATTEMPTS, **changes: Any) -> QueueSpec:
        """Replace fields of a spec; compared, so two changes at once can't lose one another (R1)."""
        for _ in range(attempts):
            spec = msgspec.structs.replace(
                self.spec(name), changed_ms=self._broker.runtime.clock.wall_ms(), **changes
            )
            problem = spec.queue_config.problem()
            if problem is not None:
                raise HeadraceError(ErrorKind.INVALID_CONFIG, problem)
            key = keys.opaque("queues", name)
            compare = Compare(key, "mod", self._image.mod_revision(key))
            change = Change((compare,), (Put(key, encode_spec(spec)),), f"queue {name} changes")
            if (await self._broker.metadata.commit(change)).succeeded:
                return spec
        raise HeadraceError(ErrorKind.CONFLICT, "others keep changing this queue; try again")

    async def change_seen(self, seen: QueueSpec, **changes: Any) -> QueueSpec:
        """As `change`, but only if the spec is still the one that the decision rests on."""
        if self.find_spec(seen.name) != seen:
            raise HeadraceError(ErrorKind.CONFLICT, f"{seen.name} has changed meanwhile")
        return await self.change(seen.name, attempts=1, **changes)

    async def delete(self, name: str, *, with_topic: bool = True) -> None:
        """A queue goes with its topic, in one transaction, unless subscriptions read that too."""
        spec = self.spec(name)
        own = self._image.topic(name) if spec.kind == "queue" else None
        if with_topic and own is not None and self._over.get(name) == [name]:
            await self._broker.topics.delete(name)
            return
        ops = (Delete(keys.opaque("queues", name)), Delete(keys.opaque("moves", name)))
        await self._broker.metadata.commit(Change((), ops, f"queue {name} is deleted"))

    def _owned_keys(self, topic: str) -> list[str]:
        """A topic of a queue's name is the queue; a subscription of that name is something else."""
        spec = self._specs.get(topic)
        if spec is not None and spec.kind != "queue":
            return []
        return [keys.opaque("queues", topic), keys.opaque("moves", topic)]

    async def _ensure_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        if self._image.topic(topic) is None:
            await self._broker.topics.ensure(CreateTopic(topic, partitions, configs=dict(configs)))

    async def configure_topic(self, spec: QueueSpec, configs: Mapping[str, str]) -> None:
        """Of a queue with a topic of its own; the topics of a subscription belong to others."""
        changes = [Alteration(name, AlterOp.SET, value) for name, value in configs.items()]
        for topic in spec.topics if spec.kind == "queue" else ():
            await self._broker.topics.alter_configs(topic, changes, replace=False)

    def deleted_ms(self, name: str) -> int:
        """When a queue of this name was deleted, as far as this broker has seen; wall clock."""
        return self._deleted.get(name, 0)

    async def ensure_journal(self, topic: str) -> None:
        """A journal partition for every data partition, on the same brokers in the same order."""
        journal = names.journal_topic(topic)
        data = self._image.topic(topic)
        held = self._image.topic(journal)
        if held is not None and data is not None and held.state.journal_of not in ("", data.state.id):
            await self._broker.topics.delete_left_over(journal, topic)
            held = self._image.topic(journal)
        if data is None:
            raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{topic}"')
        if data.view is not None:
            raise HeadraceError(
                ErrorKind.INVALID_TOPIC_EXCEPTION,
                f"{topic} is a view; subscribe to {data.view.source} with its filter instead: {data.view.where}",
            )
        replicas = {number: state.target for number, state in enumerate(data.partitions) if state is not None}
        if held is None:
            configs: dict[str, str | None] = {
                "cleanup.policy": "compact",
                "segment.bytes": str(16 * 1024 * 1024),
                "headrace.storage": data.config.storage,
            }
            wanted = CreateTopic(journal, assignments=replicas, configs=configs, journal_of=data.id)
            await self._broker.topics.ensure(wanted)
        elif len(held.partitions) < len(data.partitions):
            new = [replicas[number] for number in range(len(held.partitions), len(data.partitions))]
            await self._broker.topics.grow(journal, len(data.partitions), new)

    async def _topic_made(self, topic: str) -> None:
        """Subscriptions outlive their topics, and go on with one that is made again."""
        if self._over.get(topic):
            try:
                await self.ensure_journal(topic)
            except HeadraceError as problem:
                log.info("the journal of %s is left to the keeper: %s", topic, problem.detail)

    def _belongs(self, journal: Partition, data: Partition) -> bool:
        known = self._image.topic_by_id(journal.topic_id)
        return known is not None and known.state.journal_of in ("", data.topic_id.hex())

    # -- where things are --------------------------------------------------------------------------------------------

    def _find_data(self, topic: str, number: int) -> Partition | None:
        return self._broker.partitions.get((topic, number))

    def sources(self, spec: QueueSpec) -> list[Source]:
        found = []
        for topic in spec.topics:
            known = self._image.topic(topic)
            found += [
                Source(spec.name, topic, number) for number in range(len(known.partitions) if known else 0)
            ]
        return found

    def home_of(self, source: Source) -> int:
        """The broker whose shard has this source; -1 when nobody leads it right now."""
        node = self._image.leader(names.journal_topic(source.topic), source.partition)
        return -1 if node is None else node.id

    def hosted(self, source: Source) -> Hosted:
        hosted = self.shards.hosted.get(TopicPartition(source.topic, source.partition))
        if hosted is None:
            raise Elsewhere(self.home_of(source), str(source))
        return hosted

    def is_hosted(self, source: Source) -> bool:
        return TopicPartition(source.topic, source.partition) in self.shards.hosted

    def require_local(self, spec: QueueSpec) -> None:
        """Raises Elsewhere when none of the queue's partitions is led here."""
        sources = self.sources(spec)
        if sources and not self.local_sources(spec):
            raise Elsewhere(self.home_of(sources[0]), spec.name)

    def local_sources(self, spec: QueueSpec) -> list[Source]:
        held = self.shards.hosted
        return [
            source for source in self.sources(spec) if TopicPartition(source.topic, source.partition) in held
        ]

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def receive(
        self,
        spec: QueueSpec,
        max_messages: int,
        *,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        owner: str = "",
    ) -> list[Delivery]:
        """Up to `max_messages`, waiting for the first if there is none."""
        if not self.anywhere.others(spec):
            return await self.receive_here(
                spec, max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, owner=owner
            )
        ask = AskReceive(
            queue=spec.name, count=max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, owner=owner
        )
        return await self.anywhere.receive(spec, ask)

    async def receive_here(
        self,
        spec: QueueSpec,
        max_messages: int,
        *,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        owner: str = "",
        sources: Sequence[Source] | None = None,
    ) -> list[Delivery]:
        """From the partitions that are led here. A receiver that is cancelled takes nothing."""
        clock = self._broker.runtime.clock
        deadline_ms = clock.now_ms() + wait_ms
        while True:
            arrival = self.shards.arrival(spec.name)
            local = list(self.local_sources(spec) if sources is None else sources)
            if not local and self.sources(spec):
                self.require_local(spec)
                raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"no partition of {spec.name} is led here")
            # Without a topic there is nothing to be had; it may be made again while we wait.
            found = await self._receive_now(spec, local, max_messages, visibility_ms, owner) if local else []
            left_ms = deadline_ms - clock.now_ms()
            if found:
                return found
            if left_ms <= 0:
                await self._buried(local)
                return found
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await arrival.wait()
            except TimeoutError:
                deadline_ms = clock.now_ms()

    async def _receive_now(
        self, spec: QueueSpec, sources: list[Source], max_messages: int, visibility_ms: int | None, owner: str
    ) -> list[Delivery]:
        turn = self._turn[spec.name] = (self._turn.get(spec.name, -1) + 1) % len(sources)
        found: list[Delivery] = []
        limited = False
        for source in sources[turn:] + sources[:turn]:
            left = max_messages - len(found)
            if left <= 0:
                break
            hosted = self.hosted(source)
            received = await self.submit(
                source,
                lambda waiter, source=source, left=left: engine.Receive(
                    source, left, visibility_ms, owner, waiter=waiter
                ),
            )
            limited = limited or received.limited
            found += await self._open(hosted, source, received)
        if not found and limited:
            raise HeadraceError(ErrorKind.OVER_LIMIT, "too many messages are in flight")
        return found

    async def _buried(self, sources: Sequence[Source]) -> None:
        """Until no dead letter of theirs is on its way."""
        for source in sources:
            hosted = self.shards.hosted.get(TopicPartition(source.topic, source.partition))
            if hosted is not None and hosted.ready and self._dead_letters.is_busy(hosted.load, source):
                await self._dead_letters.finished(hosted.load, source)

    async def _open(self, hosted: Hosted, source: Source, received: Received) -> list[Delivery]:
        """From offsets to messages. What retention has taken meanwhile is acknowledged: nobody can have it any more."""
        if not received.runs:
            return []
        offsets = [offset for run in received.runs for offset in range(run.first, run.end)]
        records = hosted.payloads.get(offsets, waiting=is_delays(source.queue))
        found: list[Delivery] = []
        gone: list[Handle] = []
        readable = hosted.data.last_stable_offset
        topic_id, number = hosted.data.topic_id, source.partition
        for first, end, delivery, first_received_ms in received.runs:
            for offset in range(first, end):
                handle = Handle(offset, delivery, received.epoch)
                record = records.get(offset)
                if record is not None:
                    message_id = names.message_id_of(record, topic_id, number)
                    found.append(Delivery(source, record, handle, first_received_ms, message_id))
                elif offset < readable:
                    # Beyond what can be read yet it is no gap: its lease ends, and it is handed out again.
                    gone.append(handle)
        if gone:
            await self.submit(
                source, lambda waiter: engine.Ack(source, tuple(gone), engine.Outcome.GAP, waiter=waiter)
            )
        return found

    # -- everything else -----------------------------------------------------------------------------------------------

    async def submit(self, source: Source, make_command: Any) -> Any:
        """Put one command to the shard of `source`. A refusal of the whole command is raised."""
        answer = await self.hosted(source).shard.submit(make_command)
        if isinstance(answer, Rejected):
            raise HeadraceError(answer.kind, answer.detail)
        return answer

    async def ack(self, source: Source, handles: Iterable[Handle]) -> Sequence[Rejected | None]:
        return await self._settle(source, "ack", handles)

    async def extend(
        self,
        source: Source,
        handles: Iterable[Handle],
        visibility_ms: int,
        *,
        stale_may_prolong: bool = False,
    ) -> Sequence[Rejected | None]:
        return await self._settle(
            source, "extend", handles, visibility_ms, stale_may_prolong=stale_may_prolong
        )

    async def release(
        self, source: Source, handles: Iterable[Handle], delay_ms: int | None = None, detail: str = ""
    ) -> Sequence[Rejected | None]:
        """`detail` is kept with the dead letter if this was the last attempt."""
        return await self._settle(source, "release", handles, delay_ms, detail)

    async def reject(
        self, source: Source, handles: Iterable[Handle], detail: str = ""
    ) -> Sequence[Rejected | None]:
        return await self._settle(source, "reject", handles, detail=detail)

    async def _settle(
        self,
        source: Source,
        how: Literal["ack", "extend", "release", "reject"],
        handles: Iterable[Handle],
        amount_ms: int | None = None,
        detail: str = "",
        stale_may_prolong: bool = False,
    ) -> Sequence[Rejected | None]:
        ask = AskSettle(
            queue=source.queue,
            source=source,
            how=how,
            handles=tuple(handles),
            amount_ms=amount_ms,
            detail=detail,
            stale_may_prolong=stale_may_prolong,
        )
        if self.is_hosted(source):
            return await self.settle_here(ask)
        answer: Sequence[Rejected | None] = await self.anywhere.ask(self.home_of(source), ask)
        return answer

    async def settle_here(self, ask: AskSettle) -> Sequence[Rejected | None]:
        source, handles = ask.source, ask.handles
        command: Callable[..., Any]
        match ask.how:
            case "ack":
                command = partial(engine.Ack, source, handles)
            case "extend":
                command = partial(
                    engine.Extend,
                    source,
                    handles,
                    ask.amount_ms or 0,
                    stale_may_prolong=ask.stale_may_prolong,
                )
            case "release":
                draw = int.from_bytes(self._broker.runtime.random_bytes(4), "big") / 2**32
                command = partial(engine.Release, source, handles, ask.amount_ms, draw, ask.detail)
            case "reject":
                command = partial(engine.Reject, source, handles, ask.detail)
        answer: Sequence[Rejected | None] = await self.submit(source, lambda waiter: command(waiter=waiter))
        return answer

    async def purge_here(self, spec: QueueSpec, min_interval_ms: int = 0) -> None:
        for source in self.local_sources(spec):
            await self.submit(
                source,
                lambda waiter, source=source: engine.Purge(
                    source, min_interval_ms=min_interval_ms, waiter=waiter
                ),
            )

    async def pause_here(self, spec: QueueSpec, *, paused: bool) -> None:
        for source in self.local_sources(spec):
            await self.submit(source, lambda waiter: engine.Pause(spec.name, paused, waiter=waiter))
        if not paused:
            self.shards.wake(spec.name)

    async def peek_here(self, spec: QueueSpec, limit: int = 10) -> list[tuple[Source, Record]]:
        """Messages a receive could hand out; nothing changes, nothing is counted."""
        found: list[tuple[Source, Record]] = []
        for source in self.local_sources(spec):
            left = limit - len(found)
            offsets = await self.submit(
                source,
                lambda waiter, source=source, left=left: engine.Peek(source, left, waiter=waiter),
            )
            records = self.hosted(source).payloads.get(offsets)
            found += [(source, records[offset]) for offset in offsets if offset in records]
            if len(found) >= limit:
                break
        return found

    async def scheduled(self, source: Source, from_offset: int, limit: int) -> list[tuple[int, Record]]:
        """(due time, message) of messages that wait for their time, in log order."""
        ask = AskScheduled(queue=source.queue, source=source, from_offset=from_offset, limit=limit)
        if self.is_hosted(source):
            return await self.scheduled_here(ask)
        found: list[tuple[int, Record]] = await self.anywhere.ask(self.home_of(source), ask)
        return found

    async def scheduled_here(self, ask: AskScheduled) -> list[tuple[int, Record]]:
        source = ask.source
        found = await self.submit(
            source, lambda waiter: engine.ListSchedules(source, ask.from_offset, ask.limit, waiter=waiter)
        )
        offsets = [offset for offset, _ in found]
        records = self.hosted(source).payloads.get(offsets, waiting=is_delays(source.queue))
        return [(due_ms, records[offset]) for offset, due_ms in found if offset in records]

    def counts(self, spec: QueueSpec) -> list[tuple[Source, Counts]]:
        """What this broker's shards hold of a queue; a look, not a question."""
        found = []
        for source in self.local_sources(spec):
            counts = self.hosted(source).machine.counts(source)
            if counts is not None:
                found.append((source, counts))
        return found

    def delivered_to(self, tp: TopicPartition) -> int | None:
        """Everything before this is done for every queue and share group that reads the partition
        (`retention=delivered`). None when that is not known here, or nobody reads it."""
        hosted = self.shards.hosted.get(tp)
        if hosted is None or not hosted.ready or not hosted.shard.is_settled:
            return None  # what only memory knows could come back after a crash
        machine = hosted.machine
        sources = machine.sources()
        if not sources or set(self._over.get(tp.topic, ())) - {one.queue for one in sources}:
            return None
        done = [machine.done_offset(source) for source in sources]
        return min((offset for offset in done if offset is not None), default=None)

    def retention_limit(self, partition: Partition) -> int | None:
        """Retention may take what is below. What waits for its time is kept on the leader until it is due, and followers,
        who do not know what waits, follow the leader (None)."""
        if not partition.config.delay_enabled:
            return partition.high_watermark
        if not partition.is_leader:
            return None
        hosted = self.shards.hosted.get(partition.tp)
        source = Source(names.DELAYS_PREFIX + partition.tp.topic, *partition.tp)
        done = hosted.machine.done_offset(source) if hosted is not None and hosted.ready else None
        return None if done is None else min(done, partition.high_watermark)

    def oldest_age_ms(self, spec: QueueSpec) -> int:
        """How long the oldest message that is not done has been there; 0 when there is none."""
        oldest_ms = wall_ms = self._broker.runtime.clock.wall_ms()
        for source, count in self.counts(spec):
            if count.start_offset < count.end_offset:
                try:
                    records = self.hosted(source).payloads.get([count.start_offset])
                except HeadraceError:
                    continue  # a batch that can't be read is the scrubber's business, not the dashboard's
                for record in records.values():
                    oldest_ms = min(oldest_ms, record.timestamp)
        return wall_ms - oldest_ms
