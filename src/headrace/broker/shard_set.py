"""Driver: the shards of one internal topic on this broker: one for each of its partitions that we lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.broker.internal_topics import InternalTopics
from headrace.broker.load import Load
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.shards import Shard
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import shard_for
from headrace.core.plan import Machine


class ShardSet:
    def __init__(
        self,
        runtime: Runtime,
        topic: str,
        internal_topics: InternalTopics,
        make_machine: Callable[[Partition], Machine],
        perform: Callable[[Load, Any], None],
    ) -> None:
        self._runtime = runtime
        self._topic = topic
        self._internal_topics = internal_topics
        self._make_machine = make_machine
        self._perform = perform
        self.shards: dict[int, Shard] = {}

    def owns(self, topic: str) -> bool:
        return topic == self._topic

    def lead(self, partition: Partition) -> None:
        self.resign(partition)
        shard = Shard(
            self._runtime, partition, lambda: self._make_machine(partition), self._perform, self.confirms
        )
        shard.on_ready = self.loaded
        self.shards[partition.tp.partition] = shard
        shard.start()

    def confirms(self, command: Any, answer: Any) -> bool:
        """See shards.Confirms."""
        return False

    def loaded(self, load: Load) -> None:
        """A shard has its state again; what it has to know besides can be told now."""

    def resign(self, partition: Partition) -> None:
        shard = self.shards.pop(partition.tp.partition, None)
        if shard is not None:
            shard.close()

    def number_of(self, identifier: str) -> int | None:
        count = self._internal_topics.partition_count(self._topic)
        return None if count is None else shard_for(identifier, count)

    def shard_of(self, identifier: str) -> Shard:
        """Raises NOT_COORDINATOR when another broker, or nobody, has it."""
        number = self.number_of(identifier)
        shard = None if number is None else self.shards.get(number)
        if shard is None:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR)
        return shard

    async def ask(self, identifier: str, make_command: Callable[[int], Any]) -> Any:
        """Put one command to the shard of `identifier`. It is decided before anything else can happen."""
        return await self.shard_of(identifier).submit(make_command)

    async def ask_all(self, make_command: Callable[[int], Any]) -> list[Any]:
        return list(
            await asyncio.gather(*(shard.submit(make_command) for shard in list(self.shards.values())))
        )

    def tell_all(self, command: Any) -> None:
        for shard in list(self.shards.values()):
            shard.tell(command)

    def tell_loaded(self, command: Any) -> None:
        """What every load knows when it begins, and what is told again and again."""
        for shard in list(self.shards.values()):
            shard.current.tell(command)
