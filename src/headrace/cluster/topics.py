"""Machine: creating, growing, deleting and configuring topics, decided as coordinator transactions.

Changes of one decision are applied in order, each only after the one before it succeeded. Invariant: a topic becomes
visible in one transaction, with all its partitions in place; a creation that is cut short leaves a hidden topic that
the next controller removes, a deletion that is cut short leaves orphans that belong to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headrace.cluster import keys
from headrace.cluster.broker_configs import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from headrace.cluster.changes import (
    MAX_OPS_PER_TRANSACTION,
    Change,
    DeleteKey,
    Expect,
    Op,
    PutKey,
    absent,
    controller_is,
)
from headrace.cluster.configs import (
    Alteration,
    alter_broker,
    alter_topic,
    broker_number,
    canonical_topic_config,
    resolve_topic,
    validated_topic_configs,
)
from headrace.cluster.deleted_topics import first_epoch, forgotten, note_of
from headrace.cluster.image import ClusterImage
from headrace.cluster.placement import Candidate, place
from headrace.cluster.rows import Topic
from headrace.cluster.state import (
    MAX_REPLICAS,
    BrokerConfigs,
    PartitionState,
    TopicState,
    encode,
)
from headrace.cluster.views import MAX_VIEWS_PER_TOPIC, ViewSpec, alteration_problem, wanted_view
from headrace.core.errors import ErrorKind
from headrace.core.ids import topic_name_problem
from headrace.core.limits import MAX_PARTITIONS_PER_BROKER, MAX_PARTITIONS_PER_TOPIC
from headrace.core.plan import Rejected

DEFAULT = -1
"""In a request: as the broker's configs say."""

