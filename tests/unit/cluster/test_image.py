"""The image: lookups, deltas, and R3: nothing that is lost, repeated or late can turn it back."""

from __future__ import annotations

import msgspec
import pytest
from cluster_world import ClusterWorld
from tiny_coordinator import KeyEvent

from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey
from headrace.cluster.configs import Alteration, AlterOp
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
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import BrokerConfigs, PartitionState, TopicState, encode
from headrace.cluster.topics import alter_broker_configs, alter_topic_configs, delete_topic

TOPIC_ID = bytes(range(16))
TOPIC = TopicState(TOPIC_ID.hex(), 2, {"retention.ms": "5"}, 0)
PARTITION = PartitionState(replicas=(1, 2), leader=1, leader_epoch=0, partition_epoch=0, isr=(1, 2))


def names(deltas: list[Delta]) -> list[str]:
    return [type(delta).__name__ for delta in deltas]


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld(1, 2, 3)


def test_lookups(world: ClusterWorld) -> None:
    topic = world.create("t", (1, 2), (2, 3), retention_ms="5")
    image = world.image
    assert image.topic("t") is topic
    assert image.topic_by_id(topic.id) is topic
    assert image.partition("t", 1) is topic.partitions[1]
    assert image.partition("t", 2) is None
    assert image.partition("t", -1) is None
    assert image.partition("u", 0) is None
    assert image.topic("t") is not None and len(image.topics["t"].partitions) == 2
    assert image.topic("u") is None
    leader = image.leader("t", 1)
    assert leader is not None and leader.id == 2
    assert [broker.id for broker in image.live_brokers()] == [1, 2, 3]
    assert topic.config.retention_ms == 5
    assert not topic.internal
    assert world.create("__x").internal


def test_an_event_counts_once_and_only_forwards() -> None:
    """R3: the same event again, or an older one after it, changes nothing."""
    image = ClusterImage()
    new, old = KeyEvent(keys.topic("t"), encode(TOPIC), 7), KeyEvent(keys.topic("t"), encode(TOPIC), 5)
    assert names(image.apply(new)) == ["TopicCreated"]
    assert image.apply(new) == []
    assert image.apply(old) == []
    assert image.mod_revision(keys.topic("t")) == 7


def test_a_late_put_does_not_bring_a_deleted_key_back() -> None:
    """R3: deletions are remembered too."""
    image = ClusterImage()
    image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 5))
    assert names(image.apply(KeyEvent(keys.topic("t"), None, 9))) == ["TopicGone"]
    assert image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 8)) == []
    assert image.topic("t") is None
    assert image.mod_revision(keys.topic("t")) == 0


def test_a_deletion_that_overtakes_its_put_wins() -> None:
    image = ClusterImage()
    assert image.apply(KeyEvent(keys.topic("t"), None, 9)) == []
    assert image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 8)) == []
    assert names(image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 10))) == ["TopicCreated"]


def test_resync_finds_what_the_watch_lost(world: ClusterWorld) -> None:
    """R3: lost puts, changes and deletions."""
    other = ClusterImage()
    world.create("a", (1, 2))
    world.create("b", (1, 2))
    other.resync(world.store.snapshot(), world.store.revision)
    topic = world.image.topic("a")
    assert topic is not None
    world.do(*delete_topic(world.image, topic, world.controller_epoch))
    world.create("c", (3,))
    world.fail(2)
    deltas = other.resync(world.store.snapshot(), world.store.revision)
    assert sorted(names(deltas)) == [
        "BrokerDown",
        "OpaqueChanged",
        "PartitionChanged",
        "PartitionChanged",
        "TopicCreated",
        "TopicGone",
    ]
    assert set(other.topics) == {"b", "c"}
    assert other.partition("b", 0) == world.partition("b")
    assert other.resync(world.store.snapshot(), world.store.revision) == []


def test_resync_keeps_what_is_newer_than_the_snapshot() -> None:
    image = ClusterImage()
    image.apply(KeyEvent(keys.topic("kept"), encode(TOPIC), 12))
    assert image.resync([], 11) == []
    assert image.topic("kept") is not None
    assert names(image.resync([], 12)) == ["TopicGone"]


def test_a_stale_snapshot_is_ignored() -> None:
    """R2: a read from a lagging server must not turn the image back."""
    image = ClusterImage()
    image.resync([], 20)
    assert image.resync([KeyEvent(keys.topic("t"), encode(TOPIC), 5)], 19) == []
    assert image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 20)) == []
    assert image.topic("t") is None


def test_tombstones_do_not_pile_up() -> None:
    image = ClusterImage()
    for revision in range(2, 50):
        image.apply(KeyEvent(keys.topic(f"t{revision}"), None, revision))
    image.resync([], 60)
    assert image._tombstones == {}
    assert image.apply(KeyEvent(keys.topic("t3"), encode(TOPIC), 2)) == []


