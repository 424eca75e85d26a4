"""Machine: which brokers hold which partition.

Rendezvous hashing ranks the brokers for each partition, racks come before rank and an even load before both, so every
partition spans as many racks as it can, no broker gets much more than its share, and a broker that joins only takes
over what it should hold itself: nothing moves between the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple


class Candidate(NamedTuple):
    id: int
    rack: str | None = None


class Move(NamedTuple):
    """Replace one replica of a partition by another broker."""

    partition: int
    source: int
    target: int


def rank(topic_id: bytes, partition: int, broker_id: int) -> int:
    """Rendezvous score: the same everywhere, unrelated between brokers and partitions."""
    seed = b"%b/%d/%d" % (topic_id, partition, broker_id)
    return int.from_bytes(blake2b(seed, digest_size=8).digest(), "big")


def place(
    topic_id: bytes,
    partitions: Sequence[int],
    replication_factor: int,
    brokers: Sequence[Candidate],
    held: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """Replicas for each of `partitions`, the preferred leader first. `held` are the topic's partitions there are already."""
    if not 1 <= replication_factor <= len(brokers):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(brokers)} brokers")
    load: Counter[int] = Counter(broker for replicas in held for broker in replicas)
    leaders: Counter[int] = Counter(replicas[0] for replicas in held)
    placed = []
    for partition in partitions:
        # A broker's share so far, not in the end: else the last partitions find only few brokers with room left.
        share = -(-(load.total() + replication_factor) // len(brokers))
        replicas = _pick(topic_id, partition, replication_factor, brokers, load, share)
        load.update(replicas)
        first = min(replicas, key=lambda broker: (leaders[broker], -rank(topic_id, partition, broker)))
        leaders[first] += 1
        placed.append((first, *(broker for broker in replicas if broker != first)))
    return placed


def _pick(
    topic_id: bytes,
    partition: int,
    count: int,
    brokers: Sequence[Candidate],
    load: Mapping[int, int],
    share: int,
    keep: Sequence[int] = (),
) -> list[int]:
    """`count` brokers, `keep` among them: each next one from the rack used least, with room left, ranked highest."""
    racks = {broker.id: broker.rack for broker in brokers}
    used: Counter[str | None] = Counter(racks.get(broker) for broker in keep)
    picked = list(keep)
    left = [broker for broker in brokers if broker.id not in keep]
    while len(picked) < count:
        best = min(
            left,
            key=lambda broker: (
                used[broker.rack] if broker.rack is not None else 0,
                load.get(broker.id, 0) >= share,
                -rank(topic_id, partition, broker.id),
            ),
        )
        left.remove(best)
        picked.append(best.id)
        used[best.rack] += 1
    return picked


def replace_broker(
    topic_id: bytes,
    partition: int,
    replicas: Sequence[int],
    leaving: int,
    brokers: Sequence[Candidate],
    load: Mapping[int, int],
) -> tuple[int, ...] | None:
    """The replicas with `leaving` replaced in its place; None when no broker is left to take it."""
    keep = [replica for replica in replicas if replica != leaving]
    free = [broker for broker in brokers if broker.id not in replicas]
    if not free:
        return None
    known = [broker for broker in brokers if broker.id != leaving]
    lightest = min(load.get(broker.id, 0) for broker in free)
    chosen = _pick(topic_id, partition, len(replicas), known, load, lightest + 1, keep)[-1]
    return tuple(chosen if replica == leaving else replica for replica in replicas)


def level(topic_id: bytes, assignment: Sequence[Sequence[int]], brokers: Sequence[Candidate]) -> list[Move]:
    """The fewest moves after which every broker holds its share of the topic: what a new broker takes over.

    A move never leaves a partition on fewer racks than before.
    """
    racks = {broker.id: broker.rack for broker in brokers}
    current = [list(replicas) for replicas in assignment]
    load = Counter({broker.id: 0 for broker in brokers})
    load.update(broker for replicas in current for broker in replicas if broker in racks)
    moves: list[Move] = []
    blocked: set[tuple[int, int]] = set()
    while (widest := widest_gap(load, blocked)) is not None:
        source, target = widest
        movable = [
            partition
            for partition, replicas in enumerate(current)
            if source in replicas and target not in replicas and keeps_racks(replicas, source, target, racks)
        ]
        if not movable:
            blocked.add((source, target))
            continue
        partition = max(movable, key=lambda number: rank(topic_id, number, target))
        current[partition][current[partition].index(source)] = target
        load[source] -= 1
        load[target] += 1
        moves.append(Move(partition, source, target))
    return moves


def widest_gap(load: Mapping[int, int], blocked: Container[tuple[int, int]]) -> tuple[int, int] | None:
    """Who has most more than whom; None when nobody has two more than anybody. Of equal gaps that of the lowest ids."""
    gaps = [
        (load[source] - load[target], -source, -target)
        for source in load
        for target in load
        if load[source] - load[target] > 1 and (source, target) not in blocked
    ]
    if not gaps:
        return None
    _, source, target = max(gaps)
    return -source, -target


def keeps_racks(replicas: Sequence[int], source: int, target: int, racks: Mapping[int, str | None]) -> bool:
    before = {racks.get(broker) for broker in replicas}
    after = {racks.get(target if broker == source else broker) for broker in replicas}
    return len(after) >= len(before)