STORAGE = "headrace.storage"
STALE_CREATION_MS = 60_000


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """partition -> replicas, instead of the two numbers."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    journal_of: bytes = b""
    """The id of the topic that this one is the journal of; it is not made when that topic is gone."""


class CreatedTopic(NamedTuple):
    """What the topic will be; with validate_only the changes are simply not applied."""

    state: TopicState
    partitions: tuple[PartitionState, ...]
    changes: tuple[Change, ...]


class GrownTopic(NamedTuple):
    state: TopicState
    partitions: Mapping[int, PartitionState]
    changes: tuple[Change, ...]


def create_topic(
    image: ClusterImage, request: CreateTopic, *, topic_id: bytes, wall_ms: int, controller_epoch: int
) -> CreatedTopic | Rejected:
    problem = _name_problem(image, request.name)
    if problem is not None:
        return problem
    configs = validated_topic_configs(request.configs, image.layers())
    if isinstance(configs, Rejected):
        return configs
    view = wanted_view(configs)
    if view is not None:
        return (
            view
            if isinstance(view, Rejected)
            else _create_view(image, request, view, configs, topic_id, wall_ms, controller_epoch)
        )
    replicas = _assigned(image, request) if request.assignments else _placed(image, request, topic_id)
    if isinstance(replicas, Rejected):
        return replicas
    crowded = _room_problem(image, sum(map(len, replicas)))
    if crowded is not None:
        return crowded
    partitions = []
    epoch = first_epoch(image, request.name)
    for assigned in replicas:
        new = _new_partition(image, assigned, epoch)
        if isinstance(new, Rejected):
            return new
        partitions.append(new)
    state = TopicState(topic_id.hex(), len(partitions), configs, wall_ms, journal_of=request.journal_of.hex())
    guards = [controller_is(controller_epoch)]
    if request.journal_of:
        data = image.topic_by_id(request.journal_of)
        if data is None:
            return Rejected(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"the topic that {request.name} was for is deleted"
            )
        guards.append(_as_read(image, keys.topic(data.name)))
    changes = _creation(image, request.name, state, partitions, tuple(guards))
    return CreatedTopic(state, tuple(partitions), tuple(changes))


def _room_problem(image: ClusterImage, added: int) -> Rejected | None:
    """A4: what a cluster can be made to hold in forty bytes is bounded by the number of its brokers."""
    held = sum(
        len(topic.partitions) * len(topic.partitions[0].replicas)
        for topic in image.topics.values()
        if topic.view is None and topic.partitions and topic.partitions[0] is not None
    )
    most = MAX_PARTITIONS_PER_BROKER * max(1, len(image.live_brokers()))
    if held + added <= most:
        return None
    return Rejected(
        ErrorKind.POLICY_VIOLATION,
        f"the cluster has {held} replicas and at most {most}: {MAX_PARTITIONS_PER_BROKER} for each live broker",
    )


def _create_view(
    image: ClusterImage,
    request: CreateTopic,
    view: ViewSpec,
    configs: dict[str, str],
    topic_id: bytes,
    wall_ms: int,
    controller_epoch: int,
) -> CreatedTopic | Rejected:
    source = image.topic(view.source)
    if source is None:
        return Rejected(ErrorKind.INVALID_CONFIG, f"there is no topic {view.source} to make a view of")
    if source.view is not None:
        return Rejected(
            ErrorKind.INVALID_CONFIG, f"{view.source} is a view itself; make one of {source.view.source}"
        )
    if len(image.views_of(view.source)) >= MAX_VIEWS_PER_TOPIC:
        return Rejected(ErrorKind.POLICY_VIOLATION, f"a topic has at most {MAX_VIEWS_PER_TOPIC} views")
    partitions = tuple(partition for partition in source.partitions if partition is not None)
    if len(partitions) != len(source.partitions):
        return Rejected(ErrorKind.LEADER_NOT_AVAILABLE, f"topic {view.source} is not complete yet")
    if request.assignments or request.partitions not in (DEFAULT, len(partitions)):
        return Rejected(
            ErrorKind.INVALID_PARTITIONS,
            f"a view has the partitions of its source, {len(partitions)} of them; leave the number out (-1)",
        )
    state = TopicState(topic_id.hex(), 0, configs, wall_ms)
    key, source_key = keys.topic(request.name), keys.topic(view.source)
    change = Change(
        (
            controller_is(controller_epoch),
            absent(key),
            _as_read(image, source_key),
        ),
        # The source's key is touched, so that a deletion decided before this one fails its compare.
        (PutKey(key, encode(state)), PutKey(source_key, encode(source.state))),
        f"view {request.name} of {view.source} is created",
    )
    return CreatedTopic(state, partitions, (change,))


def _name_problem(image: ClusterImage, name: str) -> Rejected | None:
    problem = topic_name_problem(name)
    if problem is not None:
        return Rejected(ErrorKind.INVALID_TOPIC_EXCEPTION, problem)
    if image.topic(name) is not None or image.hidden_topic(name) is not None:
        return Rejected(ErrorKind.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    other = image.colliding_topic(name)
    if other is not None:
        return Rejected(
            ErrorKind.INVALID_TOPIC_EXCEPTION,
            f"{name} would collide with topic {other}: names may not differ only in . and _",
        )
    return None


def _placed(image: ClusterImage, request: CreateTopic, topic_id: bytes) -> list[tuple[int, ...]] | Rejected:
    layers = image.layers()
    count, factor = request.partitions, request.replication_factor
    if count == DEFAULT:
        count = int(broker_number(NUM_PARTITIONS, layers))
    if factor == DEFAULT:
        factor = int(broker_number(DEFAULT_REPLICATION_FACTOR, layers))
    if not 1 <= count <= MAX_PARTITIONS_PER_TOPIC:
        return Rejected(
            ErrorKind.INVALID_PARTITIONS,
            f"a topic has from 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {count}",
        )
    brokers = [Candidate(broker.id, broker.rack) for broker in image.live_brokers()]
    if factor < 1 or factor > MAX_REPLICAS:
        return Rejected(
            ErrorKind.INVALID_REPLICATION_FACTOR,
            f"a topic has from 1 to {MAX_REPLICAS} replicas, not {factor}",
        )
    if factor > len(brokers):
        return Rejected(
            ErrorKind.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need {factor} brokers; {len(brokers)} {'is' if len(brokers) == 1 else 'are'} up",
        )
    return place(topic_id, range(count), factor, brokers)


def _assigned(image: ClusterImage, request: CreateTopic) -> list[tuple[int, ...]] | Rejected:
    if request.partitions != DEFAULT or request.replication_factor != DEFAULT:
        return Rejected(
            ErrorKind.INVALID_REQUEST,
            "give either assignments or numbers of partitions and replicas, not both",
        )
    if sorted(request.assignments) != list(range(len(request.assignments))):
        return Rejected(
            ErrorKind.INVALID_REPLICA_ASSIGNMENT, "assignments must number the partitions from 0 without gaps"
        )
    if len(request.assignments) > MAX_PARTITIONS_PER_TOPIC:
        return Rejected(
            ErrorKind.INVALID_PARTITIONS, f"a topic has at most {MAX_PARTITIONS_PER_TOPIC} partitions"
        )
    replicas = [tuple(request.assignments[number]) for number in range(len(request.assignments))]
    return replicas_problem(image, replicas, len(replicas[0])) or replicas


def replicas_problem(
    image: ClusterImage, assignments: Sequence[Sequence[int]], factor: int
) -> Rejected | None:
    """Why these replicas can't be: each list distinct, of registered brokers, and all of one length."""
    for replicas in assignments:
        if not replicas or len(replicas) > MAX_REPLICAS:
            return Rejected(
                ErrorKind.INVALID_REPLICA_ASSIGNMENT, f"a partition has from 1 to {MAX_REPLICAS} replicas"
            )
        if len(set(replicas)) != len(replicas):
            return Rejected(
                ErrorKind.INVALID_REPLICA_ASSIGNMENT, f"a broker is named twice in {list(replicas)}"
            )
        if len(replicas) != factor:
            return Rejected(
                ErrorKind.INVALID_REPLICA_ASSIGNMENT, "all partitions must have the same number of replicas"
            )
        unknown = [broker for broker in replicas if image.broker(broker) is None]
        if unknown:
            return Rejected(ErrorKind.INVALID_REPLICA_ASSIGNMENT, f"broker {unknown[0]} is not registered")
    return None


