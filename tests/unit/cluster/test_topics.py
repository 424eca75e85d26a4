"""Topics as transactions: all or nothing, whatever comes in between (K3, X24, kafka.md traps 20 and 21)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cluster_world import ClusterWorld

from headrace.cluster import keys
from headrace.cluster.changes import Change
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.deleted_topics import KEEP_DELETED_MS
from headrace.cluster.election import raise_epoch
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import PartitionState, decode
from headrace.cluster.topics import (
    CreatedTopic,
    CreateTopic,
    GrownTopic,
    adopt_journal,
    alter_broker_configs,
    alter_topic_configs,
    create_partitions,
    delete_topic,
    leftovers,
    replace_topic_configs,
)
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld(1, 2, 3)


def refused(decided: Any) -> ErrorKind:
    assert isinstance(decided, Rejected), decided
    assert decided.detail
    return decided.kind


def created(decided: CreatedTopic | Rejected) -> CreatedTopic:
    assert isinstance(decided, CreatedTopic), decided
    return decided


def test_numbers(world: ClusterWorld) -> None:
    topic = created(world.decide_topic(CreateTopic("t", 6, 3)))
    assert len(topic.changes) == 1
    world.do(*topic.changes)
    held = world.image.topic("t")
    assert held is not None and len(held.partitions) == 6
    for partition in held.partitions:
        assert partition is not None
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    leaders = [partition.leader for partition in held.partitions if partition is not None]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_defaults_come_from_the_brokers_configs() -> None:
    world = ClusterWorld(1, 2, num_partitions="4", default_replication_factor="2")
    topic = created(world.decide_topic(CreateTopic("t")))
    assert len(topic.partitions) == 4
    assert all(len(partition.replicas) == 2 for partition in topic.partitions)


def test_assignments(world: ClusterWorld) -> None:
    topic = created(world.decide_topic(CreateTopic("t", assignments={0: (3, 1), 1: (2, 3)})))
    assert [partition.replicas for partition in topic.partitions] == [(3, 1), (2, 3)]


def test_an_assigned_replica_that_is_down_is_out_of_sync(world: ClusterWorld) -> None:
    world.register(4)
    topic = created(world.decide_topic(CreateTopic("t", assignments={0: (4, 1)})))
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (1, (1,))
    assert (
        refused(world.decide_topic(CreateTopic("u", assignments={0: (4,)})))
        is ErrorKind.INVALID_REPLICA_ASSIGNMENT
    )


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (CreateTopic(""), ErrorKind.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(".."), ErrorKind.INVALID_TOPIC_EXCEPTION),
        (CreateTopic("a/b"), ErrorKind.INVALID_TOPIC_EXCEPTION),
        (CreateTopic("x" * 250), ErrorKind.INVALID_TOPIC_EXCEPTION),
        (CreateTopic("t\n"), ErrorKind.INVALID_TOPIC_EXCEPTION),
        (CreateTopic("held.name"), ErrorKind.TOPIC_ALREADY_EXISTS),
        (CreateTopic("held_name"), ErrorKind.INVALID_TOPIC_EXCEPTION),
        (CreateTopic("t", 0), ErrorKind.INVALID_PARTITIONS),
        (CreateTopic("t", -2), ErrorKind.INVALID_PARTITIONS),
        (CreateTopic("t", 10_001), ErrorKind.INVALID_PARTITIONS),
        (CreateTopic("t", 1, 0), ErrorKind.INVALID_REPLICATION_FACTOR),
        (CreateTopic("t", 1, 4), ErrorKind.INVALID_REPLICATION_FACTOR),
        (CreateTopic("t", 1, 33), ErrorKind.INVALID_REPLICATION_FACTOR),
        (CreateTopic("t", 1, assignments={0: (1,)}), ErrorKind.INVALID_REQUEST),
        (CreateTopic("t", assignments={1: (1,)}), ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic("t", assignments={0: ()}), ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic("t", assignments={0: (1, 1)}), ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic("t", assignments={0: (1, 2), 1: (1,)}), ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic("t", assignments={0: (9,)}), ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic("t", configs={"nonsense": "1"}), ErrorKind.INVALID_CONFIG),
    ],
)
def test_refusals(world: ClusterWorld, request_: CreateTopic, kind: ErrorKind) -> None:
    world.create("held.name")
    before = world.store.revision
    assert refused(world.decide_topic(request_)) is kind
    assert world.store.revision == before


def test_r1_two_brokers_create_the_same_topic(world: ClusterWorld) -> None:
    first, second = (created(world.decide_topic(CreateTopic("t"))) for _ in range(2))
    assert world.attempt(first.changes[0])
    assert not world.attempt(second.changes[0])


def test_r29_a_member_that_restarts_meanwhile_spoils_the_creation(world: ClusterWorld) -> None:
    topic = created(world.decide_topic(CreateTopic("t", assignments={0: (2, 3)})))
    world.come_back(2)
    assert not world.attempt(topic.changes[0])


def test_a_large_topic_appears_at_once(world: ClusterWorld) -> None:
    topic = created(world.decide_topic(CreateTopic("t", 250, 3)))
    assert len(topic.changes) > 3
    for change in topic.changes[:-1]:
        assert len(change.ops) <= 100 and len(change.compares) <= 100
        world.do(change)
        assert world.image.topic("t") is None
        assert refused(world.decide_topic(CreateTopic("t"))) is ErrorKind.TOPIC_ALREADY_EXISTS
    deltas = world.do(topic.changes[-1])
    assert len(deltas) == 251
    held = world.image.topic("t")
    assert held is not None and None not in held.partitions


def test_a_creation_that_was_cut_short_is_cleared_away(world: ClusterWorld) -> None:
    topic = created(world.decide_topic(CreateTopic("t", 250)))
    world.do(*topic.changes[:2])
    assert leftovers(world.image, wall_ms=2_000, controller_epoch=world.controller_epoch) == [], (
        "it may be under way"
    )
    for _ in range(2):
        world.do(*leftovers(world.image, wall_ms=100_000, controller_epoch=world.controller_epoch))
    assert not [key for key in world.store.held if key.startswith(("topics/", "partitions/"))]
    assert not world.attempt(topic.changes[2]), "the creator finds out"
    world.create("t")


def test_many_replicas_per_transaction_stay_within_the_coordinators_limits() -> None:
    world = ClusterWorld(*range(1, 41))
    topic = created(world.decide_topic(CreateTopic("t", 300, 20)))
    for change in topic.changes:
        assert len(change.ops) <= 128 and len(change.compares) <= 128
    world.do(*topic.changes)


def test_delete(world: ClusterWorld) -> None:
    world.create("t", *[(1, 2)] * 5)
    topic = world.image.topic("t")
    assert topic is not None
    deltas = world.do(*delete_topic(world.image, topic, world.controller_epoch))
    assert [type(delta).__name__ for delta in deltas] == ["TopicGone", "OpaqueChanged"]
    assert not [key for key in world.store.held if key.startswith(("topics/", "partitions/"))]
    again = world.create("t")
    assert again.id != topic.id


def test_a_journal_goes_with_its_topic(world: ClusterWorld) -> None:
    """F1: in one transaction, which is refused when a journal, or the queue, came meanwhile."""
    data = world.create("t", *[(1, 2)] * 2)
    early = delete_topic(world.image, data, world.controller_epoch, journal="j", owned=["queues/t"])
    wanted = CreateTopic("j", assignments={0: (1,), 1: (1,)}, journal_of=data.id)
    late = created(world.decide_topic(wanted))
    world.do(*late.changes)
    journal = world.image.topic("j")
    assert journal is not None and journal.state.journal_of == data.state.id
    assert isinstance(early, list) and not world.attempt(early[0]), "there was no journal then"
    world.do(
        *delete_topic(world.image, data, world.controller_epoch, wall_ms=5, journal="j", owned=["queues/t"])
    )
    assert not [key for key in world.store.held if key.startswith(("topics/", "partitions/"))]
    assert world.image.was_deleted(data.state.id) and world.image.was_deleted(journal.state.id)
    assert not world.attempt(late.changes[0]), "nor is one made for a topic that is gone"
    again = world.create("t")
    gone = world.decide_topic(wanted)
    assert isinstance(gone, Rejected) and gone.kind is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
    assert again.id != data.id


def test_what_is_known_of_deleted_topics_is_bounded(world: ClusterWorld) -> None:
    for number in range(3):
        topic = world.create(f"t{number}")
        world.do(*delete_topic(world.image, topic, world.controller_epoch, wall_ms=number))
    tidy = leftovers(world.image, wall_ms=KEEP_DELETED_MS + 2, controller_epoch=world.controller_epoch)
    world.do(*tidy)
    assert [key for key in world.store.held if key.startswith("deleted/")] == [f"deleted/{topic.id.hex()}"]


def test_f1_a_name_never_goes_back_to_an_epoch_it_has_had(world: ClusterWorld) -> None:
    topic = world.create("t")
    partition = topic.partitions[0]
    assert partition is not None and partition.leader_epoch == 0
    raised = raise_epoch(world.image, topic, 0, 6, partition.leader)
    assert raised is not None
    world.do(raised)
    for life in range(8, 11):
        gone = delete_topic(world.image, topic, world.controller_epoch, wall_ms=life)
        assert not isinstance(gone, Rejected)
        world.do(*gone)
        topic = world.create("t")
        assert {one.leader_epoch for one in topic.partitions if one is not None} == {life}
    grown = create_partitions(world.image, topic, 5, controller_epoch=world.controller_epoch)
    assert isinstance(grown, GrownTopic)
    assert {one.leader_epoch for one in grown.partitions.values()} == {10}, (
        "partitions may have had namesakes, too"
    )
    assert world.image.last_epoch("another") == -1
    world.do(*leftovers(world.image, wall_ms=KEEP_DELETED_MS + 100, controller_epoch=world.controller_epoch))
    assert world.image.last_epoch("t") == -1, "forgotten with the last note"


def test_a_journal_of_an_older_version_is_adopted_once(world: ClusterWorld) -> None:
    data, journal = world.create("t"), world.create("j")
    change = adopt_journal(world.image, journal, data, world.controller_epoch)
    world.do(change)
    assert journal.state.journal_of == data.state.id
    assert not world.attempt(change)


def test_a_deletion_that_was_cut_short(world: ClusterWorld) -> None:
    world.do(*created(world.decide_topic(CreateTopic("t", 250))).changes)
    topic = world.image.topic("t")
    assert topic is not None
    changes = delete_topic(world.image, topic, world.controller_epoch)
    assert len(changes) == 3
    world.do(changes[0])
    assert world.image.topic("t") is None
    world.do(*leftovers(world.image, wall_ms=0, controller_epoch=world.controller_epoch))
    assert not [key for key in world.store.held if key.startswith("partitions/")]


def test_a_deletion_decided_from_an_old_image_fails(world: ClusterWorld) -> None:
    topic = world.create("t")
    changes = delete_topic(world.image, topic, world.controller_epoch)
    alteration = [Alteration("segment.ms", AlterOp.SET, "1000")]
    altered = alter_topic_configs(world.image, topic, alteration, world.controller_epoch)
    assert isinstance(altered, Change)
    world.do(altered)
    assert not world.attempt(changes[0])  # type: ignore[arg-type]


# -- growing ----------------------------------------------------------------------------------------------------------


def grown(
    world: ClusterWorld, count: int, assignments: list[tuple[int, ...]] | None = None
) -> GrownTopic | Rejected:
    topic = world.image.topic("t")
    assert topic is not None
    return create_partitions(
        world.image, topic, count, controller_epoch=world.controller_epoch, assignments=assignments
    )


def test_grow(world: ClusterWorld) -> None:
    world.create("t", (1, 2), (2, 3))
    decided = grown(world, 6)
    assert isinstance(decided, GrownTopic)
    assert list(decided.partitions) == [2, 3, 4, 5]
    world.do(*decided.changes)
    topic = world.image.topic("t")
    assert topic is not None and None not in topic.partitions and len(topic.partitions) == 6
    held = [world.partition(number=number).replicas for number in range(6)]
    assert held[:2] == [(1, 2), (2, 3)]
    load = [sum(broker in replicas for replicas in held) for broker in (1, 2, 3)]
    assert load == [4, 4, 4]


def test_grow_to_given_brokers(world: ClusterWorld) -> None:
    world.create("t", (1,))
    decided = grown(world, 3, [(2,), (3,)])
    assert isinstance(decided, GrownTopic)
    world.do(*decided.changes)
    assert [world.partition(number=number).replicas for number in range(3)] == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("count", "assignments", "kind"),
    [
        (2, None, ErrorKind.INVALID_PARTITIONS),
        (1, None, ErrorKind.INVALID_PARTITIONS),
        (10_001, None, ErrorKind.INVALID_PARTITIONS),
        (4, [(1, 2)], ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1,)], ErrorKind.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1, 9)], ErrorKind.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_is_refused(world: ClusterWorld, count: int, assignments: Any, kind: ErrorKind) -> None:
    world.create("t", (1, 2), (2, 3))
    assert refused(grown(world, count, assignments)) is kind


def test_growth_needs_brokers(world: ClusterWorld) -> None:
    world.create("t", (1, 2, 3))
    world.fail(3)
    assert refused(grown(world, 2)) is ErrorKind.INVALID_REPLICATION_FACTOR


def test_large_growth_that_was_cut_short_can_be_repeated(world: ClusterWorld) -> None:
    world.create("t", (1,))
    first = grown(world, 300)
    assert isinstance(first, GrownTopic) and len(first.changes) > 2
    world.do(first.changes[0])
    assert leftovers(world.image, wall_ms=10**9, controller_epoch=world.controller_epoch) == []
    again = grown(world, 300)
    assert isinstance(again, GrownTopic)
    world.do(*again.changes)
    topic = world.image.topic("t")
    assert topic is not None and None not in topic.partitions


# -- configs ----------------------------------------------------------------------------------------------------------


def test_replacing_all_configs(world: ClusterWorld) -> None:
    topic = world.create("t", (1,), retention_ms="5", segment_ms="1000")
    change = replace_topic_configs(world.image, topic, {"retention.ms": "7"}, world.controller_epoch)
    assert isinstance(change, Change)
    world.do(change)
    assert topic.configs == {"retention.ms": "7"}
    assert (
        refused(replace_topic_configs(world.image, topic, {"x": "7"}, world.controller_epoch))
        is ErrorKind.INVALID_CONFIG
    )


def test_configs_of_brokers(world: ClusterWorld) -> None:
    change = alter_broker_configs(
        world.image, 2, [Alteration("max.connections", AlterOp.SET, "9")], world.controller_epoch
    )
    assert isinstance(change, Change)
    world.do(change)
    assert world.image.dynamic_configs(2) == {"max.connections": "9"}
    assert refused(
        alter_broker_configs(world.image, 2, [Alteration("x", AlterOp.SET, "9")], world.controller_epoch)
    )


def test_what_is_written_is_what_another_broker_reads(world: ClusterWorld) -> None:
    world.do(*created(world.decide_topic(CreateTopic("t", 120, 2, configs={"flush": "os"}))).changes)
    other = ClusterImage()
    other.resync(world.store.snapshot(), world.store.revision)
    mine, theirs = world.image.topic("t"), other.topic("t")
    assert mine is not None and theirs is not None
    assert (mine.state, mine.config, mine.partitions) == (theirs.state, theirs.config, theirs.partitions)
    raw = world.store.held[keys.partition(mine.id, 0)].value
    assert decode(PartitionState, raw) == mine.partitions[0]
    assert msgspec.json.decode(raw)["leader_epoch"] == 0