def test_partitions_may_arrive_before_their_topic() -> None:
    image = ClusterImage()
    assert image.apply(KeyEvent(keys.partition(TOPIC_ID, 0), encode(PARTITION), 5)) == []
    deltas = image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 5))
    assert names(deltas) == ["TopicCreated", "PartitionChanged"]
    assert image.partition("t", 0) == PARTITION
    assert image.partition("t", 1) is None
    (late,) = image.apply(KeyEvent(keys.partition(TOPIC_ID, 1), encode(PARTITION), 6))
    assert isinstance(late, PartitionChanged) and late.old is None and late.revision == 6


def test_a_topic_created_again_is_a_new_topic() -> None:
    """kafka.md trap 21: same name, new id, even if the deletion was never seen."""
    image = ClusterImage()
    image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 5))
    image.apply(KeyEvent(keys.partition(TOPIC_ID, 0), encode(PARTITION), 5))
    again = msgspec.structs.replace(TOPIC, id="ff" * 16)
    deltas = image.apply(KeyEvent(keys.topic("t"), encode(again), 9))
    assert deltas[0] == TopicGone("t", TOPIC_ID, 2)
    assert isinstance(deltas[1], TopicCreated)
    assert image.topic_by_id(TOPIC_ID) is None
    assert image.partition("t", 0) is None


def test_a_topic_that_shrinks_is_not_believed() -> None:
    """S12: nothing is dropped because metadata looks odd."""
    image = ClusterImage()
    image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 5))
    shrunk = msgspec.structs.replace(TOPIC, partitions=1)
    assert names(image.apply(KeyEvent(keys.topic("t"), encode(shrunk), 6))) == ["Undecodable"]
    assert len(image.topics["t"].partitions) == 2


def test_an_unreadable_value_leaves_the_last_good_one() -> None:
    """X27; and R1: the revision held stays that of the good value, so nobody can overwrite what we could not read."""
    image = ClusterImage()
    image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 5))
    (delta,) = image.apply(KeyEvent(keys.topic("t"), b"{broken", 6))
    assert isinstance(delta, Undecodable) and delta.key == "topics/t"
    assert image.topic("t") is not None
    assert image.mod_revision(keys.topic("t")) == 5


def test_a_topic_under_construction_is_hidden() -> None:
    image = ClusterImage()
    hidden = msgspec.structs.replace(TOPIC, creating=True)
    assert image.apply(KeyEvent(keys.topic("t.x"), encode(hidden), 5)) == []
    assert image.topic("t.x") is None
    assert image.hidden_topic("t.x") == hidden
    assert image.colliding_topic("t_x") == "t.x"
    assert names(image.apply(KeyEvent(keys.topic("t.x"), encode(TOPIC), 6))) == ["TopicCreated"]
    assert image.hidden_topic("t.x") is None


def test_brokers_come_and_go(world: ClusterWorld) -> None:
    assert world.image.is_live(2)
    epoch = world.epoch(2)
    world.store.delete(keys.broker(2))
    assert world.catch_up() == [BrokerDown(2, epoch, fenced=False)]
    assert world.image.broker(2) is None
    world.register(2)
    found = world.image.broker(2)
    assert found is not None and not found.live and found.epoch > epoch
    fence = world.store.held[keys.fence(2)]
    world.store.delete(keys.fence(2))
    (up,) = world.catch_up()
    assert isinstance(up, BrokerUp) and up.broker.id == 2
    world.store.put(keys.fence(2), fence.value)
    assert names(world.catch_up()) == ["BrokerDown", "BrokerRegistered"]


def test_a_registration_is_never_seen_without_its_fence() -> None:
    """R4: neither by the watch nor in a snapshot, where keys come sorted."""
    world = ClusterWorld(1)
    watcher = ClusterImage()
    watched = [delta for event in world.store.history[:3] for delta in watcher.apply(event)]
    assert "BrokerUp" not in names(watched)
    fresh = ClusterWorld()
    fresh.register(4)
    other = ClusterImage()
    (delta,) = other.resync(fresh.store.snapshot(), fresh.store.revision)
    assert isinstance(delta, BrokerRegistered)


def test_leadership_of_an_earlier_life_does_not_count(world: ClusterWorld) -> None:
    """R4, R29: a leadership older than the registration is not ours to use."""
    topic = world.create("t", (1, 2))
    old_epoch = world.epoch(1)
    assert world.image.leads_in_this_life(topic, 0, 1, old_epoch)
    assert not world.image.leads_in_this_life(topic, 0, 2, world.epoch(2))
    world.expire(1)
    world.register(1)
    assert not world.image.leads_in_this_life(topic, 0, 1, world.epoch(1))


def test_config_changes_reach_the_topics_they_touch(world: ClusterWorld) -> None:
    plain = world.create("plain", (1,))
    world.create("own", (1,), retention_ms="9")
    change = alter_broker_configs(
        world.image, None, [Alteration("log.retention.ms", AlterOp.SET, "1234")], world.controller_epoch
    )
    assert isinstance(change, Change)
    deltas = world.do(change)
    assert names(deltas) == ["BrokerConfigChanged", "TopicConfigChanged"]
    assert deltas[0] == BrokerConfigChanged(None)
    assert isinstance(deltas[1], TopicConfigChanged) and deltas[1].topic is plain
    assert plain.config.retention_ms == 1234
    world.do(Change((), (DeleteKey(keys.broker_config(None)),)))
    assert plain.config.retention_ms == 7 * 86_400_000