def _new_partition(image: ClusterImage, replicas: tuple[int, ...], epoch: int) -> PartitionState | Rejected:
    """All live replicas start in sync: an empty log is complete."""
    isr = tuple(broker for broker in replicas if image.is_live(broker))
    if not isr:
        return Rejected(ErrorKind.INVALID_REPLICA_ASSIGNMENT, f"none of the brokers {list(replicas)} is up")
    return PartitionState(replicas=replicas, leader=isr[0], leader_epoch=epoch, partition_epoch=0, isr=isr)


# -- transactions -----------------------------------------------------------------------------------------------------


def _as_read(image: ClusterImage, key: str) -> Expect:
    """Nobody has changed the key since; it still does not exist when it was not there."""
    return Expect(key, "mod", image.mod_revision(key))


def _members(image: ClusterImage, broker_ids: set[int]) -> list[Expect]:
    """R14, R29: whoever starts in an ISR is still in the life it was chosen in and not fenced."""
    compares: list[Expect] = []
    for broker_id in sorted(broker_ids):
        broker = image.broker(broker_id)
        compares.append(Expect(keys.broker(broker_id), "mod", broker.epoch if broker is not None else 0))
        compares.append(absent(keys.fence(broker_id)))
    return compares


def _chunks(
    image: ClusterImage,
    topic_id: bytes,
    partitions: Mapping[int, PartitionState],
    guards: tuple[Expect, ...],
    why: str,
) -> list[Change]:
    """Puts of partitions, as many per transaction as its operations and its compares allow."""
    changes: list[Change] = []
    ops: list[Op] = []
    members: set[int] = set()
    for number, partition in partitions.items():
        grown = members.union(partition.isr)
        # One operation and some compares are left for the topic's own key and what guards it.
        if ops and (len(ops) >= MAX_OPS_PER_TRANSACTION - 1 or 2 * len(grown) > MAX_OPS_PER_TRANSACTION - 4):
            changes.append(Change((*guards, *_members(image, members)), tuple(ops), why))
            ops, grown = [], set(partition.isr)
        members = grown
        ops.append(PutKey(keys.partition(topic_id, number), encode(partition)))
    return [*changes, Change((*guards, *_members(image, members)), tuple(ops), why)]


