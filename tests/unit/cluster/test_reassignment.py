"""Moving partitions: grow, catch up, shrink (R9, R35, C4)."""

from __future__ import annotations

from collections import Counter

import pytest
from cluster_world import ClusterWorld

from headrace.cluster import keys, reassignment
from headrace.cluster.changes import Change
from headrace.cluster.controller import Standings
from headrace.cluster.election import alter_isr, isr_change
from headrace.cluster.reassignment import cancel, complete, drain, reassign, spread
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected


def partition(
    replicas: tuple[int, ...] = (1, 2),
    isr: tuple[int, ...] | None = None,
    leader: int = 1,
    **more: tuple[int, ...],
) -> PartitionState:
    return PartitionState(
        replicas=replicas,
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
        isr=replicas if isr is None else isr,
        **more,  # type: ignore[arg-type]
    )


def moved(decided: PartitionState | Rejected | None) -> PartitionState:
    assert isinstance(decided, PartitionState), decided
    return decided


def test_a_move_begins_by_adding() -> None:
    state = moved(reassign(partition((1, 2)), (3, 2)))
    assert state.replicas == (3, 2, 1)
    assert (state.adding, state.removing, state.isr) == ((3,), (1,), (1, 2))
    assert (state.leader, state.leader_epoch) == (1, 5), "nothing that serves changes"
    assert state.target == (3, 2)


def test_another_order_is_no_move() -> None:
    state = moved(reassign(partition((1, 2)), (2, 1)))
    assert state.replicas == (2, 1)
    assert not state.reassigning


def test_r35_it_ends_when_every_new_replica_is_in_sync() -> None:
    state = partition((3, 4, 1, 2), isr=(3, 1, 2), adding=(3, 4), removing=(1, 2))
    assert complete(state, 1) is None
    done = moved(complete(partition((3, 4, 1, 2), adding=(3, 4), removing=(1, 2)), 1))
    assert (done.replicas, done.isr, done.leader) == ((3, 4), (3, 4), 3)
    assert done.leader_epoch == 6, "R9"
    assert not done.reassigning


def test_r35_it_does_not_end_with_too_few_in_sync() -> None:
    state = partition((3, 2, 1), isr=(3, 1), adding=(3,), removing=(1,))
    assert complete(state, 2) is None
    assert moved(complete(state, 1)).isr == (3,)
    grown = partition((3, 2, 1), isr=(1, 2, 3), adding=(3,), removing=(1,))
    assert moved(complete(grown, 5)).isr == (2, 3), "as many as there are"


def test_r9_completion_raises_the_epoch_even_if_the_leader_stays() -> None:
    state = partition((1, 2, 3), adding=(3,))
    done = moved(complete(state, 1))
    assert (done.leader, done.leader_epoch) == (1, 6)


def test_nothing_to_complete() -> None:
    assert complete(partition(), 1) is None


def test_cancel_goes_back() -> None:
    state = partition((3, 2, 1), isr=(3, 2, 1), leader=3, adding=(3,), removing=(1,))
    back = moved(cancel(state))
    assert (back.replicas, back.isr, back.leader) == ((2, 1), (2, 1), 2)
    assert back.leader_epoch == 6
    assert not back.reassigning


def test_cancel_is_refused_when_only_new_replicas_are_complete() -> None:
    state = partition((3, 2, 1), isr=(3,), leader=3, adding=(3,), removing=(1,))
    decided = cancel(state)
    assert isinstance(decided, Rejected) and decided.kind is ErrorKind.INVALID_REPLICA_ASSIGNMENT
    none = cancel(partition())
    assert isinstance(none, Rejected) and none.kind is ErrorKind.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_can_be_redirected() -> None:
    """R35: the replica only the first move wanted is dropped, which is a new epoch; one that both want has not to start
    again."""
    state = partition((3, 4, 1), isr=(3, 1), adding=(3, 4), removing=(1,))
    other = moved(reassign(state, (3, 5)))
    assert other.replicas == (3, 5, 1)
    assert (other.adding, other.removing, other.isr) == ((3, 5), (1,), (3, 1))
    assert other.leader_epoch == 6
    home = moved(reassign(state, (1,)))
    assert (home.replicas, home.adding, home.removing) == ((1,), (), ())


# -- in a cluster -----------------------------------------------------------------------------------------------------


def begin(world: ClusterWorld, *target: int, number: int = 0) -> Change | Rejected:
    topic = world.image.topic("t")
    assert topic is not None
    standing = Standings(world.image).of(topic.config)
    return reassignment.start(world.image, topic, number, target, world.controller_epoch, standing)


def join(world: ClusterWorld, member: int) -> None:
    topic, state = world.image.topic("t"), world.partition()
    assert topic is not None
    new = alter_isr(
        state, leader=state.leader, leader_epoch=state.leader_epoch, isr=(*state.isr, member), min_isr=1
    )
    assert isinstance(new, PartitionState)
    revision = world.image.mod_revision(keys.partition(topic.id, 0))
    epochs = {"broker_epoch": world.epoch(state.leader), "joining": {member: world.epoch(member)}}
    world.do(isr_change(topic.id, 0, revision=revision, new=new, **epochs))  # type: ignore[arg-type]


