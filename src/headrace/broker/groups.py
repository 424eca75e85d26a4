"""Driver: the group coordinator of this broker: a shard for each partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.shards import Shard
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import shard_for
from headrace.groups.commands import TopicDeleted, WallClock
from headrace.groups.config import GroupConfig
from headrace.groups.shard import GroupShard

OFFSETS_TOPIC = "__consumer_offsets"


class GroupOverview(NamedTuple):
    group_id: str
    members: int
    offsets: list[tuple[str, int, int]]
    """(topic, partition, committed offset)"""


class Groups:
    def __init__(
        self, runtime: Runtime, config: GroupConfig, partition_count: Callable[[], int | None]
    ) -> None:
        """`partition_count` is how many partitions the offsets topic has; None while it does not exist."""
        self._runtime = runtime
        self._config = config
        self._partition_count = partition_count
        self.shards: dict[int, Shard] = {}

    # -- leadership ------------------------------------------------------------------------------------------

    def lead(self, partition: Partition) -> None:
        self.resign(partition.tp.partition)
        shard = Shard(self._runtime, partition, self._new_machine, _no_effects)
        self.shards[partition.tp.partition] = shard
        self._runtime.spawn(shard.load(), f"load {partition.tp}")

    def _new_machine(self) -> GroupShard:
        clock = self._runtime.clock
        return GroupShard(self._config, wall_minus_now_ms=clock.wall_ms() - clock.now_ms())

    def resign(self, number: int) -> None:
        shard = self.shards.pop(number, None)
        if shard is not None:
            shard.close()

    # -- questions -------------------------------------------------------------------------------------------

    def shard_number(self, group_id: str) -> int | None:
        count = self._partition_count()
        return None if count is None else shard_for(group_id, count)

    async def ask(self, group_id: str, make_command: Callable[[int], Any]) -> Any:
        """Put one command to the shard of `group_id`. Raises HeadraceError when this broker can't answer for it."""
        number = self.shard_number(group_id)
        shard = None if number is None else self.shards.get(number)
        if shard is None:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR)
        return await shard.submit(make_command)

    async def ask_all(self, make_command: Callable[[int], Any]) -> list[Any]:
        return list(
            await asyncio.gather(*(shard.submit(make_command) for shard in list(self.shards.values())))
        )

    def overview(self) -> list[GroupOverview]:
        """Every group with what it has committed, for metrics: a look, not a question, so nothing is journaled."""
        found = []
        for shard in self.shards.values():
            assert isinstance(shard.machine, GroupShard)
            table = shard.machine.table
            for group_id in sorted(table.groups.keys() | table.offsets.committed.keys()):
                group = table.groups.get(group_id)
                offsets = [
                    (topic, number, value.offset)
                    for topic, numbers in table.offsets.committed.get(group_id, {}).items()
                    for number, value in numbers.items()
                ]
                found.append(GroupOverview(group_id, 0 if group is None else len(group.members), offsets))
        return found

    def topic_deleted(self, topic: str) -> None:
        for shard in self.shards.values():
            shard.tell(TopicDeleted(0, topic))

    def tell_wall_clock(self) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        for shard in self.shards.values():
            shard.tell(WallClock(0, wall_ms))


def _no_effects(shard: Shard, effect: Any) -> None:
    raise AssertionError(f"groups ask for no effects, got {effect!r}")