def _creation(
    image: ClusterImage,
    name: str,
    state: TopicState,
    partitions: Sequence[PartitionState],
    guards: tuple[Expect, ...],
) -> list[Change]:
    key, controller = keys.topic(name), guards[0]
    numbered = dict(enumerate(partitions))
    why = f"topic {name} is created"
    chunks = _chunks(image, state.topic_id, numbered, guards, why)
    if len(chunks) == 1:
        only = chunks[0]
        return [Change((absent(key), *only.compares), (PutKey(key, encode(state)), *only.ops), why)]
    hidden = encode(msgspec.structs.replace(state, creating=True))
    still_ours = Expect(key, "value", hidden)
    return [
        Change((*guards, absent(key)), (PutKey(key, hidden),), why),
        *_chunks(image, state.topic_id, numbered, (controller, still_ours), why),
        Change((controller, still_ours), (PutKey(key, encode(state)),), why),
    ]


def delete_topic(
    image: ClusterImage,
    topic: Topic,
    controller_epoch: int,
    *,
    wall_ms: int = 0,
    journal: str = "",
    owned: Sequence[str] = (),
) -> list[Change] | Rejected:
    """The first change deletes the topic, its journal and the keys that belong to nothing else; it is refused when one of
    them came or changed meanwhile. The other changes clear away partitions and may fail without harm."""
    views = image.views_of(topic.name)
    if views:
        return Rejected(
            ErrorKind.POLICY_VIOLATION, f"{topic.name} has views, which go first: {', '.join(views)}"
        )
    key, controller = keys.topic(topic.name), controller_is(controller_epoch)
    why = f"topic {topic.name} is deleted"
    gone = [key, *owned]
    states = {topic.name: topic.state}
    if journal:
        gone.append(keys.topic(journal))
        held = image.topic(journal)
        if held is not None:
            states[journal] = held.state
    ops: list[Op] = [DeleteKey(one) for one in gone if image.mod_revision(one)]
    doomed: list[str] = []
    for name, state in states.items():
        held = image.topic(name)
        ops.append(note_of(state, name, held.partitions if held is not None else (), wall_ms))
        doomed += (keys.partition(state.topic_id, number) for number in range(state.partitions))
    first = doomed[: MAX_OPS_PER_TRANSACTION - len(ops)]
    ops += (DeleteKey(partition) for partition in first)
    changes = [Change((controller, *(_as_read(image, one) for one in gone)), tuple(ops), why)]
    return changes + _deletions(doomed[len(first) :], (controller, absent(key)), why)


def adopt_journal(image: ClusterImage, journal: Topic, data: Topic, controller_epoch: int) -> Change:
    """A journal from before there were ids in it belongs to the topic that is there now, and to no later one."""
    key = keys.topic(journal.name)
    return Change(
        (controller_is(controller_epoch), _as_read(image, key), _as_read(image, keys.topic(data.name))),
        (PutKey(key, encode(msgspec.structs.replace(journal.state, journal_of=data.state.id))),),
        f"{journal.name} belongs to {data.name} {data.state.id}",
    )


