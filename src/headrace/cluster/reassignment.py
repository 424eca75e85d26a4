"""Machine: moving partitions between brokers while they serve: grow, catch up, shrink (R35).

While a partition moves, its replicas are the target plus the ones to be removed. Invariant: the old replicas go only
after every new one is in the ISR and the ISR that remains is large enough; completion raises the leader epoch, so
whoever counted on the old replicas is fenced (R9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.cluster.balance import balance
from headrace.cluster.changes import Change
from headrace.cluster.election import BrokersStanding, effective_min_isr, partition_change, settle
from headrace.cluster.image import ClusterImage
from headrace.cluster.placement import Candidate, replace_broker
from headrace.cluster.rows import Topic
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.cluster.topics import replicas_problem
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected


class Reassignment(NamedTuple):
    topic: Topic
    partition: int
    target: tuple[int, ...]


def reassign(partition: PartitionState, target: Sequence[int]) -> PartitionState | Rejected:
    """Start a move to `target`, or redirect one that is under way: replicas only the old move wanted are forgotten."""
    original = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    adding = tuple(broker for broker in target if broker not in original)
    removing = tuple(broker for broker in original if broker not in target)
    return _with_replicas(partition, (*target, *removing), adding, removing)


def cancel(partition: PartitionState) -> PartitionState | Rejected:
    """Back to where the move began. Refused when only replicas that were added hold the data by now."""
    if not partition.reassigning:
        return Rejected(ErrorKind.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    original = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    return _with_replicas(partition, original, (), ())


def complete(partition: PartitionState, min_isr: int) -> PartitionState | None:
    """The end of a move, or None while it can't end: a new replica is behind, or too few would be in sync (R35)."""
    if not partition.reassigning:
        return None
    target = partition.target
    isr = tuple(broker for broker in partition.isr if broker in target)
    if any(broker not in isr for broker in partition.adding):
        return None
    if len(isr) < max(1, effective_min_isr(min_isr, len(target))):
        return None
    shrunk = _with_replicas(partition, target, (), ())
    assert not isinstance(shrunk, Rejected), "an ISR member remains"
    return msgspec.structs.replace(shrunk, leader_epoch=partition.leader_epoch + 1, elr=())  # R9


def _with_replicas(
    partition: PartitionState, replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]
) -> PartitionState | Rejected:
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    elr = tuple(broker for broker in partition.elr if broker in replicas)
    if not replicas or not (isr or elr):
        return Rejected(ErrorKind.INVALID_REPLICA_ASSIGNMENT, "no replica that would remain is complete")
    leader = partition.leader
    if leader not in isr:
        leader = next((broker for broker in replicas if broker in isr), NO_LEADER)
    # A replica that is dropped and added again starts empty. The new epoch makes the leader forget what it knew of it,
    # even if it never saw the state in between (R35).
    fenced = leader != partition.leader or not set(replicas).issuperset(partition.replicas)
    last_leader = partition.leader if partition.leader != NO_LEADER else partition.last_leader
    return msgspec.structs.replace(
        partition,
        replicas=replicas,
        leader=leader,
        leader_epoch=partition.leader_epoch + fenced,
        partition_epoch=partition.partition_epoch + 1,
        isr=isr,
        elr=elr,
        adding=adding,
        removing=removing,
        last_leader=NO_LEADER if leader != NO_LEADER else last_leader,
    )


# -- what administrators ask for --------------------------------------------------------------------------------------