def test_a_config_change_of_another_broker_is_not_ours(world: ClusterWorld) -> None:
    world.create("t", (1,))
    world.store.put(keys.broker_config(2), encode(BrokerConfigs({"log.retention.ms": "1"})))
    assert world.catch_up() == [BrokerConfigChanged(2)]
    assert world.image.layers(2).dynamic == {"log.retention.ms": "1"}
    assert world.image.layers().dynamic == {}


def test_topic_config_changes(world: ClusterWorld) -> None:
    topic = world.create("t", (1,))
    before = world.image.version
    change = alter_topic_configs(
        world.image, topic, [Alteration("segment.ms", AlterOp.SET, "60000")], world.controller_epoch
    )
    assert isinstance(change, Change)
    (delta,) = world.do(change)
    assert isinstance(delta, TopicConfigChanged)
    assert (delta.old.segment_ms, topic.config.segment_ms) == (7 * 86_400_000, 60_000)
    assert world.image.version > before


def test_the_controller_and_its_epoch(world: ClusterWorld) -> None:
    held = world.store.held[keys.CONTROLLER]
    assert world.controller_epoch == held.create_revision == held.mod_revision
    world.store.delete(keys.CONTROLLER)
    assert world.catch_up() == [ControllerChanged(None)]
    assert world.image.controller is None


def test_keys_of_higher_packages_pass_through(world: ClusterWorld) -> None:
    key = keys.opaque("subscriptions", "orders/billing")
    world.store.put(key, b"anything")
    assert world.catch_up() == [OpaqueChanged(key, b"anything")]
    assert world.image.opaque("subscriptions") == {"orders/billing": b"anything"}
    world.store.delete(key)
    assert world.catch_up() == [OpaqueChanged(key, None)]
    assert world.image.opaque("subscriptions") == {}


def test_a_partition_that_loses_its_key_has_no_state() -> None:
    image = ClusterImage()
    image.apply(KeyEvent(keys.topic("t"), encode(TOPIC), 5))
    image.apply(KeyEvent(keys.partition(TOPIC_ID, 0), encode(PARTITION), 5))
    image.apply(KeyEvent(keys.partition(TOPIC_ID, 0), None, 6))
    assert image.partition("t", 0) is None
    assert len(image.topics["t"].partitions) == 2


# -- F10: the store itself went back --------------------------------------------------------------------------------------


def restorable() -> tuple[ClusterImage, list[KeyEvent]]:
    """An image at revision 100, and the backup that was made at 50."""
    image = ClusterImage()
    old = [
        KeyEvent(keys.topic("t"), encode(TOPIC), 40),
        KeyEvent(keys.partition(TOPIC_ID, 0), encode(PARTITION), 45),
        KeyEvent(keys.partition(TOPIC_ID, 1), encode(PARTITION), 45),
    ]
    later = msgspec.structs.replace(PARTITION, leader=2, leader_epoch=4, partition_epoch=6)
    other = msgspec.structs.replace(TOPIC, id=bytes(range(16, 32)).hex(), partitions=1)
    now = [old[0], KeyEvent(keys.partition(TOPIC_ID, 0), encode(later), 99), old[2]]
    now += [KeyEvent(keys.topic("late"), encode(other), 80)]
    image.resync(now, 100)
    return image, old


def test_f10_a_backup_replaces_everything_that_was_held() -> None:
    image, old = restorable()
    deltas = image.replace(old, 50)
    assert "TopicGone" in names(deltas) and image.topic("late") is None
    assert image.partition("t", 0) == PARTITION
    assert image.mod_revision(keys.partition(TOPIC_ID, 0)) == 45, "what a compare must expect from now on"
    assert image.revision == 50


def test_f10_events_after_the_restore_are_news() -> None:
    image, old = restorable()
    image.replace(old, 50)
    raised = msgspec.structs.replace(PARTITION, leader_epoch=5, partition_epoch=1)
    (delta,) = image.apply(KeyEvent(keys.partition(TOPIC_ID, 0), encode(raised), 51))
    assert isinstance(delta, PartitionChanged) and delta.new.leader_epoch == 5
    assert image.resync(old, 49) == [], "R2: an older read is stale again"


def test_f10_a_topic_that_had_fewer_partitions_is_another_one() -> None:
    image, old = restorable()
    small = msgspec.structs.replace(TOPIC, partitions=1)
    deltas = image.replace([KeyEvent(keys.topic("t"), encode(small), 30), old[1]], 50)
    assert names(deltas).index("TopicGone") < names(deltas).index("TopicCreated")
    assert len(image.topics["t"].partitions) == 1