def _deletions(doomed: Sequence[str], compares: tuple[Expect, ...], why: str) -> list[Change]:
    return [
        Change(
            compares, tuple(DeleteKey(key) for key in doomed[start : start + MAX_OPS_PER_TRANSACTION]), why
        )
        for start in range(0, len(doomed), MAX_OPS_PER_TRANSACTION)
    ]


def create_partitions(
    image: ClusterImage,
    topic: Topic,
    count: int,
    *,
    controller_epoch: int,
    assignments: Sequence[Sequence[int]] | None = None,
) -> GrownTopic | Rejected:
    """Grow a topic to `count` partitions; `assignments` are the replicas of the new ones."""
    have = len(topic.partitions)
    if topic.view is not None:
        return Rejected(
            ErrorKind.INVALID_PARTITIONS, f"{topic.name} is a view and grows with {topic.view.source}"
        )
    if count <= have:
        told = "already has" if count == have else "can not shrink: it has"
        return Rejected(ErrorKind.INVALID_PARTITIONS, f"topic {topic.name} {told} {have} partitions")
    if count > MAX_PARTITIONS_PER_TOPIC:
        return Rejected(
            ErrorKind.INVALID_PARTITIONS, f"a topic has at most {MAX_PARTITIONS_PER_TOPIC} partitions"
        )
    held = [partition.target for partition in topic.partitions if partition is not None]
    if len(held) != have:
        return Rejected(ErrorKind.LEADER_NOT_AVAILABLE, f"topic {topic.name} is not complete yet")
    replicas = _replicas_of_new(image, topic, count, held, assignments)
    if isinstance(replicas, Rejected):
        return replicas
    crowded = _room_problem(image, sum(map(len, replicas)))
    if crowded is not None:
        return crowded
    new: dict[int, PartitionState] = {}
    epoch = first_epoch(image, topic.name)
    for number, assigned in zip(range(have, count), replicas, strict=True):
        partition = _new_partition(image, assigned, epoch)
        if isinstance(partition, Rejected):
            return partition
        new[number] = partition
    state = msgspec.structs.replace(topic.state, partitions=count)
    return GrownTopic(state, new, tuple(_growth(image, topic, state, new, controller_epoch)))


def _replicas_of_new(
    image: ClusterImage,
    topic: Topic,
    count: int,
    held: Sequence[tuple[int, ...]],
    assignments: Sequence[Sequence[int]] | None,
) -> list[tuple[int, ...]] | Rejected:
    factor, added = len(held[0]), range(len(held), count)
    if assignments is not None:
        if len(assignments) != len(added):
            return Rejected(
                ErrorKind.INVALID_REPLICA_ASSIGNMENT,
                f"{len(added)} partitions are added but {len(assignments)} assignments given",
            )
        return replicas_problem(image, assignments, factor) or [tuple(replicas) for replicas in assignments]
    brokers = [Candidate(broker.id, broker.rack) for broker in image.live_brokers()]
    if factor > len(brokers):
        return Rejected(
            ErrorKind.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need {factor} brokers; {len(brokers)} {'is' if len(brokers) == 1 else 'are'} up",
        )
    return place(topic.id, added, factor, brokers, held)


def _growth(
    image: ClusterImage,
    topic: Topic,
    state: TopicState,
    new: Mapping[int, PartitionState],
    controller_epoch: int,
) -> list[Change]:
    key, controller = keys.topic(topic.name), controller_is(controller_epoch)
    as_read = Expect(key, "mod", image.mod_revision(key))
    why = f"topic {topic.name} grows to {state.partitions} partitions"
    changes = _chunks(image, topic.id, new, (controller, as_read), why)
    last = changes[-1]
    changes[-1] = last._replace(ops=(PutKey(key, encode(state)), *last.ops))
    return changes


# -- configs ----------------------------------------------------------------------------------------------------------