def start(
    image: ClusterImage,
    topic: Topic,
    number: int,
    target: Sequence[int],
    controller_epoch: int,
    standing: BrokersStanding,
    keep_count: bool = False,
) -> Change | Rejected:
    partition = topic.partitions[number]
    if partition is None:
        return Rejected(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{number} does not exist")
    problem = replicas_problem(image, [target], len(target))
    if problem is not None:
        return problem
    if keep_count and len(target) != len(partition.target):
        return Rejected(
            ErrorKind.INVALID_REPLICATION_FACTOR,
            f"the number of replicas would change from {len(partition.target)} to {len(target)}",
        )
    moved = reassign(partition, target)
    if isinstance(moved, Rejected):
        return moved
    return _settled_change(
        image, topic, number, moved, controller_epoch, standing, f"moves to {list(target)}"
    )


def stop(
    image: ClusterImage, topic: Topic, number: int, controller_epoch: int, standing: BrokersStanding
) -> Change | Rejected:
    partition = topic.partitions[number]
    if partition is None:
        return Rejected(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{number} does not exist")
    cancelled = cancel(partition)
    if isinstance(cancelled, Rejected):
        return cancelled
    return _settled_change(image, topic, number, cancelled, controller_epoch, standing, "no longer moves")


def _settled_change(
    image: ClusterImage,
    topic: Topic,
    number: int,
    moved: PartitionState,
    controller_epoch: int,
    standing: BrokersStanding,
    why: str,
) -> Change:
    """Every write of the controller is settled, so that no write can confirm a leader from an earlier life (R4)."""
    settled = settle(moved, standing, topic.config.min_insync_replicas).state
    return partition_change(image, topic, number, settled, controller_epoch, why)


# -- plans over many partitions ---------------------------------------------------------------------------------------


def drain(image: ClusterImage, leaving: int) -> list[Reassignment]:
    """Moves that leave a broker without partitions. Those that nobody else can take are left out; so are moves under way."""
    brokers = [Candidate(broker.id, broker.rack) for broker in image.live_brokers() if broker.id != leaving]
    load = Counter(broker for _, _, partition in image.all_partitions() for broker in partition.target)
    plan = []
    for topic, number, partition in image.all_partitions():
        if leaving not in partition.target or partition.reassigning:
            continue
        target = replace_broker(topic.id, number, partition.target, leaving, brokers, load)
        if target is not None:
            load.update(broker for broker in target if broker not in partition.target)
            plan.append(Reassignment(topic, number, target))
    return plan


def resized(image: ClusterImage, topic: Topic, factor: int) -> list[Reassignment]:
    """Moves after which every partition of a topic has so many replicas: the leader stays, and so do those in sync before others."""
    brokers = [Candidate(broker.id, broker.rack) for broker in image.live_brokers()]
    plan: list[Reassignment] = []
    targets = [tuple(partition.target) for partition in topic.partitions if partition is not None]
    for number, partition in enumerate(topic.partitions):
        if partition is None or len(partition.target) == factor:
            continue
        order = [partition.leader, *partition.isr, *partition.target]
        kept = tuple(dict.fromkeys(broker for broker in order if broker in partition.target))[:factor]
        if len(kept) < factor:
            free = [broker for broker in brokers if broker.id not in kept]
            load = Counter(broker for replicas in targets for broker in replicas)
            held = {broker.id: broker.rack for broker in brokers if broker.id in kept}
            free.sort(key=lambda broker: (broker.rack in held.values(), load[broker.id], broker.id))
            kept += tuple(broker.id for broker in free[: factor - len(kept)])
        # The first is the preferred leader: as before, where it is still there.
        first = partition.target[0] if partition.target[0] in kept else kept[0]
        target = (first, *(broker for broker in kept if broker != first))
        targets[number] = target
        plan.append(Reassignment(topic, number, target))
    return plan


def spread(image: ClusterImage) -> list[Reassignment]:
    """The fewest moves that give every live broker its share of replicas, and an order of replicas that gives it its share
    of leaderships: after a broker has joined (C3). Topics that are being moved already are left out."""
    brokers = [Candidate(broker.id, broker.rack) for broker in image.live_brokers()]
    topics: dict[bytes, Topic] = {}
    targets: dict[bytes, list[list[int]]] = {}
    for topic in image.topics.values():
        partitions = [partition for partition in topic.partitions if partition is not None]
        is_whole = len(partitions) == len(topic.partitions)
        if topic.view is None and is_whole and not any(partition.reassigning for partition in partitions):
            topics[topic.id] = topic
            targets[topic.id] = [list(partition.replicas) for partition in partitions]
    before = {topic_id: [tuple(replicas) for replicas in rows] for topic_id, rows in targets.items()}
    balance(targets, brokers)
    return [
        Reassignment(topics[topic_id], number, tuple(replicas))
        for topic_id, rows in targets.items()
        for number, replicas in enumerate(rows)
        if tuple(replicas) != before[topic_id][number]
    ]
