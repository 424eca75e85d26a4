"""Driver: creating, growing, deleting and configuring topics. Any broker may do it: each step is a compared
transaction, so two brokers that try the same thing at once can't both succeed (R1). What is refused is refused from the
latest news only: another broker may have answered meanwhile that the name is free, or taken, or larger (F34).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.broker.latest import Latest
from headrace.broker.metadata import Decision, Metadata
from headrace.broker.namesakes import Namesakes
from headrace.broker.queueing import names
from headrace.broker.runtime import Runtime
from headrace.cluster import keys
from headrace.cluster.changes import Change, absent
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.rows import Topic
from headrace.cluster.topics import (
    CreateTopic,
    adopt_journal,
    alter_broker_configs,
    alter_topic_configs,
    create_partitions,
    create_topic,
    delete_topic,
    replace_topic_configs,
)
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.plan import Rejected, accepted

log = logging.getLogger(__name__)

T = TypeVar("T")


class Created(NamedTuple):
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class TopicAdmin:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        latest: Latest,
        namesakes: Namesakes,
        local_ready: Callable[[], Awaitable[None]],
    ) -> None:
        """`local_ready` waits until this broker serves its own replicas, as the image says."""
        self._runtime = runtime
        self._metadata = metadata
        self._latest = latest
        self._namesakes = namesakes
        self._image = metadata.image
        self._local_ready = local_ready
        self.complete: Callable[[str], Awaitable[None]] = _complete
        """What a new topic needs besides itself before its maker is answered: a journal, when queues wait for it."""
        self.owned_keys: Callable[[str], list[str]] = lambda topic: []
        """What is deleted with a topic, in the same transaction; told by the queues, which know whose topics are whose."""

    async def create(
        self, wanted: CreateTopic, *, validate_only: bool = False, since: int | None = None
    ) -> Created:
        """`since`, here and below: a request of many rows doubts its refusals once (Latest.reads)."""
        topic_id = self._runtime.random_bytes(16)
        before = None if validate_only else await self._namesakes.are_gone(wanted.name)

        async def decide() -> Decision[Created]:
            decided = await self._decided(
                lambda: create_topic(
                    self._image,
                    wanted,
                    topic_id=topic_id,
                    wall_ms=self._runtime.clock.wall_ms(),
                    controller_epoch=self._controller_epoch(),
                ),
                since,
            )
            created = Created(
                topic_id, len(decided.partitions), len(decided.partitions[0].replicas), decided.state.configs
            )
            return Decision(() if validate_only else decided.changes, created)

        created = await self._settled(decide)
        if not validate_only:
            # Another one may have made and deleted it while we were waiting: then our maker waits for that one, too.
            await self._namesakes.are_gone(wanted.name, but=before)
            await self.complete(wanted.name)
            await self._local_ready()
        return created

    async def auto_create(self, name: str) -> Topic:
        """First use of a topic in a server that allows it; whoever comes second finds it there."""
        try:
            await self.create(CreateTopic(name))
        except HeadraceError as problem:
            if problem.kind is not ErrorKind.TOPIC_ALREADY_EXISTS:
                raise
        return self._topic(name)

    async def ensure(self, wanted: CreateTopic) -> Topic:
        """An internal topic, created by whoever needs it first."""
        if self._image.topic(wanted.name) is None:
            try:
                await self.create(wanted)
            except HeadraceError as problem:
                if problem.kind is not ErrorKind.TOPIC_ALREADY_EXISTS:
                    raise
                await self._metadata.wait_until(lambda: self._image.topic(wanted.name) is not None)
        return self._topic(wanted.name)

    async def delete(self, name: str, *, since: int | None = None) -> bytes:
        """With its journal and the queue that it is, in one transaction."""
        meant = (await self._decided(lambda: self._topic(name), since)).id

        async def decide() -> Decision[Sequence[Change]]:
            topic = self._topic(name)
            if topic.id != meant:  # another one has done it, and made a new one
                return Decision((), ())
            is_plain = topic.view is None and names.data_topic(name) is None
            first, *others = accepted(
                delete_topic(
                    self._image,
                    topic,
                    self._controller_epoch(),
                    wall_ms=self._runtime.clock.wall_ms(),
                    journal=names.journal_topic(name) if is_plain else "",
                    owned=self.owned_keys(name),
                )
            )
            return Decision((first,), others)

        others = await self._settled(decide)
        await self._metadata.commit_all(others)
        return meant

    async def delete_left_over(self, journal: str, data: str) -> None:
        """A journal without a topic, or of one that was here before. Not when the topic is there after all (S12)."""
        topic = self._image.topic(journal)
        if topic is None:
            return
        first, *others = accepted(
            delete_topic(self._image, topic, self._controller_epoch(), wall_ms=self._runtime.clock.wall_ms())
        )
        if self._image.topic(data) is None:
            first = first._replace(compares=(*first.compares, absent(keys.topic(data))))
        if (await self._metadata.commit(first)).succeeded:
            log.info("%s is deleted: the topic that it was for is gone", journal)
            await self._metadata.commit_all(others)

    async def adopt_journal(self, journal: Topic, data: Topic) -> None:
        await self._metadata.commit(adopt_journal(self._image, journal, data, self._controller_epoch()))

    async def grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        since: int | None = None,
    ) -> None:
        async def decide() -> Decision[None]:
            decided = await self._decided(
                lambda: create_partitions(
                    self._image,
                    self._topic(name),
                    count,
                    controller_epoch=self._controller_epoch(),
                    assignments=assignments,
                ),
                since,
            )
            return Decision(() if validate_only else decided.changes, None)

        await self._settled(decide)
        if not validate_only:
            await self._local_ready()

    async def alter_configs(
        self,
        name: str,
        alterations: Sequence[Alteration],
        *,
        replace: bool,
        validate_only: bool = False,
        since: int | None = None,
    ) -> None:
        def decide() -> Change | Rejected:
            topic, epoch = self._topic(name), self._controller_epoch()
            if replace:
                configs = {entry.name: entry.value for entry in alterations}
                return replace_topic_configs(self._image, topic, configs, epoch)
            return alter_topic_configs(self._image, topic, alterations, epoch)

        await self._decide_and_commit(decide, validate_only, since)

    async def alter_broker_configs(
        self,
        broker_id: int | None,
        alterations: Sequence[Alteration],
        *,
        replace: bool,
        validate_only: bool = False,
        since: int | None = None,
    ) -> None:
        def decide() -> Change | Rejected:
            wanted = list(alterations)
            if replace:
                named = {entry.name for entry in wanted}
                held = self._image.dynamic_configs(broker_id)
                wanted += [Alteration(name, AlterOp.DELETE, None) for name in held if name not in named]
            return alter_broker_configs(self._image, broker_id, wanted, self._controller_epoch())

        await self._decide_and_commit(decide, validate_only, since)

    async def _decide_and_commit(
        self, decide: Callable[[], Change | Rejected], validate_only: bool, since: int | None
    ) -> None:
        async def decided() -> Decision[None]:
            change = await self._decided(decide, since)
            return Decision(() if validate_only else (change,), None)

        await self._settled(decided)

    async def _settled(self, decide: Callable[[], Awaitable[Decision[T]]]) -> T:
        """Kafka's clients try again by themselves after a timeout."""
        return await self._metadata.compare_and_swap(
            decide, "the same metadata", contended=ErrorKind.REQUEST_TIMED_OUT
        )

    async def _decided(self, decide: Callable[[], T | Rejected], since: int | None) -> T:
        """As decided from what is known here; a refusal is thought over with the latest news."""
        try:
            return accepted(decide())
        except HeadraceError as refusal:
            await self._latest.doubt(refusal, since)
        return accepted(decide())

    def _topic(self, name: str) -> Topic:
        topic = self._image.topic(name)
        if topic is None:
            raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{name}"')
        return topic

    def _controller_epoch(self) -> int:
        controller = self._image.controller
        if controller is None:
            raise HeadraceError(ErrorKind.NOT_CONTROLLER, "the cluster has no controller right now")
        return controller.epoch


async def _complete(topic: str) -> None:
    """Most topics need nothing else."""