def test_c4_a_whole_move() -> None:
    world = ClusterWorld(1, 2, 3, 4)
    world.create("t", (1, 2), min_insync_replicas="2")
    change = begin(world, 3, 4)
    assert isinstance(change, Change)
    world.do(change)
    world.settle()
    assert world.partition().replicas == (3, 4, 1, 2), "old ones stay while new ones catch up"
    join(world, 3)
    world.settle()
    assert world.partition().reassigning
    join(world, 4)
    world.settle()
    state = world.partition()
    assert (state.replicas, state.isr, state.leader) == ((3, 4), (3, 4), 3)


def test_a_broker_that_dies_during_a_move() -> None:
    world = ClusterWorld(1, 2, 3)
    world.create("t", (1,), min_insync_replicas="1")
    change = begin(world, 2)
    assert isinstance(change, Change)
    world.do(change)
    world.fail(1)
    state = world.partition()
    assert (state.leader, state.elr, state.replicas) == (NO_LEADER, (1,), (2, 1)), "it waits for its data"
    world.come_back(1)
    assert world.partition().leader == 1


@pytest.mark.parametrize("target", [(), (9,), (1, 1)])
def test_moves_that_are_refused(target: tuple[int, ...]) -> None:
    world = ClusterWorld(1, 2)
    world.create("t", (1,))
    decided = begin(world, *target)
    assert isinstance(decided, Rejected) and decided.kind is ErrorKind.INVALID_REPLICA_ASSIGNMENT


def test_f37_a_move_that_may_not_change_the_number_of_replicas() -> None:
    """KIP-860: the number is that of where the partition is going, also while it moves."""
    world = ClusterWorld(1, 2, 3)
    topic = world.create("t", (1,))
    standing = Standings(world.image).of(topic.config)

    def decide(*target: int) -> Change | Rejected:
        topic = world.image.topic("t")
        assert topic is not None
        return reassignment.start(
            world.image, topic, 0, target, world.controller_epoch, standing, keep_count=True
        )

    grown = decide(1, 2)
    assert isinstance(grown, Rejected) and grown.kind is ErrorKind.INVALID_REPLICATION_FACTOR
    moved = decide(2)
    assert isinstance(moved, Change)
    world.do(moved)
    assert isinstance(decide(3), Change), "two replicas for a while, and still one"


def test_stopping_a_move() -> None:
    world = ClusterWorld(1, 2)
    topic = world.create("t", (1,))
    standing = Standings(world.image).of(topic.config)
    refused = reassignment.stop(world.image, topic, 0, world.controller_epoch, standing)
    assert isinstance(refused, Rejected) and refused.kind is ErrorKind.NO_REASSIGNMENT_IN_PROGRESS
    change = begin(world, 2)
    assert isinstance(change, Change)
    world.do(change)
    stopped = reassignment.stop(world.image, topic, 0, world.controller_epoch, standing)
    assert isinstance(stopped, Change)
    world.do(stopped)
    assert world.partition().replicas == (1,)


def test_c4_draining_a_broker() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    world = ClusterWorld(1, 2, 3, 4, racks=racks)
    world.create("t", *[(1, 3), (3, 1), (2, 4), (1, 4), (3, 2)])
    plan = drain(world.image, 1)
    assert [move.partition for move in plan] == [0, 1, 3]
    for move in plan:
        assert 1 not in move.target
        assert {racks[broker] for broker in move.target} == {"a", "b"}, "still in both racks"
    assert plan[0].target == (2, 3), "in its place"
    assert drain(world.image, 9) == []


def test_draining_where_nobody_can_take_over() -> None:
    world = ClusterWorld(1, 2)
    world.create("t", (1, 2))
    assert drain(world.image, 1) == []


def test_c3_a_new_broker_takes_its_share_and_nothing_else_moves() -> None:
    world = ClusterWorld(1, 2, 3)
    world.create("t", *[(1, 2), (2, 3), (3, 1)] * 4)
    assert spread(world.image) == []
    world.register(4)
    world.settle()
    plan = spread(world.image)
    arrivals = [set(move.target) - set(world.partition(number=move.partition).replicas) for move in plan]
    assert [new for new in arrivals if new] == [{4}] * 6, "24 replicas on 4 brokers"
    load = Counter(
        broker
        for number in range(12)
        for broker in next(
            (move.target for move in plan if move.partition == number),
            world.partition(number=number).replicas,
        )
    )
    assert set(load.values()) == {6}
    firsts = {number: world.partition(number=number).replicas[0] for number in range(12)}
    firsts |= {move.partition: move.target[0] for move in plan}
    assert set(Counter(firsts.values()).values()) == {3}, "F48: and its share of leaderships"
