"""Driver: the group coordinator of this broker, on the partitions of `__consumer_offsets` that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Never, TypeAlias

from headrace.broker.internal_topics import OFFSETS_TOPIC, InternalTopics
from headrace.broker.load import Load
from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.shard_set import ShardSet
from headrace.cluster.deltas import (
    BrokerConfigChanged,
    Delta,
    OpaqueChanged,
    PartitionChanged,
    TopicCreated,
    TopicGone,
)
from headrace.cluster.group_configs import member_config
from headrace.cluster.rows import Topic
from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NAME_BYTES
from headrace.core.plan import AnyCommand, Command, R, WallClock
from headrace.groups.commands import (
    AdoptOffsets,
    ConfigsChanged,
    FetchedOffset,
    FetchOffsets,
    FetchOffsetsResult,
    TopicDeleted,
    TxnMarker,
)
from headrace.groups.config import GroupConfig, Migration, StreamsSettings
from headrace.groups.consumer.commands import TopicsChanged
from headrace.groups.shard import GroupShard
from headrace.groups.topics import Sees, TopicInfo

CONFIGS = "groups/"
RIGHTS = "security/"

TOPICS_SETTLE_S = 0.05
"""Groups are told of all topics at once, so many that are made one after the other are told together (F27)."""


GroupLoad: TypeAlias = Load[GroupShard, Never]


class GroupOverview(NamedTuple):
    group_id: str
    members: int
    offsets: list[tuple[str, int, int]]
    """(topic, partition, committed offset)"""


class Groups(ShardSet[GroupShard, Never]):
    def __init__(
        self,
        runtime: Runtime,
        config: GroupConfig,
        metadata: Metadata,
        internal_topics: InternalTopics,
    ) -> None:
        super().__init__(runtime, OFFSETS_TOPIC, internal_topics, self._new_machine, _no_effects)
        self._metadata = metadata
        self._image = metadata.image
        self._clock = runtime.clock
        self._base = config
        self._config = config
        self._of_groups: dict[str, GroupConfig] | None = None
        """None until somebody asks: the cluster may not be known yet."""
        self._topics: Mapping[str, TopicInfo] = {}
        self._looks_soon = False
        self.sees: Sees | None = None
        """Whether somebody may see a topic: what a pattern finds depends on it (A44). Whoever knows about rights sets it."""

    def _new_machine(self, partition: Partition) -> GroupShard:
        wall_minus_now_ms = self._clock.wall_ms() - self._clock.now_ms()
        own = self._own_configs()
        return GroupShard(self._config, own, wall_minus_now_ms=wall_minus_now_ms)

    async def ask(self, identifier: str, command: Command[R]) -> R:
        if len(identifier) > MAX_NAME_BYTES:
            raise HeadraceError(ErrorKind.INVALID_GROUP_ID, f"a group id has at most {MAX_NAME_BYTES} bytes")
        return await super().ask(identifier, command)

    def confirms(self, command: AnyCommand | None, answer: object) -> bool:
        """R53: whoever asks where to go on must not be sent back to where it was under an earlier coordinator."""
        return isinstance(command, FetchOffsets)

    def look(self) -> Iterator[GroupOverview]:
        """Every group with what it has committed: a look, not a question, so nothing is journaled. Whoever goes through them may
        leave the loop to others in between: what comes or goes meanwhile is seen or not."""
        for shard in list(self.shards.values()):
            table = shard.machine.table
            for group_id in sorted(table.groups.keys() | table.offsets.committed.keys()):
                group = table.groups.get(group_id)
                offsets = [
                    (topic, number, value.offset)
                    for topic, numbers in table.offsets.committed.get(group_id, {}).items()
                    for number, value in numbers.items()
                    if self._may_be_for(topic, value.topic_id)
                ]
                yield GroupOverview(group_id, 0 if group is None else len(group.members), offsets)

    def overview(self) -> list[GroupOverview]:
        """For metrics."""
        return list(self.look())

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, TopicGone):
                self.topic_deleted(delta.name, delta.topic_id)
        configured = {
            delta.key.removeprefix(CONFIGS)
            for delta in deltas
            if isinstance(delta, OpaqueChanged) and delta.key.startswith(CONFIGS)
        }
        of_all = any(isinstance(delta, BrokerConfigChanged) for delta in deltas)
        if configured or of_all:
            self.configs_changed(None if of_all else configured)
        moved = any(
            isinstance(delta, (TopicCreated, TopicGone))
            or (isinstance(delta, PartitionChanged) and delta.old is None)
            or (self.sees is not None and isinstance(delta, OpaqueChanged) and delta.key.startswith(RIGHTS))
            for delta in deltas
        )
        if moved and not self._looks_soon:
            # Many changes may come in one go; the groups look at the outcome once.
            self._looks_soon = True
            asyncio.get_running_loop().call_later(TOPICS_SETTLE_S, self.look_at_topics)

    def look_at_topics(self) -> None:
        """KIP-848 groups are assigned by us, so they have to know what there is to assign."""
        self._looks_soon = False
        racks = {node.id: node.rack for node in self._image.brokers.values() if node.rack is not None}
        self._topics = {
            topic.name: TopicInfo(topic.id, len(topic.partitions), _racks(topic, racks))
            for topic in self._image.topics.values()
        }
        self.tell_loaded(TopicsChanged(self._topics, self.sees))

    # -- configs ---------------------------------------------------------------------------------------------------

    def configs_changed(self, groups: Iterable[str] | None = None) -> None:
        """Of these groups, or of all brokers and so of all groups."""
        if self._of_groups is None or groups is None:
            self._of_groups = None
            own = self._own_configs()
        else:
            own = dict(self._of_groups)
            for group in groups:
                set_here = self._image.group_configs(group)
                if set_here:
                    own[group] = self._config_of(set_here)
                else:
                    own.pop(group, None)
            self._of_groups = own
        self.tell_loaded(ConfigsChanged(self._config, own))

    def _own_configs(self) -> dict[str, GroupConfig]:
        if self._of_groups is None:
            self._config = self._config_of({})
            self._of_groups = {
                group: self._config_of(self._image.group_configs(group))
                for group in self._image.configured_groups()
            }
        return self._of_groups

    def _config_of(self, set_here: Mapping[str, str]) -> GroupConfig:
        found = member_config(set_here, self._image.layers())
        return replace(
            self._base,
            consumer_session_timeout_ms=found.consumer_session_ms,
            consumer_heartbeat_interval_ms=found.consumer_heartbeat_ms,
            consumer_max_size=found.consumer_max_size,
            consumer_migration=Migration(found.consumer_migration),
            share_session_timeout_ms=found.share_session_ms,
            share_heartbeat_interval_ms=found.share_heartbeat_ms,
            share_max_size=found.share_max_size,
            streams=StreamsSettings(
                session_timeout_ms=found.streams_session_ms,
                heartbeat_interval_ms=found.streams_heartbeat_ms,
                standby_replicas=found.streams_standbys,
                initial_rebalance_delay_ms=found.streams_delay_ms,
                assignment_interval_ms=found.streams_interval_ms,
            ),
            streams_max_size=found.streams_max_size,
        )

    def loaded(self, load: GroupLoad) -> None:
        own = self._own_configs()
        load.tell(ConfigsChanged(self._config, own))
        load.tell(TopicsChanged(self._topics, self.sees))
        self._catch_up(load)

    # -- topics that were deleted --------------------------------------------------------------------------------------
    #
    # An offset is kept with the id of its topic. Whoever asks is not given one of another topic, whatever was heard of the
    # deletion; and what nobody can ask for any more is dropped when the deletion is heard of, or by the next to load.

    def topic_deleted(self, topic: str, topic_id: bytes) -> None:
        self.tell_all(TopicDeleted(topic, topic_id))

    def _catch_up(self, load: GroupLoad) -> None:
        """What was deleted while nobody listened, and offsets from before they had ids."""
        adopted: dict[str, bytes] = {}
        for name, topic_id in sorted(load.machine.table.offsets.topics()):
            topic = self._image.topic(name)
            if topic_id and self._image.was_deleted(topic_id.hex()):
                load.tell(TopicDeleted(name, topic_id))
            elif not topic_id and topic is not None:
                adopted[name] = topic.id
        if adopted:
            load.tell(AdoptOffsets(adopted))

    async def fetch_offsets(self, group_id: str, command: FetchOffsets) -> FetchOffsetsResult:
        result = await self.ask(group_id, command)
        if all(self._may_be_for(entry.topic, entry.topic_id) for entry in result.partitions):
            return result
        if any(self._is_strange(entry) for entry in result.partitions):
            await self._reread()  # or it is we who have not heard of the topic that it was committed for
            for name, topic_id in {
                (entry.topic, entry.topic_id) for entry in result.partitions if self._is_strange(entry)
            }:
                self.shard_of(group_id).tell(TopicDeleted(name, topic_id))
        asked_for_all = command.topics is None
        shown = [
            entry if self._may_be_for(entry.topic, entry.topic_id) else FetchedOffset(*entry[:2])
            for entry in result.partitions
        ]
        if asked_for_all:
            shown = [entry for entry in shown if entry.offset >= 0 or entry.error is not ErrorKind.NONE]
        return FetchOffsetsResult(result.error, tuple(shown))

    def _may_be_for(self, topic: str, topic_id: bytes) -> bool:
        """Whether an offset can be a place in the topic that has the name now."""
        if not topic_id:
            return True
        known = self._image.topic(topic)
        return known.id == topic_id if known is not None else not self._image.was_deleted(topic_id.hex())

    def _is_strange(self, entry: FetchedOffset) -> bool:
        """Of a topic that is not the one we know, and of which we do not know that it was deleted."""
        if self._may_be_for(entry.topic, entry.topic_id):
            return False
        return not self._image.was_deleted(entry.topic_id.hex())

    async def _reread(self) -> None:
        try:
            await self._metadata.load()
        except CoordinatorError as problem:
            raise HeadraceError(
                ErrorKind.COORDINATOR_NOT_AVAILABLE, f"the coordinator does not answer: {problem}"
            ) from problem

    def tell_wall_clock(self) -> None:
        self.tell_loaded(WallClock(self._clock.wall_ms()))

    def marker_committed(self, number: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """A transaction that committed offsets here is decided (R50). Who loads reads it in the journal (F5)."""
        shard = self.shards.get(number)
        if shard is not None:
            shard.current.tell(TxnMarker(producer_id, producer_epoch, commit))


def _racks(topic: Topic, racks: dict[int, str]) -> tuple[frozenset[str], ...]:
    if not racks:
        return ()
    return tuple(
        frozenset(racks[replica] for replica in state.replicas if replica in racks) if state else frozenset()
        for state in topic.partitions
    )


def _no_effects(load: GroupLoad, effect: Never) -> None:
    raise AssertionError(f"groups ask for no effects, got {effect!r}")
