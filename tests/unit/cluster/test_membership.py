"""How brokers join, fall out and come back (R1, R4, R29, R30, R33, R37)."""

from __future__ import annotations

import pytest
from cluster_world import ClusterWorld

from headrace.cluster import keys, membership
from headrace.cluster.changes import Change
from headrace.cluster.controller import reconcile
from headrace.cluster.membership import PreviousLife
from headrace.cluster.state import NO_LEADER, BrokerRegistration, FenceReason, Loss
from headrace.cluster.topic_configs import TopicConfig
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected


def registration(incarnation: str) -> BrokerRegistration:
    return BrokerRegistration("127.0.0.1", 9092, "127.0.0.1", 9324, incarnation)


def register(
    world: ClusterWorld, broker: int, incarnation: str, previous: PreviousLife | None = None
) -> Change | Rejected:
    return membership.register(
        world.image, broker, registration(incarnation), lease=1, previous=previous, durable=True
    )


def loss_of(world: ClusterWorld, broker: int) -> Loss:
    fence = world.image.fence(broker)
    assert fence is not None
    return fence.loss


def test_a_broker_starts_fenced_and_is_let_in() -> None:
    world = ClusterWorld(1)
    world.register(2)
    assert not world.image.is_live(2)
    assert loss_of(world, 2) is Loss.NOTHING
    world.settle()
    assert world.image.is_live(2)


def test_the_broker_epoch_is_the_revision_of_the_registration() -> None:
    world = ClusterWorld(1)
    assert world.epoch(1) == world.store.held[keys.broker(1)].mod_revision
    assert world.image.mod_revision(keys.epoch(1)) == world.epoch(1)


def test_r4_a_second_broker_with_the_same_id_is_refused() -> None:
    world = ClusterWorld(1, 2)
    refused = register(world, 2, "stranger")
    assert isinstance(refused, Rejected)
    assert refused.kind is ErrorKind.DUPLICATE_BROKER_REGISTRATION
    assert "another id" in refused.detail


def test_r4_the_owner_of_the_data_directory_takes_over() -> None:
    """It holds the lock of the directory the old registration was made with, so the old process is gone."""
    world = ClusterWorld(1, 2)
    change = register(world, 2, "next", PreviousLife(world.epoch(2), clean=False))
    assert isinstance(change, Change)
    assert isinstance(register(world, 2, "next", PreviousLife(world.epoch(2) - 1, clean=True)), Rejected)


def test_r1_two_registrations_at_once_do_not_both_succeed() -> None:
    world = ClusterWorld(1)
    first, second = register(world, 7, "a"), register(world, 7, "b")
    assert isinstance(first, Change) and isinstance(second, Change)
    assert world.attempt(first)
    assert not world.attempt(second)


@pytest.mark.parametrize(
    ("clean", "durable", "right_disk", "loss"),
    [
        (True, True, True, Loss.MEMORY),
        (False, True, True, Loss.UNSYNCED),
        (False, False, True, Loss.EVERYTHING),
        (True, True, False, Loss.EVERYTHING),
    ],
)
def test_r29_what_a_new_life_may_have_lost(clean: bool, durable: bool, right_disk: bool, loss: Loss) -> None:
    """R33: the marker counts only for the epoch it was written in."""
    world = ClusterWorld(1, 2)
    epoch = world.epoch(2)
    world.expire(2)
    world.register(2, previous=PreviousLife(epoch if right_disk else epoch - 1, clean), durable=durable)
    assert loss_of(world, 2) is loss


def test_r29_no_memory_of_an_earlier_life_is_a_new_disk() -> None:
    world = ClusterWorld(1, 2)
    world.expire(2)
    world.register(2, previous=None)
    assert loss_of(world, 2) is Loss.EVERYTHING


def test_r29_the_same_process_has_lost_nothing() -> None:
    world = ClusterWorld(1, 2)
    incarnation = world.image.brokers[2].registration.incarnation
    world.expire(2)
    world.register(2, incarnation=incarnation)
    assert loss_of(world, 2) is Loss.NOTHING


