"""Machine: who leads a partition and who is in sync, as pure functions from one PartitionState to the next.

Invariants: the leader is in the ISR; ISR and ELR are disjoint; the ELR is empty while the ISR is large enough
(R28, KIP-966); every change of leader raises the leader epoch (R9); nobody but an explicit unclean election lets a
replica lead that is in neither set (R27); a member leaves both sets only when it has lost data or the ISR is large
enough without it (R29, R30).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from headrace.cluster import keys
from headrace.cluster.changes import Change, Expect, PutKey, absent, controller_is
from headrace.cluster.image import ClusterImage
from headrace.cluster.rows import Topic
from headrace.cluster.state import NO_LEADER, PartitionState, encode
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected


class BrokersStanding(NamedTuple):
    """How the brokers stand, for the partitions of one topic."""

    live: Collection[int]
    """Registered and not fenced: may lead and be in an ISR."""
    lost: Collection[int] = ()
    """Back from a life whose data may be gone: may not count as complete (R29)."""


class Elected(NamedTuple):
    state: PartitionState
    unclean: bool = False
    """Acknowledged records may be gone (R27): the driver must say so."""


class ElectionType(Enum):
    PREFERRED = 0
    UNCLEAN = 1


def effective_min_isr(min_insync_replicas: int, replicas: int) -> int:
    """As Kafka: a topic can't ask for more in-sync replicas than it has."""
    return min(min_insync_replicas, replicas)


def settle(
    partition: PartitionState, standing: BrokersStanding, min_isr: int, *, allow_unclean: bool = False
) -> Elected:
    """The partition as the brokers' standing demands: dead ones out, a leader if there can be one. Idempotent.

    Serves fencing (R30), registration (R4, R29), leaderless partitions and a changed min.insync.replicas alike.
    """
    isr, elr = _standing_members(partition, standing, effective_min_isr(min_isr, len(partition.replicas)))
    leader, unclean = partition.leader, False
    if leader not in isr:
        leader = _first(partition.replicas, isr)
    if leader == NO_LEADER:
        leader = _first(partition.replicas, [member for member in elr if member in standing.live])
        if leader != NO_LEADER:
            isr, elr = (leader,), tuple(member for member in elr if member != leader)
    if leader == NO_LEADER and allow_unclean:
        leader = _unclean_choice(partition, standing)
        unclean = leader != NO_LEADER
        if unclean:
            isr, elr = (leader,), ()
    state = _next(partition, leader, isr, elr, min_isr)
    if unclean:
        state = msgspec.structs.replace(state, unclean_epoch=state.leader_epoch)
    return Elected(state, unclean)


