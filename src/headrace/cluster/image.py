"""Machine: what this broker knows of the cluster, built from the coordinator's keys.

Invariant (R3): a key only ever moves forward. An event is applied only when its revision is above the one held for its
key, deletions included, so lost, repeated and late watch events can do no harm. The held revisions are what
compare-and-swap compares with (R1). A value that does not decode is reported and the last good one kept (X27).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from headrace.cluster import keys
from headrace.cluster.configs import (
    NO_CONFIGS,
    BrokerLayers,
    ConfigKey,
    TopicConfig,
    broker_number,
    resolve_topic,
)
from headrace.cluster.deltas import (
    BrokerConfigChanged,
    BrokerDown,
    BrokerRegistered,
    BrokerUp,
    ControllerChanged,
    Delta,
    OpaqueChanged,
    PartitionChanged,
    TopicConfigChanged,
    TopicCreated,
    TopicGone,
    Undecodable,
)
from headrace.cluster.keys import KeyKind, KeyRef
from headrace.cluster.rows import BrokerNode, ElectedController, Namesake, Topic
from headrace.cluster.state import (
    DELETED,
    BrokerConfigs,
    BrokerRegistration,
    ClusterState,
    ControllerState,
    DeletedTopic,
    Features,
    Fence,
    InvalidState,
    Life,
    NextProducerId,
    PartitionState,
    TopicState,
    decode,
)
from headrace.cluster.views import ViewSpec
from headrace.core.ids import collision_key

_DELETED = f"{DELETED}/"


class Item(Protocol):
    """A key as the coordinator hands it out: an event, or an entry of a snapshot. A value of None is a deletion."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def mod_revision(self) -> int: ...


