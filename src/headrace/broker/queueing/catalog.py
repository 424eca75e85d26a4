"""Driver: which queues there are: what the coordinator keeps about them, made, changed and deleted by compared transactions.

A queue is its topic and a journal beside it (`__queue.<topic>`); a subscription reads topics that others own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import count

import msgspec

from headrace.broker.hosts import QueueHost
from headrace.broker.metadata import Decision
from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.specs import QueueSpec, decode_spec, delay_spec, encode_spec
from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, PutKey, absent
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.topics import CreateTopic
from headrace.core.errors import ErrorKind, HeadraceError, Unknown

log = logging.getLogger(__name__)

MAX_REMEMBERED = 10_000
"""Names of queues that were deleted."""


class QueueCatalog:
    def __init__(self, host: QueueHost) -> None:
        self._host = host
        self._image = host.image
        self._specs: dict[str, QueueSpec] = {}
        self._over: dict[str, list[str]] = {}
        self._deleted: dict[str, int] = {}
        self.find = self._specs.get
        """The spec of a queue, or None. Asked with every request, so it is a look into the dictionary itself."""
        self.on_change: Callable[[set[str]], None] = lambda topics: None
        """Told of the topics of queues that are new, changed or gone."""
        host.topics.owned_keys = self._owned_keys
        host.topics.complete = self._topic_made

    def load(self) -> None:
        """Read every queue from the image: at start, and whenever one of them changed."""
        before = dict(self._specs)
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
            self._deleted[name] = self._host.runtime.clock.wall_ms()
            if len(self._deleted) > MAX_REMEMBERED:
                del self._deleted[next(iter(self._deleted))]
        for name in before.keys() - specs.keys():
            del self._specs[name]
        # What has not changed stays the same object: others keep what they made of it.
        self._specs.update({name: spec for name, spec in specs.items() if before.get(name) != spec})
        self._over = {}
        for spec in specs.values():
            for topic in spec.topics:
                self._over.setdefault(topic, []).append(spec.name)
        self.on_change(touched)

    def over(self, topic: str) -> list[QueueSpec]:
        """The queues that read a topic, and what waits in it."""
        found = [self._specs[name] for name in self._over.get(topic, ())]
        known = self._image.topic(topic)
        if known is not None and known.config.delay_enabled:
            found.append(delay_spec(topic))
        return found

    def reader(self, queue: str) -> QueueSpec | None:
        """Whoever reads a topic under this name; None for share groups."""
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

    def require(self, spec: QueueSpec) -> None:
        """Raises Unknown when this queue is gone, whatever has its name now (F1): for who waits."""
        known = self.reader(spec.name)
        if known is None or known.id != spec.id:
            raise Unknown(ErrorKind.QUEUE_DOES_NOT_EXIST, f'the queue "{spec.name}" was deleted')

    def names_over(self, topic: str) -> list[str]:
        return self._over.get(topic, [])

    def all(self) -> list[QueueSpec]:
        return [self._specs[name] for name in sorted(self._specs)]

    async def create(
        self, spec: QueueSpec, partitions: int = 1, topic_configs: Mapping[str, str] | None = None
    ) -> QueueSpec:
        """Make a queue, its topic if it is new, and its journals. An identical one that is there already is fine."""
        problem = spec.queue_config.problem()
        if problem is not None:
            raise HeadraceError(ErrorKind.INVALID_CONFIG, problem)
        key = keys.opaque("queues", spec.name)
        metadata, attempts = self._host.metadata, count()

        async def decide() -> Decision[None]:
            for topic in spec.topics:
                await self._ensure_topic(topic, partitions, topic_configs or {})
                await self.ensure_journal(topic)
            if next(attempts) and self._image.mod_revision(
                key
            ):  # what was refused is told from the latest news (F34)
                raise HeadraceError(
                    ErrorKind.QUEUE_ALREADY_EXISTS, f'a queue called "{spec.name}" exists already'
                )
            compares = [absent(key)]
            if spec.kind == "queue":
                # It is nothing without its topic, which somebody may be deleting right now.
                compares.append(metadata.unchanged(keys.topic(spec.topics[0])))
            put = PutKey(key, encode_spec(self._placed(spec)))
            return Decision((Change(tuple(compares), (put,), f"queue {spec.name} is created"),), None)

        await metadata.compare_and_swap(decide, "the topic of this queue")
        await self._host.caught_up()
        return self.spec(spec.name)

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

    async def change(self, name: str, *, seen: QueueSpec | None = None, **changes: object) -> QueueSpec:
        """Replace fields of a spec; compared, so two changes at once can't lose one another (R1). A decision that rests on
        what was `seen` is carried out only while that is how it is."""

        async def decide() -> Decision[QueueSpec]:
            now = self.spec(name)
            if seen is not None and now != seen:
                raise HeadraceError(ErrorKind.CONFLICT, f"{name} has changed meanwhile")
            spec = msgspec.structs.replace(now, changed_ms=self._host.runtime.clock.wall_ms(), **changes)
            problem = spec.queue_config.problem()
            if problem is not None:
                raise HeadraceError(ErrorKind.INVALID_CONFIG, problem)
            key = keys.opaque("queues", name)
            put = PutKey(key, encode_spec(spec))
            change = Change((self._host.metadata.unchanged(key),), (put,), f"queue {name} changes")
            return Decision((change,), spec)

        return await self._host.metadata.compare_and_swap(decide, "this queue")

    async def delete(self, name: str, *, with_topic: bool = True) -> None:
        """A queue goes with its topic, in one transaction, unless subscriptions read that too."""
        spec = self.spec(name)
        own = self._image.topic(name) if spec.kind == "queue" else None
        if with_topic and own is not None and self._over.get(name) == [name]:
            await self._host.topics.delete(name)
            return
        ops = (DeleteKey(keys.opaque("queues", name)), DeleteKey(keys.opaque("moves", name)))
        await self._host.metadata.commit(Change((), ops, f"queue {name} is deleted"))

    def _owned_keys(self, topic: str) -> list[str]:
        """A topic of a queue's name is the queue; a subscription of that name is something else."""
        spec = self._specs.get(topic)
        if spec is not None and spec.kind != "queue":
            return []
        return [keys.opaque("queues", topic), keys.opaque("moves", topic)]

    async def _ensure_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        if self._image.topic(topic) is None:
            await self._host.topics.ensure(CreateTopic(topic, partitions, configs=dict(configs)))

    async def configure_topic(self, spec: QueueSpec, configs: Mapping[str, str]) -> None:
        """Of a queue with a topic of its own; the topics of a subscription belong to others."""
        changes = [Alteration(name, AlterOp.SET, value) for name, value in configs.items()]
        for topic in spec.topics if spec.kind == "queue" else ():
            await self._host.topics.alter_configs(topic, changes, replace=False)

    def deleted_ms(self, name: str) -> int:
        """When a queue of this name was deleted, as far as this broker has seen; wall clock."""
        return self._deleted.get(name, 0)

    async def ensure_journal(self, topic: str) -> None:
        """A journal partition for every data partition, on the same brokers in the same order."""
        journal = names.journal_topic(topic)
        data = self._image.topic(topic)
        held = self._image.topic(journal)
        if held is not None and data is not None and held.state.journal_of not in ("", data.state.id):
            await self._host.topics.delete_left_over(journal, topic)
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
            await self._host.topics.ensure(wanted)
        elif len(held.partitions) < len(data.partitions):
            new = [replicas[number] for number in range(len(held.partitions), len(data.partitions))]
            await self._host.topics.grow(journal, len(data.partitions), new)

    async def _topic_made(self, topic: str) -> None:
        """Subscriptions outlive their topics, and go on with one that is made again."""
        if self._over.get(topic):
            try:
                await self.ensure_journal(topic)
            except HeadraceError as problem:
                log.info("the journal of %s is left to upkeep: %s", topic, problem.detail)

    def belongs(self, journal: Partition, data: Partition) -> bool:
        """Whether a journal is that of this very topic and not of one that had its name before."""
        known = self._image.topic_by_id(journal.topic_id)
        return known is not None and known.state.journal_of in ("", data.topic_id.hex())
