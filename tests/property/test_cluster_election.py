"""Whatever happens to the brokers, what the controller makes of a partition keeps its invariants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.election import BrokersStanding, alter_isr, effective_min_isr, settle
from headrace.cluster.reassignment import cancel, complete, reassign
from headrace.cluster.state import NO_LEADER, PartitionState, decode, encode

BROKERS = range(1, 6)
subsets = st.sets(st.sampled_from(list(BROKERS)))


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    """Any partition that the deciders themselves could have left behind for some min.insync.replicas."""
    replicas = tuple(draw(st.permutations(list(BROKERS)))[: draw(st.integers(1, 5))])
    isr = tuple(broker for broker in replicas if draw(st.booleans()))
    elr = tuple(broker for broker in replicas if broker not in isr and draw(st.booleans()))
    leader = draw(st.sampled_from(isr)) if isr else NO_LEADER
    return PartitionState(
        replicas=replicas, leader=leader, leader_epoch=3, partition_epoch=7, isr=isr, elr=elr
    )


def check_step(old: PartitionState, new: PartitionState, min_isr: int) -> None:
    assert decode(PartitionState, encode(new)) == new, "valid on its own"
    if new is old:
        return
    assert new.partition_epoch > old.partition_epoch
    assert new.leader_epoch >= old.leader_epoch
    if new.leader != old.leader:
        assert new.leader_epoch > old.leader_epoch  # R9
    if len(new.isr) >= effective_min_isr(min_isr, len(new.replicas)):
        assert new.elr == ()  # R28


@given(partitions(), subsets, subsets, st.integers(1, 5))
def test_settling(old: PartitionState, live: set[int], lost: set[int], min_isr: int) -> None:
    lost -= live
    standing = BrokersStanding(live, lost)
    new = settle(old, standing, min_isr).state
    check_step(old, new, min_isr)
    assert set(new.isr) <= live, "fenced brokers are in no ISR"
    assert new.leader in live or new.leader == NO_LEADER
    assert {*new.isr, *new.elr} <= {*old.isr, *old.elr}, "R27: nobody becomes complete by election"
    if len(old.replicas) > 1:
        assert not {*new.isr, *new.elr} & lost, "R29"
    if {*old.isr, *old.elr} - lost:
        assert {*new.isr, *new.elr}, "R30: someone stays eligible"
    if new.leader == NO_LEADER:
        assert not {*old.isr} & live, "an ISR member that lives is elected"
    again = settle(new, standing, min_isr).state
    assert again is new, "once is enough"


@given(partitions(), subsets, st.integers(1, 5))
def test_unclean_elections_are_marked(old: PartitionState, live: set[int], min_isr: int) -> None:
    elected = settle(old, BrokersStanding(live), min_isr, allow_unclean=True)
    clean = settle(old, BrokersStanding(live), min_isr)
    if clean.state.leader != NO_LEADER:
        assert elected == clean
    else:
        assert elected.unclean == (elected.state.leader != NO_LEADER)
        assert (elected.state.unclean_epoch == elected.state.leader_epoch) == elected.unclean


@given(partitions(), subsets, st.integers(1, 5))
def test_altering(old: PartitionState, wanted: set[int], min_isr: int) -> None:
    if old.leader == NO_LEADER:
        return
    isr = tuple({old.leader, *wanted} & set(old.replicas))
    new = alter_isr(old, leader=old.leader, leader_epoch=3, isr=isr, min_isr=min_isr)
    assert isinstance(new, PartitionState)
    check_step(old, new, min_isr)
    assert set(new.isr) == set(isr)
    assert new.leader_epoch == old.leader_epoch
    if len(new.isr) < effective_min_isr(min_isr, len(new.replicas)):
        assert {*old.isr, *old.elr} <= {*new.isr, *new.elr}, "R28: who leaves stays eligible"


@given(partitions(), st.lists(st.sampled_from(list(BROKERS)), min_size=1, unique=True), st.integers(1, 5))
def test_moving(old: PartitionState, target: list[int], min_isr: int) -> None:
    moving = reassign(old, target)
    if not isinstance(moving, PartitionState):
        assert not old.isr and not old.elr
        return
    assert decode(PartitionState, encode(moving)) == moving
    assert moving.target == tuple(target)
    assert set(old.replicas) <= set(moving.replicas), "R35: nothing goes before the new ones are there"
    assert (moving.isr, moving.leader, moving.leader_epoch) == (old.isr, old.leader, old.leader_epoch)
    if moving.reassigning:
        back = cancel(moving)
        assert isinstance(back, PartitionState)
        assert set(back.replicas) == set(old.replicas)
        done = complete(moving, min_isr)
        if done is not None:
            check_step(moving, done, min_isr)
            assert set(done.replicas) == set(target)
            assert set(moving.adding) <= set(done.isr)
            assert len(done.isr) >= effective_min_isr(min_isr, len(target))
            assert done.leader_epoch > moving.leader_epoch