class ClusterImage:
    def __init__(self, broker_id: int = -1, static_configs: Mapping[str, str] = NO_CONFIGS) -> None:
        """`broker_id` and `static_configs` are this broker's own: they are a layer of every effective config."""
        self.broker_id = broker_id
        self.version = 0
        """Grows with every change, so that answers built from the image can be cached."""
        self.revision = 0
        """The newest coordinator revision seen."""
        self.cluster: ClusterState | None = None
        self.features: Features | None = None
        self.controller: ElectedController | None = None
        self.producer_ids: NextProducerId | None = None
        self.topics: dict[str, Topic] = {}
        self.brokers: dict[int, BrokerNode] = {}
        """Every registered broker, fenced ones included."""
        self._static = static_configs
        self._broker_configs: dict[int | None, Mapping[str, str]] = {}
        self._fences: dict[int, Fence] = {}
        self._lives: dict[int, Life] = {}
        self._topics_by_id: dict[bytes, Topic] = {}
        self._hidden_topics: dict[str, TopicState] = {}
        self._collisions: dict[str, str] = {}
        self._views: dict[str, list[Topic]] = {}
        """The views of each topic, whether the topic is there or not."""
        self._partitions: dict[str, dict[int, PartitionState]] = {}
        self._opaque: dict[str, bytes] = {}
        self._namesakes: dict[str, Namesake] = {}
        """The last deleted topic of each name."""
        self._revisions: dict[str, int] = {}
        self._tombstones: dict[str, int] = {}
        self._floor = 0
        self._resolved: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        """Thousands of topics have a handful of configs between them (F27)."""

    # -- lookups ------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def partition(self, topic: str, number: int) -> PartitionState | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= number < len(found.partitions):
            return None
        return found.partitions[number]

    def broker(self, broker_id: int) -> BrokerNode | None:
        return self.brokers.get(broker_id)

    def is_live(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.fence is None

    def live_brokers(self) -> list[BrokerNode]:
        return [
            self.brokers[broker_id]
            for broker_id in sorted(self.brokers)
            if self.brokers[broker_id].fence is None
        ]

    def leader(self, topic: str, number: int) -> BrokerNode | None:
        """The leader of a partition if there is one and it is registered."""
        partition = self.partition(topic, number)
        return None if partition is None else self.brokers.get(partition.leader)

    def leads_in_this_life(self, topic: Topic, number: int, broker_id: int, broker_epoch: int) -> bool:
        """Whether `broker_id` may act as leader. A leadership older than its registration belongs to an earlier life of
        the broker, which may have known more (R4, R29): the controller takes it away before it lifts the fence.
        """
        partition = topic.partitions[number]
        return (
            partition is not None
            and partition.leader == broker_id
            and self.mod_revision(keys.partition(topic.id, number)) > broker_epoch
        )

    def all_partitions(
        self, only: Collection[str] | None = None
    ) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Those that there are, or of these topics: a view's are its source's."""
        topics = self.topics.values() if only is None else map(self.topics.get, only)
        for topic in topics:
            if topic is None or topic.view is not None:
                continue
            for number, partition in enumerate(topic.partitions):
                if partition is not None:
                    yield topic, number, partition

    def view(self, name: str) -> ViewSpec | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.view

    @property
    def has_views(self) -> bool:
        return bool(self._views)

    def views_of(self, source: str) -> list[str]:
        return sorted(view.name for view in self._views.get(source, ()))

    def colliding_topic(self, name: str) -> str | None:
        """The topic whose name differs from `name` only in `.` and `_` (X24)."""
        return self._collisions.get(collision_key(name))

    def hidden_topic(self, name: str) -> TopicState | None:
        """A topic whose creation is still under way or was cut short."""
        return self._hidden_topics.get(name)

    def hidden_topics(self) -> Mapping[str, TopicState]:
        return self._hidden_topics

    def fence(self, broker_id: int) -> Fence | None:
        """A fence can outlive its broker's registration."""
        return self._fences.get(broker_id)

    def life(self, broker_id: int) -> Life | None:
        return self._lives.get(broker_id)

    def orphan_partitions(self) -> Iterator[str]:
        """Keys of partitions whose topic is gone: left over from a deletion that was cut short."""
        known = {topic.state.id for topic in self.topics.values()}
        known.update(state.id for state in self._hidden_topics.values())
        for topic_id, held in self._partitions.items():
            if topic_id not in known:
                yield from (f"{keys.PARTITIONS}{topic_id}/{number}" for number in sorted(held))

    def opaque(self, space: str) -> dict[str, bytes]:
        """name -> value of one of keys.OPAQUE_SPACES."""
        prefix = f"{space}/"
        return {key[len(prefix) :]: value for key, value in self._opaque.items() if key.startswith(prefix)}

    def was_deleted(self, topic_id_hex: str) -> bool:
        """Whether the metadata says so: a topic that is merely not known is not proof enough to remove anything (S12)."""
        return f"{_DELETED}{topic_id_hex}" in self._opaque

    def last_epoch(self, name: str) -> int:
        """The highest leader epoch that deleted topics of this name have had, as far as that is remembered; -1 for none."""
        held = self._namesakes.get(name)
        return -1 if held is None else held.last_epoch

    def namesake(self, name: str) -> Namesake | None:
        """The topic of this name that was deleted last, as long as that is remembered."""
        return self._namesakes.get(name)

    def group_configs(self, group: str) -> dict[str, str]:
        """What was set for one group; unreadable values count as nothing."""
        raw = self._opaque.get(f"groups/{group}")
        try:
            found = json.loads(raw) if raw is not None else {}
        except ValueError:
            return {}
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def configured_groups(self) -> list[str]:
        """Groups for which something is set."""
        prefix = "groups/"
        names = (key[len(prefix) :] for key in self._opaque if key.startswith(prefix))
        return [name for name in names if self.group_configs(name)]

    def mod_revision(self, key: str) -> int:
        """The revision held for a key, 0 when it does not exist: what a compare expects (R1)."""
        return self._revisions.get(key, 0)

    def layers(self, broker_id: int | None = None) -> BrokerLayers:
        """Config layers of this broker; of another one without its settings, which only it knows."""
        own = broker_id is None or broker_id == self.broker_id
        dynamic = self._broker_configs.get(self.broker_id if broker_id is None else broker_id, NO_CONFIGS)
        return BrokerLayers(dynamic, self.dynamic_configs(None), self._static if own else NO_CONFIGS)

    def number_config(self, key: ConfigKey) -> int | float:
        """What one of this broker's configs says now."""
        return broker_number(key, self.layers())

    def add_settings(self, configs: Mapping[str, str]) -> None:
        """Of what is known only once the broker listens; no default of a topic is among it."""
        self._static = {**self._static, **configs}

    def dynamic_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """What was set at run time for one broker, or for all when broker_id is None."""
        return self._broker_configs.get(broker_id, NO_CONFIGS)

    # -- changes ------------------------------------------------------------------------------------------------------

    def apply(self, item: Item) -> list[Delta]:
        """Take one event. Nothing happens when it is not news (R3)."""
        key, revision = item.key, item.mod_revision
        if revision <= self._held(key):
            return []
        self.revision = max(self.revision, revision)
        return self._take(key, item.value, revision)

    def resync(self, items: Iterable[Item], revision: int) -> list[Delta]:
        """Take a full snapshot at `revision`: keys it lacks are gone, unless something newer is held (R3).

        A snapshot older than one already taken is a stale read (R2) and is ignored.
        """
        if revision < self._floor:
            return []
        deltas: list[Delta] = []
        present: set[str] = set()
        for item in sorted(items, key=lambda item: (_order(item.key), item.key)):
            present.add(item.key)
            deltas += self.apply(item)
        for key, held in list(self._revisions.items()):
            if held <= revision and key not in present:
                deltas += self._take(key, None, revision)
        self._floor = revision
        self.revision = max(self.revision, revision)
        # The floor now answers for every deletion up to here.
        self._tombstones = {key: held for key, held in self._tombstones.items() if held > revision}
        return deltas

    def replace(self, items: Iterable[Item], revision: int) -> list[Delta]:
        """The store itself went back, to a backup: only this snapshot counts, whatever revision was held (F10)."""
        self._floor, self._tombstones = 0, {}
        found = sorted(items, key=lambda item: (_order(item.key), item.key))
        present = {item.key for item in found}
        deltas: list[Delta] = []
        for key in [held for held in self._revisions if held not in present]:
            deltas += self._take(key, None, revision)
        for item in found:
            if item.value is not None and self._has_shrunk(item.key, item.value):
                deltas += self._take(item.key, None, revision)
            deltas += self._take(item.key, item.value, item.mod_revision)
        self._floor = self.revision = revision
        self._tombstones = {}
        return deltas

    def _has_shrunk(self, key: str, value: bytes) -> bool:
        """A topic that had fewer partitions then is seen as another one: a topic never gives partitions up."""
        ref = keys.parse(key)
        if ref is None or ref.kind is not KeyKind.TOPIC or ref.name not in self.topics:
            return False
        try:
            return decode(TopicState, value).partitions < self.topics[ref.name].state.partitions
        except InvalidState:
            return False

    def leader_epochs(self) -> dict[tuple[bytes, int], int]:
        """(topic id, partition) -> its leader epoch."""
        return {
            (topic.id, number): partition.leader_epoch for topic, number, partition in self.all_partitions()
        }

    def _held(self, key: str) -> int:
        held = self._revisions.get(key)
        if held is not None:
            return held
        return max(self._tombstones.get(key, 0), self._floor)

    def _take(self, key: str, value: bytes | None, revision: int) -> list[Delta]:
        ref = keys.parse(key)
        if ref is None:
            return []
        if value is None:
            known = self._revisions.pop(key, None)
            self._tombstones[key] = revision
            deltas = [] if known is None else self._remove(ref, key, revision)
        else:
            try:
                deltas = self._put(ref, key, value, revision)
            except InvalidState as problem:
                # The revision is not recorded: the good value stays what compare-and-swap refers to, so no decision
                # made from it can overwrite the value we could not read.
                return [Undecodable(key, str(problem))]
            self._tombstones.pop(key, None)
        if deltas or ref.kind in _SILENT:
            self.version += 1
        return deltas

    def _put(self, ref: KeyRef, key: str, value: bytes, revision: int) -> list[Delta]:
        match ref.kind:
            case KeyKind.PARTITION:
                return self._put_partition(ref, key, decode(PartitionState, value), revision)
            case KeyKind.TOPIC:
                return self._put_topic(ref.name, key, decode(TopicState, value), revision)
            case KeyKind.BROKER:
                return self._put_broker(ref.number, key, decode(BrokerRegistration, value), revision)
            case KeyKind.FENCE:
                fence = decode(Fence, value)
                self._revisions[key] = revision
                return self._set_fence(ref.number, fence)
            case KeyKind.BROKER_CONFIG:
                configs = decode(BrokerConfigs, value).configs
                self._revisions[key] = revision
                return self._set_broker_configs(None if ref.number < 0 else ref.number, configs)
            case KeyKind.CONTROLLER:
                state = decode(ControllerState, value)
                self._revisions[key] = revision
                self.controller = ElectedController(state.broker_id, revision)
                return [ControllerChanged(self.controller)]
            case KeyKind.EPOCH:
                self._lives[ref.number] = decode(Life, value)
            case KeyKind.CLUSTER:
                self.cluster = decode(ClusterState, value)
            case KeyKind.FEATURES:
                self.features = decode(Features, value)
            case KeyKind.PRODUCER_IDS:
                self.producer_ids = decode(NextProducerId, value)
            case KeyKind.OPAQUE:
                if key.startswith(_DELETED):
                    self._note_deletion(key, value, revision)
                self._opaque[key] = value
                self._revisions[key] = revision
                return [OpaqueChanged(key, value)]
        self._revisions[key] = revision
        return []

    def _remove(self, ref: KeyRef, key: str, revision: int) -> list[Delta]:
        match ref.kind:
            case KeyKind.PARTITION:
                held = self._partitions.get(ref.name, {})
                held.pop(ref.number, None)
                if not held:
                    self._partitions.pop(ref.name, None)
                topic = self._topics_by_id.get(bytes.fromhex(ref.name))
                if topic is not None and ref.number < len(topic.partitions):
                    topic.partitions[ref.number] = None
            case KeyKind.TOPIC:
                return self._remove_topic(ref.name)
            case KeyKind.BROKER:
                broker = self.brokers.pop(ref.number)
                return [BrokerDown(broker.id, broker.epoch, fenced=False)] if broker.live else []
            case KeyKind.FENCE:
                return self._set_fence(ref.number, None)
            case KeyKind.BROKER_CONFIG:
                return self._set_broker_configs(None if ref.number < 0 else ref.number, NO_CONFIGS)
            case KeyKind.CONTROLLER:
                self.controller = None
                return [ControllerChanged(None)]
            case KeyKind.EPOCH:
                self._lives.pop(ref.number, None)
            case KeyKind.CLUSTER:
                self.cluster = None
            case KeyKind.FEATURES:
                self.features = None
            case KeyKind.PRODUCER_IDS:
                self.producer_ids = None
            case KeyKind.OPAQUE:
                value = self._opaque.pop(key, None)
                if value is not None and key.startswith(_DELETED):
                    self._forget_deletion(value)
                return [OpaqueChanged(key, None)]
        return []

    def _note_deletion(self, key: str, value: bytes, revision: int) -> None:
        with suppress(ValueError):  # X27: a note of a newer version still says that there was a topic
            note = decode(DeletedTopic, value)
            held = self._namesakes.get(note.name)
            new = Namesake(bytes.fromhex(key[len(_DELETED) :]), note.deleted_ms, note.last_epoch, revision)
            if held is not None:
                last = max(held.last_epoch, new.last_epoch)
                new = max(held, new, key=lambda one: one.revision)._replace(last_epoch=last)
            self._namesakes[note.name] = new

    def _forget_deletion(self, value: bytes) -> None:
        """The oldest note goes first, and a later topic of that name began above it."""
        with suppress(InvalidState):
            note = decode(DeletedTopic, value)
            if note.last_epoch == self.last_epoch(note.name):
                self._namesakes.pop(note.name, None)

    # -- topics and partitions ----------------------------------------------------------------------------------------

    def _put_topic(self, name: str, key: str, state: TopicState, revision: int) -> list[Delta]:
        deltas: list[Delta] = []
        topic = self.topics.get(name)
        if topic is not None and topic.state.id != state.id:
            # Deleted and created again between two looks (kafka.md trap 21).
            deltas += self._remove_topic(name)
            topic = None
        if topic is not None and state.partitions < topic.state.partitions:
            # Nobody writes this; obeying it would drop data (S12).
            raise InvalidState(
                f"{name} has {len(topic.partitions)} partitions and can not shrink to {state.partitions}"
            )
        self._revisions[key] = revision
        self._collisions[collision_key(name)] = name
        if state.creating:
            self._hidden_topics[name] = state
            return deltas
        self._hidden_topics.pop(name, None)
        if topic is None:
            topic = Topic(name, state, self._resolve(state.configs))
            self.topics[name] = topic
            self._topics_by_id[topic.id] = topic
            self._link_views(topic)
            deltas.append(TopicCreated(topic))
        elif topic.view is not None:
            topic.state = state
        else:
            old, topic.state = topic.config, state
            topic.config = self._resolve(state.configs)
            topic.partitions += [None] * (state.partitions - len(topic.partitions))
            if topic.config != old:
                deltas.append(TopicConfigChanged(topic, old))
        deltas += self._fill_partitions(topic)
        return deltas

    def _resolve(self, overrides: Mapping[str, str]) -> TopicConfig:
        key = tuple(sorted(overrides.items()))
        config = self._resolved.get(key)
        if config is None:
            if len(self._resolved) >= _MAX_RESOLVED:
                self._resolved.clear()
            config = self._resolved[key] = resolve_topic(overrides, self.layers())
        return config

    def _fill_partitions(self, topic: Topic) -> Iterator[Delta]:
        """Partitions that arrived before the topic key that covers them."""
        for number, partition in sorted(self._partitions.get(topic.state.id, {}).items()):
            if number < len(topic.partitions) and topic.partitions[number] is None:
                topic.partitions[number] = partition
                revision = self._revisions[keys.partition(topic.id, number)]
                yield PartitionChanged(topic, number, None, partition, revision)

    def _remove_topic(self, name: str) -> list[Delta]:
        self._collisions.pop(collision_key(name), None)
        self._hidden_topics.pop(name, None)
        topic = self.topics.pop(name, None)
        if topic is None:
            return []
        if self._topics_by_id.get(topic.id) is topic:
            del self._topics_by_id[topic.id]
        if topic.view is not None:
            self._views[topic.view.source].remove(topic)
        for view in self._views.get(name, ()):
            view.partitions = []
        return [TopicGone(name, topic.id, topic.state.partitions)]

    def _link_views(self, topic: Topic) -> None:
        """A view and its source may arrive in any order."""
        if topic.view is not None:
            self._views.setdefault(topic.view.source, []).append(topic)
            source = self.topics.get(topic.view.source)
            topic.partitions = [] if source is None or source.view is not None else source.partitions
            return
        for view in self._views.get(topic.name, ()):
            view.partitions = topic.partitions

    def _put_partition(self, ref: KeyRef, key: str, new: PartitionState, revision: int) -> list[Delta]:
        self._revisions[key] = revision
        self._partitions.setdefault(ref.name, {})[ref.number] = new
        topic = self._topics_by_id.get(bytes.fromhex(ref.name))
        if topic is None or ref.number >= len(topic.partitions):
            return []
        old = topic.partitions[ref.number]
        topic.partitions[ref.number] = new
        return [PartitionChanged(topic, ref.number, old, new, revision)]

    # -- brokers and configs ------------------------------------------------------------------------------------------

    def _put_broker(
        self, broker_id: int, key: str, registration: BrokerRegistration, revision: int
    ) -> list[Delta]:
        self._revisions[key] = revision
        old = self.brokers.get(broker_id)
        new = BrokerNode(broker_id, revision, registration, self._fences.get(broker_id))
        self.brokers[broker_id] = new
        return self._broker_deltas(old, new)

    def _set_fence(self, broker_id: int, fence: Fence | None) -> list[Delta]:
        if fence is None:
            self._fences.pop(broker_id, None)
        else:
            self._fences[broker_id] = fence
        old = self.brokers.get(broker_id)
        if old is None:
            return []
        new = old._replace(fence=fence)
        self.brokers[broker_id] = new
        return self._broker_deltas(old, new)

    @staticmethod
    def _broker_deltas(old: BrokerNode | None, new: BrokerNode) -> list[Delta]:
        if new.live:
            return [BrokerUp(new)] if new != old else []
        if old is not None and old.live:
            return [BrokerDown(old.id, old.epoch, fenced=True), BrokerRegistered(new)]
        return [BrokerRegistered(new)]

    def _set_broker_configs(self, broker_id: int | None, configs: Mapping[str, str]) -> list[Delta]:
        if configs:
            self._broker_configs[broker_id] = configs
        else:
            self._broker_configs.pop(broker_id, None)
        deltas: list[Delta] = [BrokerConfigChanged(broker_id)]
        if broker_id is None or broker_id == self.broker_id:
            self._resolved.clear()
            for topic in self.topics.values():
                old, topic.config = topic.config, self._resolve(topic.state.configs)
                if topic.config != old:
                    deltas.append(TopicConfigChanged(topic, old))
        return deltas


_MAX_RESOLVED = 1_000


def _order(key: str) -> int:
    """In a snapshot: a fence before its broker, so that it is never seen live in between; topics before partitions."""
    if key.startswith(keys.FENCES):
        return 0
    return 2 if key.startswith(keys.PARTITIONS) else 1


_SILENT = (
    KeyKind.EPOCH,
    KeyKind.CLUSTER,
    KeyKind.FEATURES,
    KeyKind.PRODUCER_IDS,
    KeyKind.PARTITION,
    KeyKind.TOPIC,
    KeyKind.BROKER,
)
"""Kinds that can change without a delta."""
