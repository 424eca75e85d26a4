"""Driver: the shards of one internal topic on this broker: one for each of its partitions that we lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from headrace.broker.internal_topics import InternalTopics
from headrace.broker.load import E, Load, M
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.shards import Shard
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import shard_for
from headrace.core.plan import AnyCommand, Command, R


class ShardSet(Generic[M, E]):
    def __init__(
        self,
        runtime: Runtime,
        topic: str,
        internal_topics: InternalTopics,
        make_machine: Callable[[Partition], M],
        perform: Callable[[Load[M, E], E], None],
    ) -> None:
        self._runtime = runtime
        self._topic = topic
        self._internal_topics = internal_topics
        self._make_machine = make_machine
        self._perform = perform
        self.shards: dict[int, Shard[M, E]] = {}

    def owns(self, topic: str) -> bool:
        return topic == self._topic

    def lead(self, partition: Partition) -> None:
        self.resign(partition)
        shard: Shard[M, E] = Shard(
            self._runtime, partition, lambda: self._make_machine(partition), self._perform, self.confirms
        )
        shard.on_ready = self.loaded
        self.shards[partition.tp.partition] = shard
        shard.start()

    def confirms(self, command: AnyCommand | None, answer: object) -> bool:
        """See load.Confirms."""
        return False

    def loaded(self, load: Load[M, E]) -> None:
        """A shard has its state again; what it has to know besides can be told now."""

    def resign(self, partition: Partition) -> None:
        shard = self.shards.pop(partition.tp.partition, None)
        if shard is not None:
            shard.close()

    def number_of(self, identifier: str) -> int | None:
        count = self._internal_topics.partition_count(self._topic)
        return None if count is None else shard_for(identifier, count)

    def shard_of(self, identifier: str) -> Shard[M, E]:
        """Raises NOT_COORDINATOR when another broker, or nobody, has it."""
        number = self.number_of(identifier)
        shard = None if number is None else self.shards.get(number)
        if shard is None:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR)
        return shard

    async def ask(self, identifier: str, command: Command[R]) -> R:
        """Put one command to the shard of `identifier`. It is decided before anything else can happen."""
        return await self.shard_of(identifier).submit(command)

    async def ask_all(self, command: Command[R]) -> list[R]:
        return list(await asyncio.gather(*(shard.submit(command) for shard in list(self.shards.values()))))

    def tell_all(self, command: AnyCommand) -> None:
        for shard in list(self.shards.values()):
            shard.tell(command)

    def tell_loaded(self, command: AnyCommand) -> None:
        """What every load knows when it begins, and what is told again and again."""
        for shard in list(self.shards.values()):
            shard.current.tell(command)