def _standing_members(
    partition: PartitionState, standing: BrokersStanding, min_isr: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    isr = tuple(member for member in partition.isr if member in standing.live)
    if len(isr) >= min_isr:
        return isr, ()
    # Nothing is committed from here on until the ISR is large enough again, so who leaves now stays complete (R28).
    leaving = tuple(member for member in partition.isr if member not in standing.live)
    complete = tuple(
        member for member in partition.elr + leaving if not _has_lost(partition, member, standing)
    )
    return isr, complete


def _has_lost(partition: PartitionState, member: int, standing: BrokersStanding) -> bool:
    # The only replica there is can't be behind another one; refusing it would protect nothing.
    return member in standing.lost and len(partition.replicas) > 1


def _first(replicas: tuple[int, ...], members: Container[int]) -> int:
    """In order of preference, so that leaderships stay spread as they were placed."""
    return next((replica for replica in replicas if replica in members), NO_LEADER)


def _unclean_choice(partition: PartitionState, standing: BrokersStanding) -> int:
    last = partition.leader if partition.leader != NO_LEADER else partition.last_leader
    if last in standing.live and last in partition.replicas:
        return last
    return next((replica for replica in partition.replicas if replica in standing.live), NO_LEADER)


def _next(
    partition: PartitionState, leader: int, isr: tuple[int, ...], elr: tuple[int, ...], min_isr: int
) -> PartitionState:
    if len(isr) >= effective_min_isr(min_isr, len(partition.replicas)):
        elr = ()
    if (leader, isr, elr) == (partition.leader, partition.isr, partition.elr):
        return partition
    changed = leader != partition.leader
    last_leader = partition.leader if partition.leader != NO_LEADER else partition.last_leader
    return msgspec.structs.replace(
        partition,
        leader=leader,
        leader_epoch=partition.leader_epoch + changed,  # R9
        partition_epoch=partition.partition_epoch + 1,
        isr=isr,
        elr=elr,
        last_leader=NO_LEADER if leader != NO_LEADER else last_leader,
    )


# -- elections that someone asks for ----------------------------------------------------------------------------------


def elect_preferred(partition: PartitionState, standing: BrokersStanding, min_isr: int) -> Elected | Rejected:
    """R32: only to a live ISR member and never while the ISR is too small."""
    preferred = partition.target[0]
    if partition.leader == preferred:
        return Rejected(ErrorKind.ELECTION_NOT_NEEDED, "the preferred replica leads already")
    if preferred not in partition.isr or preferred not in standing.live:
        return Rejected(ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync")
    if len(partition.isr) < effective_min_isr(min_isr, len(partition.replicas)):
        return Rejected(
            ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE, "too few replicas are in sync to move the leader now"
        )
    return Elected(_next(partition, preferred, partition.isr, partition.elr, min_isr))


def elect_unclean(partition: PartitionState, standing: BrokersStanding, min_isr: int) -> Elected | Rejected:
    """R27: the explicit call of an administrator who accepts the loss. A clean election is taken if there is one."""
    if partition.leader != NO_LEADER and partition.leader in standing.live:
        return Rejected(ErrorKind.ELECTION_NOT_NEEDED, "the partition has a leader")
    elected = settle(partition, standing, min_isr, allow_unclean=True)
    if elected.state.leader == NO_LEADER:
        return Rejected(ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is alive")
    return elected


# -- the leader changes its ISR ---------------------------------------------------------------------------------------


def alter_isr(
    partition: PartitionState, *, leader: int, leader_epoch: int, isr: tuple[int, ...], min_isr: int
) -> PartitionState | Rejected:
    """What the leader's proposal makes of the partition: AlterPartition in Kafka."""
    if partition.leader != leader or leader_epoch < partition.leader_epoch:
        return Rejected(
            ErrorKind.FENCED_LEADER_EPOCH, f"broker {leader} no longer leads in epoch {leader_epoch}"
        )
    if leader_epoch > partition.leader_epoch:
        return Rejected(ErrorKind.UNKNOWN_LEADER_EPOCH, f"epoch {leader_epoch} is not known yet")
    if leader not in isr:
        return Rejected(ErrorKind.INVALID_REQUEST, "a leader can not leave its own ISR (R30)")
    if not set(partition.replicas).issuperset(isr) or len(set(isr)) != len(isr):
        return Rejected(ErrorKind.INVALID_REQUEST, "the ISR must be distinct replicas of the partition")
    elr = tuple(member for member in partition.elr if member not in isr)
    elr += tuple(member for member in partition.isr if member not in isr)
    return _next(partition, leader, tuple(sorted(isr, key=partition.replicas.index)), elr, min_isr)


def isr_change(
    topic_id: bytes,
    number: int,
    *,
    revision: int,
    new: PartitionState,
    broker_epoch: int,
    joining: Mapping[int, int],
) -> Change:
    """The leader's transaction: P as it was read, the leader's own registration (R1), and for each member that joins
    the registration it fetched under, unfenced (R14). `joining` is follower id -> broker epoch of its fetch.
    """
    compares = [
        Expect(keys.partition(topic_id, number), "mod", revision),
        Expect(keys.broker(new.leader), "mod", broker_epoch),
    ]
    for member in sorted(joining):
        compares += (Expect(keys.broker(member), "mod", joining[member]), absent(keys.fence(member)))
    put = PutKey(keys.partition(topic_id, number), encode(new))
    return Change(tuple(compares), (put,), f"ISR of {topic_id.hex()}/{number} becomes {list(new.isr)}")


def hand_over(
    image: ClusterImage, topic: Topic, number: int, leader: int, standing: BrokersStanding
) -> Change | None:
    """A leader whose replica is damaged gives the partition to another complete one and leaves the ISR (S7, S22, S26).

    Complete is who is in sync, or left while nothing could be committed any more (R28): the leader is alive, so nobody else looks
    for an heir. It does not stay eligible either: what is damaged is not complete (R29). None when no other complete replica is up:
    then it is better to wait for one, or for a repair, than to lose what only it has.
    """
    partition, broker = topic.partitions[number], image.broker(leader)
    if partition is None or broker is None or partition.leader != leader:
        return None
    complete = (*partition.isr, *partition.elr)
    others = [member for member in complete if member != leader and member in standing.live]
    if not others:
        return None
    without_us = BrokersStanding(frozenset(others), frozenset({leader, *standing.lost}))
    state = settle(partition, without_us, topic.config.min_insync_replicas).state
    heir = image.broker(state.leader)
    assert heir is not None
    key = keys.partition(topic.id, number)
    return Change(
        compares=(
            Expect(key, "mod", image.mod_revision(key)),
            Expect(keys.broker(leader), "mod", broker.epoch),
            Expect(keys.broker(heir.id), "mod", heir.epoch),
            absent(keys.fence(heir.id)),
        ),
        ops=(PutKey(key, encode(state)),),
        why=f"{topic.name}-{number}: broker {leader} can't use its replica and hands over to {heir.id}",
    )


def raise_epoch(image: ClusterImage, topic: Topic, number: int, above: int, broker_id: int) -> Change | None:
    """R9 when the coordinator was restored from a backup (F10): an epoch in which somebody wrote is never given again, or two
    histories would look like one. Written by a replica that knows of the epoch; raising it twice does no harm.
    """
    partition, broker = topic.partitions[number], image.broker(broker_id)
    if partition is None or broker is None or partition.leader_epoch > above:
        return None
    state = msgspec.structs.replace(
        partition, leader_epoch=above + 1, partition_epoch=partition.partition_epoch + 1
    )
    key = keys.partition(topic.id, number)
    return Change(
        compares=(
            Expect(key, "mod", image.mod_revision(key)),
            Expect(keys.broker(broker_id), "mod", broker.epoch),
        ),
        ops=(PutKey(key, encode(state)),),
        why=f"{topic.name}-{number}: epoch {above} was given before the coordinator went back",
    )


# -- the controller writes --------------------------------------------------------------------------------------------


def partition_change(
    image: ClusterImage, topic: Topic, number: int, new: PartitionState, controller_epoch: int, why: str
) -> Change:
    """The controller's transaction for one partition (R1).

    The leader, new or kept, is compared with the registration it was chosen under. One that has restarted since may have
    lost its tail: it is neither elected nor confirmed on the strength of its earlier life (R4, R29).
    """
    key = keys.partition(topic.id, number)
    compares = [controller_is(controller_epoch), Expect(key, "mod", image.mod_revision(key))]
    if new.leader != NO_LEADER:
        broker = image.broker(new.leader)
        compares += (
            Expect(keys.broker(new.leader), "mod", broker.epoch if broker is not None else 0),
            absent(keys.fence(new.leader)),
        )
    return Change(tuple(compares), (PutKey(key, encode(new)),), f"{topic.name}-{number}: {why}")
