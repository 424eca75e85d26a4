"""Elections and ISR changes as functions of one partition (R9, R27-R30, R32)."""

from __future__ import annotations

import msgspec
import pytest
from cluster_world import ClusterWorld

from headrace.cluster import keys
from headrace.cluster.changes import Expect, absent
from headrace.cluster.controller import Standings, elect, rebalance_leaders
from headrace.cluster.election import (
    BrokersStanding,
    Elected,
    ElectionType,
    alter_isr,
    elect_preferred,
    elect_unclean,
    hand_over,
    isr_change,
    settle,
)
from headrace.cluster.membership import PreviousLife
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected

ALL = frozenset({1, 2, 3})


def partition(
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionState:
    return PartitionState(
        replicas=replicas, leader=leader, leader_epoch=5, partition_epoch=9, isr=isr, elr=elr
    )


def settled(
    state: PartitionState, live: frozenset[int], min_isr: int = 2, lost: frozenset[int] = frozenset()
) -> PartitionState:
    return settle(state, BrokersStanding(live, lost), min_isr).state


def test_nothing_to_do_is_the_same_object() -> None:
    state = partition()
    assert settled(state, ALL) is state
    leaderless = partition(NO_LEADER, isr=(), elr=(1,))
    assert settled(leaderless, frozenset({2, 3})) is leaderless


def test_r9_a_new_leader_begins_a_new_epoch() -> None:
    new = settled(partition(), frozenset({2, 3}))
    assert (new.leader, new.leader_epoch, new.partition_epoch) == (2, 6, 10)
    assert new.isr == (2, 3)


def test_r9_losing_a_follower_does_not() -> None:
    new = settled(partition(), frozenset({1, 2}))
    assert (new.leader, new.leader_epoch, new.partition_epoch) == (1, 5, 10)


def test_the_first_replica_in_sync_is_chosen() -> None:
    state = partition(leader=1, replicas=(3, 1, 2), isr=(1, 2, 3))
    assert settled(state, frozenset({2, 3})).leader == 3


def test_r28_who_leaves_too_small_an_isr_goes_to_the_elr() -> None:
    two = settled(partition(), frozenset({1, 2}))
    assert (two.isr, two.elr) == ((1, 2), ())
    one = settled(two, frozenset({2}))
    assert (one.leader, one.isr, one.elr) == (2, (2,), (1,))
    none = settled(one, frozenset())
    assert (none.leader, none.isr, none.elr) == (NO_LEADER, (), (1, 2))
    assert none.last_leader == 2


def test_r28_the_elr_is_elected_when_the_isr_is_gone() -> None:
    state = partition(NO_LEADER, isr=(), elr=(1, 2))
    new = settled(state, frozenset({2, 3}))
    assert (new.leader, new.isr, new.elr, new.leader_epoch) == (2, (2,), (1,), 6)


def test_r28_a_large_enough_isr_needs_no_elr() -> None:
    """min.insync.replicas was lowered."""
    state = partition(1, isr=(1,), elr=(2,))
    new = settled(state, ALL, min_isr=1)
    assert (new.isr, new.elr, new.leader_epoch) == ((1,), (), 5)


def test_r27_a_replica_that_is_behind_never_leads_by_itself() -> None:
    state = partition(1, isr=(1,), elr=())
    new = settled(state, frozenset({2, 3}))
    assert (new.leader, new.isr, new.elr) == (NO_LEADER, (), (1,))


def test_r29_a_member_that_lost_data_is_in_neither_set() -> None:
    state = partition(1, isr=(1,), elr=(2,))
    new = settled(state, frozenset({3}), lost=frozenset({1}))
    assert (new.isr, new.elr) == ((), (2,))
    gone = settled(state, frozenset({3}), lost=frozenset({1, 2}))
    assert (gone.leader, gone.isr, gone.elr) == (NO_LEADER, (), ())


def test_r29_the_only_replica_can_not_be_behind_another() -> None:
    state = partition(1, isr=(1,), replicas=(1,))
    new = settled(state, frozenset(), lost=frozenset({1}))
    assert (new.leader, new.elr) == (NO_LEADER, (1,))
    assert settled(new, frozenset({1})).leader == 1


def test_r30_the_last_member_is_kept() -> None:
    state = settled(partition(1, isr=(1,), replicas=(1, 2, 3)), frozenset(), min_isr=1)
    assert (state.leader, state.isr, state.elr) == (NO_LEADER, (), (1,))


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    state = partition(1, isr=(1, 2), replicas=(1, 2))
    new = settled(state, frozenset({1}), min_isr=3)
    assert (new.isr, new.elr) == ((1,), (2,))
    assert settled(partition(1, isr=(1,), replicas=(1,)), frozenset({1}), min_isr=3).elr == ()


# -- on request -------------------------------------------------------------------------------------------------------


def test_r27_an_unclean_election_says_so() -> None:
    state = partition(NO_LEADER, isr=(), elr=())
    state = msgspec.structs.replace(state, last_leader=3)
    elected = elect_unclean(state, BrokersStanding(frozenset({2, 3})), 2)
    assert isinstance(elected, Elected) and elected.unclean
    assert (elected.state.leader, elected.state.isr, elected.state.leader_epoch) == (3, (3,), 6)
    assert elected.state.unclean_epoch == 6


def test_r27_an_unclean_election_prefers_a_clean_one() -> None:
    elected = elect_unclean(partition(NO_LEADER, isr=(), elr=(2,)), BrokersStanding(ALL), 2)
    assert isinstance(elected, Elected) and not elected.unclean
    assert elected.state.leader == 2
    assert elected.state.unclean_epoch == -1


def test_unclean_elections_that_are_refused() -> None:
    assert _kind(elect_unclean(partition(), BrokersStanding(ALL), 2)) is ErrorKind.ELECTION_NOT_NEEDED
    gone = elect_unclean(partition(NO_LEADER, isr=()), BrokersStanding(frozenset()), 2)
    assert _kind(gone) is ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_r32_preferred_elections() -> None:
    elected = elect_preferred(partition(leader=2), BrokersStanding(ALL), 2)
    assert isinstance(elected, Elected)
    assert (elected.state.leader, elected.state.leader_epoch) == (1, 6)
    refused = ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE
    assert _kind(elect_preferred(partition(), BrokersStanding(ALL), 2)) is ErrorKind.ELECTION_NOT_NEEDED
    assert _kind(elect_preferred(partition(leader=2, isr=(2, 3)), BrokersStanding(ALL), 2)) is refused
    assert _kind(elect_preferred(partition(leader=2), BrokersStanding(frozenset({2, 3})), 2)) is refused
    assert _kind(elect_preferred(partition(leader=2, isr=(1, 2)), BrokersStanding(ALL), 3)) is refused


def _kind(decided: Elected | Rejected) -> ErrorKind:
    assert isinstance(decided, Rejected)
    assert decided.detail
    return decided.kind


# -- the leader's own changes -----------------------------------------------------------------------------------------


def alter(
    state: PartitionState, isr: tuple[int, ...], *, leader: int = 1, epoch: int = 5, min_isr: int = 2
) -> PartitionState | Rejected:
    return alter_isr(state, leader=leader, leader_epoch=epoch, isr=isr, min_isr=min_isr)


def test_the_leader_expands_and_shrinks() -> None:
    grown = alter(partition(isr=(1,), elr=(3,)), (1, 2))
    assert isinstance(grown, PartitionState)
    assert (grown.isr, grown.elr, grown.partition_epoch, grown.leader_epoch) == ((1, 2), (), 10, 5)
    shrunk = alter(partition(isr=(1, 2)), (1,))
    assert isinstance(shrunk, PartitionState)
    assert (shrunk.isr, shrunk.elr) == ((1,), (2,))
    fine = alter(partition(), (1, 3))
    assert isinstance(fine, PartitionState)
    assert (fine.isr, fine.elr) == ((1, 3), ())


def test_the_isr_keeps_the_order_of_the_replicas() -> None:
    grown = alter(partition(isr=(1,), replicas=(3, 1, 2)), (1, 2, 3))
    assert isinstance(grown, PartitionState)
    assert grown.isr == (3, 1, 2)


@pytest.mark.parametrize(
    ("isr", "leader", "epoch", "kind"),
    [
        ((2, 3), 1, 5, ErrorKind.INVALID_REQUEST),  # R30
        ((), 1, 5, ErrorKind.INVALID_REQUEST),
        ((1, 9), 1, 5, ErrorKind.INVALID_REQUEST),
        ((1, 1), 1, 5, ErrorKind.INVALID_REQUEST),
        ((1, 2), 1, 4, ErrorKind.FENCED_LEADER_EPOCH),
        ((1, 2), 1, 6, ErrorKind.UNKNOWN_LEADER_EPOCH),
        ((1, 2), 2, 5, ErrorKind.FENCED_LEADER_EPOCH),
    ],
)
def test_what_a_leader_may_not_do(isr: tuple[int, ...], leader: int, epoch: int, kind: ErrorKind) -> None:
    decided = alter(partition(), isr, leader=leader, epoch=epoch)
    assert isinstance(decided, Rejected) and decided.kind is kind


def test_r1_r14_an_isr_change_compares_all_it_rests_on() -> None:
    topic_id = bytes(range(16))
    change = isr_change(topic_id, 4, revision=77, new=partition(), broker_epoch=11, joining={3: 33})
    assert set(change.compares) == {
        Expect(keys.partition(topic_id, 4), "mod", 77),
        Expect(keys.broker(1), "mod", 11),
        Expect(keys.broker(3), "mod", 33),
        absent(keys.fence(3)),
    }


def test_r14_a_follower_that_restarted_since_its_fetch_does_not_join() -> None:
    world = ClusterWorld(1, 2, 3)
    topic = world.create("t", (1, 2, 3), min_insync_replicas="1")
    world.fail(3)
    world.come_back(3)
    state = world.partition()
    assert state.isr == (1, 2)
    fetched_under = world.epoch(3)
    grown = alter_isr(state, leader=1, leader_epoch=state.leader_epoch, isr=(1, 2, 3), min_isr=1)
    assert isinstance(grown, PartitionState)

    def change(broker_epoch: int) -> bool:
        revision = world.image.mod_revision(keys.partition(topic.id, 0))
        return world.attempt(
            isr_change(
                topic.id,
                0,
                revision=revision,
                new=grown,
                broker_epoch=world.epoch(1),
                joining={3: broker_epoch},
            )
        )

    world.expire(3)
    assert not change(fetched_under)
    world.register(3)
    assert not change(fetched_under)
    assert not change(world.epoch(3)), "it is fenced"
    world.settle()
    assert change(world.epoch(3))


def test_s22_a_leader_with_a_damaged_replica_hands_over_and_is_not_eligible() -> None:
    world = ClusterWorld(1, 2, 3)
    topic = world.create("t", (1, 2), min_insync_replicas="2")
    before = world.partition()
    change = hand_over(world.image, topic, 0, 1, Standings(world.image).of(topic.config))
    assert change is not None
    world.do(change)
    after = world.partition()
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert hand_over(world.image, topic, 0, 1, Standings(world.image).of(topic.config)) is None
    assert hand_over(world.image, topic, 0, 2, Standings(world.image).of(topic.config)) is None, (
        "only it has the data"
    )


def test_s22_an_heir_that_restarts_meanwhile_is_not_elected() -> None:
    world = ClusterWorld(1, 2, 3)
    topic = world.create("t", (1, 2))
    change = hand_over(world.image, topic, 0, 1, Standings(world.image).of(topic.config))
    assert change is not None
    world.register(2, previous=PreviousLife(world.epoch(2), clean=False))
    assert not world.attempt(change)


# -- the controller's elections ---------------------------------------------------------------------------------------


def test_elect_leaders_for_one_partition() -> None:
    world = ClusterWorld(1, 2, 3)
    topic = world.create("t", (1, 2, 3))
    world.fail(1)
    world.come_back(1)
    assert world.partition().leader == 2
    refused = elect(world.image, topic, 0, ElectionType.PREFERRED, world.controller_epoch)
    assert isinstance(refused, Rejected)
    assert isinstance(elect(world.image, topic, 7, ElectionType.PREFERRED, world.controller_epoch), Rejected)
    rejoin(world, 1)
    decided = elect(world.image, topic, 0, ElectionType.PREFERRED, world.controller_epoch)
    assert not isinstance(decided, Rejected)
    world.do(decided[0])
    assert world.partition().leader == 1


def test_r32_leaderships_go_back_a_few_at_a_time() -> None:
    world = ClusterWorld(1, 2)
    world.create("t", *[(1, 2)] * 30)
    world.fail(1)
    world.come_back(1)
    assert rebalance_leaders(world.image, world.controller_epoch) == []
    for number in range(30):
        rejoin(world, 1, number)
    moves = rebalance_leaders(world.image, world.controller_epoch, max_moves=10)
    assert len(moves) == 10
    world.do(*moves)
    assert [world.partition(number=number).leader for number in range(30)].count(1) == 10


def test_r32_one_partition_that_wavers_is_not_chased() -> None:
    world = ClusterWorld(1, 2)
    topic = world.create("t", *[(1, 2)] * 20)
    key = keys.partition(topic.id, 0)
    moved = msgspec.structs.replace(world.partition(), leader=2, leader_epoch=1)
    world.store.put(key, msgspec.json.encode(moved))
    world.catch_up()
    assert rebalance_leaders(world.image, world.controller_epoch, imbalance_percent=10) == []
    assert len(rebalance_leaders(world.image, world.controller_epoch, imbalance_percent=4)) == 1


def rejoin(world: ClusterWorld, member: int, number: int = 0) -> None:
    """The leader takes `member` into its ISR."""
    topic = world.image.topic("t")
    assert topic is not None
    state = world.partition(number=number)
    new = alter_isr(
        state, leader=state.leader, leader_epoch=state.leader_epoch, isr=(*state.isr, member), min_isr=1
    )
    assert isinstance(new, PartitionState)
    world.do(
        isr_change(
            topic.id,
            number,
            revision=world.image.mod_revision(keys.partition(topic.id, number)),
            new=new,
            broker_epoch=world.epoch(state.leader),
            joining={member: world.epoch(member)},
        )
    )