def test_r29_a_clean_stop_does_not_hide_a_crash_before_it() -> None:
    world = ClusterWorld(1, 2)
    world.expire(2)
    world.register(2, previous=PreviousLife(world.image.mod_revision(keys.epoch(2)), clean=False))
    assert loss_of(world, 2) is Loss.UNSYNCED
    world.expire(2)
    world.register(2, previous=PreviousLife(world.image.mod_revision(keys.epoch(2)), clean=True))
    assert loss_of(world, 2) is Loss.UNSYNCED


@pytest.mark.parametrize(
    ("config", "losses"),
    [
        (TopicConfig(), {Loss.EVERYTHING}),
        (TopicConfig(flush="os"), {Loss.UNSYNCED, Loss.EVERYTHING}),
        (TopicConfig(flush="interval"), {Loss.UNSYNCED, Loss.EVERYTHING}),
        (TopicConfig(storage="memory"), {Loss.MEMORY, Loss.UNSYNCED, Loss.EVERYTHING}),
    ],
)
def test_r29_which_topics_suffer(config: TopicConfig, losses: set[Loss]) -> None:
    assert {loss for loss in Loss if membership.loses(config, loss)} == losses


def test_r29_a_crashed_broker_leaves_isr_and_elr_of_topics_that_are_not_synced() -> None:
    world = ClusterWorld(1, 2)
    world.create("synced", (2, 1), min_insync_replicas="2")
    world.create("lazy", (2, 1), min_insync_replicas="2", headrace_flush="os")
    world.come_back(2)
    synced, lazy = world.partition("synced"), world.partition("lazy")
    assert (synced.isr, synced.elr) == ((1,), (2,))
    assert (lazy.isr, lazy.elr) == ((1,), ())
    assert world.image.is_live(2)


def test_r4_a_restart_the_controller_never_saw_end_costs_leadership_and_isr() -> None:
    """The lease was still alive: nothing but the new registration tells that the broker was gone."""
    world = ClusterWorld(1, 2)
    world.create("t", (2, 1), min_insync_replicas="1")
    before = world.partition()
    world.register(2, previous=PreviousLife(world.epoch(2), clean=False))
    decisions = reconcile(world.image, world.controller_epoch)
    assert not any("let in" in change.why for change in decisions.changes), (
        "first the partitions, then the fence"
    )
    world.settle()
    after = world.partition()
    assert (after.leader, after.isr) == (1, (1,))
    assert after.leader_epoch == before.leader_epoch + 1


def test_r30_a_single_broker_gets_its_partitions_back() -> None:
    """kill -9 and start again: nobody else could have them, and nothing acknowledged is missing."""
    world = ClusterWorld(1)
    world.create("t", (1,))
    world.create("lazy", (1,), headrace_flush="os")
    for clean in (False, True):
        world.come_back(1, clean=clean)
        for name in ("t", "lazy"):
            state = world.partition(name)
            assert (state.leader, state.isr, state.elr) == (1, (1,), ())
    assert world.losses == []


def test_r29_everyone_lost_data_so_nobody_leads() -> None:
    """One power cut for all, logs not synced: only an administrator may choose what to lose (R27)."""
    world = ClusterWorld(1, 2)
    world.create("t", (1, 2), headrace_flush="os")
    world.expire(1, 2)
    for broker in (1, 2):
        epoch = world.image.mod_revision(keys.epoch(broker))
        world.register(broker, previous=PreviousLife(epoch, clean=False))
    world.settle()
    state = world.partition()
    assert (state.leader, state.isr, state.elr) == (NO_LEADER, (), ())


def test_r27_unless_the_topic_allows_unclean_elections() -> None:
    world = ClusterWorld(1, 2)
    world.create("t", (1, 2), headrace_flush="os", unclean_leader_election_enable="true")
    world.expire(1, 2)
    for broker in (1, 2):
        epoch = world.image.mod_revision(keys.epoch(broker))
        world.register(broker, previous=PreviousLife(epoch, clean=False))
    world.settle()
    assert world.partition().leader == 1
    assert [(loss.topic, loss.partition, loss.new_leader) for loss in world.losses] == [("t", 0, 1)]