def alter_topic_configs(
    image: ClusterImage, topic: Topic, alterations: Sequence[Alteration], controller_epoch: int
) -> Change | Rejected:
    named = {canonical_topic_config(alteration.name) for alteration in alterations}
    problem = alteration_problem(topic.name, topic.view is not None, named)
    if problem is not None:
        return problem
    configs = alter_topic(topic.state.configs, alterations, image.layers())
    if isinstance(configs, Rejected):
        return configs
    return _moves_data(image, topic, configs) or _configured(image, topic, configs, controller_epoch)


def replace_topic_configs(
    image: ClusterImage, topic: Topic, configs: Mapping[str, str | None], controller_epoch: int
) -> Change | Rejected:
    """The old AlterConfigs: what is not named goes back to its default."""
    given = {canonical_topic_config(name) for name, value in configs.items() if value}
    problem = alteration_problem(topic.name, topic.view is not None, given)
    if problem is not None:
        return problem
    if STORAGE not in given and STORAGE in topic.state.configs:
        configs = {**configs, STORAGE: topic.state.configs[STORAGE]}
    validated = validated_topic_configs(configs, image.layers())
    if isinstance(validated, Rejected):
        return validated
    return _moves_data(image, topic, validated) or _configured(image, topic, validated, controller_epoch)


def _moves_data(image: ClusterImage, topic: Topic, configs: Mapping[str, str]) -> Rejected | None:
    """Where a log lies is decided when it is opened; and what counts as durable is decided from the config (R29). So they must
    not part under a live topic (F7)."""
    if topic.view is not None or resolve_topic(configs, image.layers()).storage == topic.config.storage:
        return None
    return Rejected(
        ErrorKind.INVALID_CONFIG,
        f"{STORAGE} is fixed when a topic is made: {topic.name} keeps its data on {topic.config.storage}; make another topic",
    )


def _configured(image: ClusterImage, topic: Topic, configs: dict[str, str], controller_epoch: int) -> Change:
    key = keys.topic(topic.name)
    return Change(
        (controller_is(controller_epoch), Expect(key, "mod", image.mod_revision(key))),
        (PutKey(key, encode(msgspec.structs.replace(topic.state, configs=configs))),),
        f"configs of topic {topic.name} change",
    )


def alter_broker_configs(
    image: ClusterImage, broker_id: int | None, alterations: Sequence[Alteration], controller_epoch: int
) -> Change | Rejected:
    """Dynamic configs of one broker, or of all when broker_id is None."""
    held = image.dynamic_configs(broker_id)
    configs = alter_broker(held, alterations, broker_id=broker_id, layers=image.layers(broker_id))
    if isinstance(configs, Rejected):
        return configs
    key = keys.broker_config(broker_id)
    return Change(
        (controller_is(controller_epoch), Expect(key, "mod", image.mod_revision(key))),
        (PutKey(key, encode(BrokerConfigs(configs))),),
        f"configs of {'all brokers' if broker_id is None else f'broker {broker_id}'} change",
    )


# -- leftovers --------------------------------------------------------------------------------------------------------


def leftovers(image: ClusterImage, *, wall_ms: int, controller_epoch: int) -> list[Change]:
    """Clear away what creations and deletions that were cut short have left behind. Never touches data on disk (S12)."""
    controller = controller_is(controller_epoch)
    changes = []
    for name, state in sorted(image.hidden_topics().items()):
        if wall_ms - state.created_ms >= STALE_CREATION_MS:
            key = keys.topic(name)
            compares = (controller, Expect(key, "mod", image.mod_revision(key)))
            changes.append(Change(compares, (DeleteKey(key),), f"creation of topic {name} was cut short"))
    for key in image.orphan_partitions():
        compares = (controller, Expect(key, "mod", image.mod_revision(key)))
        changes.append(Change(compares, (DeleteKey(key),), f"{key} belongs to no topic"))
    return changes + forgotten(image, wall_ms, controller)
