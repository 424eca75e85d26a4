"""Driver: the group coordinator of this broker, on the partitions of `__consumer_offsets` that it leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.broker.load import Load
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.shard_set import ShardSet
from headrace.groups.commands import FetchOffsets, TopicDeleted, TxnMarker, WallClock
from headrace.groups.config import GroupConfig
from headrace.groups.consumer.commands import TopicsChanged
from headrace.groups.shard import GroupShard
from headrace.groups.topics import TopicInfo

OFFSETS_TOPIC = "__consumer_offsets"


class GroupOverview(NamedTuple):
    group_id: str
    members: int
    offsets: list[tuple[str, int, int]]
    """(topic, partition, committed offset)"""


class Groups(ShardSet):
    def __init__(
        self, runtime: Runtime, config: GroupConfig, partition_count: Callable[[], int | None]
    ) -> None:
        super().__init__(runtime, partition_count, self._new_machine, _no_effects)
        self._clock = runtime.clock
        self._config = config
        self._topics: Mapping[str, TopicInfo] = {}

    def _new_machine(self, partition: Partition) -> GroupShard:
        return GroupShard(self._config, wall_minus_now_ms=self._clock.wall_ms() - self._clock.now_ms())

    def confirms(self, command: Any, answer: Any) -> bool:
        """R53: whoever asks where to go on must not be sent back to where it was under an earlier coordinator."""
        return isinstance(command, FetchOffsets)

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

    def topics_changed(self, topics: Mapping[str, TopicInfo]) -> None:
        """KIP-848 groups are assigned by us, so they have to know what there is to assign."""
        self._topics = topics
        self.tell_loaded(TopicsChanged(0, topics))

    def loaded(self, load: Load) -> None:
        load.tell(TopicsChanged(0, self._topics))

    def topic_deleted(self, topic: str) -> None:
        self.tell_all(TopicDeleted(0, topic))

    def tell_wall_clock(self) -> None:
        self.tell_loaded(WallClock(0, self._clock.wall_ms()))

    def marker_committed(self, number: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """A transaction that committed offsets here is decided (R50). Who loads reads it in the journal (F5)."""
        shard = self.shards.get(number)
        if shard is not None:
            shard.current.tell(TxnMarker(0, producer_id, producer_epoch, commit))


def _no_effects(load: Load, effect: Any) -> None:
    raise AssertionError(f"groups ask for no effects, got {effect!r}")