def test_suspicion_fences_and_the_broker_comes_back_by_itself() -> None:
    world = ClusterWorld(1, 2)
    world.create("t", (2, 1), min_insync_replicas="1")
    change = membership.fence_suspect(world.image, 2, world.controller_epoch)
    assert change is not None
    world.do(change)
    assert membership.fence_suspect(world.image, 2, world.controller_epoch) is None
    assert membership.must_register_again(world.image, 2)
    world.settle()
    assert world.partition().leader == 1
    assert not world.image.is_live(2), "only a new registration lifts a suspicion"
    world.register(2, incarnation=world.image.brokers[2].registration.incarnation)
    world.settle()
    assert world.image.is_live(2)
    assert not membership.must_register_again(world.image, 2)


def test_suspicion_does_not_hit_the_next_life() -> None:
    world = ClusterWorld(1, 2)
    change = membership.fence_suspect(world.image, 2, world.controller_epoch)
    assert change is not None
    world.come_back(2)
    assert not world.attempt(change)


def test_r33_a_stopping_broker_is_relieved() -> None:
    world = ClusterWorld(1, 2)
    world.create("t", (2, 1), min_insync_replicas="1")
    change = membership.announce_stop(world.image, 2)
    assert change is not None
    world.do(change)
    fence = world.image.fence(2)
    assert fence is not None and fence.reason is FenceReason.STOPPING
    world.settle()
    assert world.partition().leader == 1
    assert not membership.must_register_again(world.image, 2)
    world.expire(2)
    assert membership.announce_stop(world.image, 2) is None


def test_r1_a_deposed_controller_changes_nothing() -> None:
    world = ClusterWorld(1, 2, 3)
    world.create("t", (2, 3))
    old = world.controller_epoch
    world.expire(2)
    (stale,) = reconcile(world.image, old).changes
    world.store.delete(keys.CONTROLLER)
    world.catch_up()
    change = membership.become_controller(world.image, 3, world.epoch(3), 3)
    assert change is not None
    world.do(change)
    assert world.controller_epoch > old
    assert not world.attempt(stale)


def test_there_is_one_controller() -> None:
    world = ClusterWorld(1, 2)
    assert membership.become_controller(world.image, 2, world.epoch(2), 2) is None
    world.store.delete(keys.CONTROLLER)
    world.catch_up()
    rivals = [membership.become_controller(world.image, broker, world.epoch(broker), 0) for broker in (1, 2)]
    assert rivals[0] is not None and rivals[1] is not None
    assert world.attempt(rivals[0])
    assert not world.attempt(rivals[1])


def test_r37_producer_ids_are_never_handed_out_twice() -> None:
    world = ClusterWorld(1, 2)
    first = membership.reserve_producer_ids(world.image, 1, world.epoch(1), 100)
    rival = membership.reserve_producer_ids(world.image, 2, world.epoch(2), 100)
    assert first.first == rival.first == 0
    assert world.attempt(first.change)
    assert not world.attempt(rival.change), "the block was taken meanwhile"
    again = membership.reserve_producer_ids(world.image, 2, world.epoch(2), 100)
    assert (again.first, again.count) == (100, 100)
    assert world.attempt(again.change)


def test_r37_a_coordinator_that_was_set_back_does_not_make_a_broker_repeat_itself() -> None:
    world = ClusterWorld(1)
    block = membership.reserve_producer_ids(world.image, 1, world.epoch(1), 100, above=5_000)
    assert (block.first, block.count) == (5_000, 100)
    assert world.attempt(block.change)
    assert membership.reserve_producer_ids(world.image, 1, world.epoch(1), 100).first == 5_100


def test_r37_a_broker_that_lost_its_registration_gets_no_ids() -> None:
    world = ClusterWorld(1, 2)
    block = membership.reserve_producer_ids(world.image, 2, world.epoch(2))
    world.expire(2)
    assert not world.attempt(block.change)
