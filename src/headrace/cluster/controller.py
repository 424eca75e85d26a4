"""Machine: all that a controller has to do about the cluster as it is now, computed anew each time.

Level-triggered: nothing depends on having seen an event, so a lost watch event, a new controller or a transaction that
was refused costs one more pass and nothing else (R2, R3, R5). Every change is guarded by the controller's epoch (R1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from headrace.cluster import membership
from headrace.cluster.changes import Change, batched
from headrace.cluster.election import (
    BrokersStanding,
    Elected,
    ElectionType,
    elect_preferred,
    elect_unclean,
    partition_change,
    settle,
)
from headrace.cluster.image import ClusterImage
from headrace.cluster.reassignment import complete
from headrace.cluster.rows import Topic
from headrace.cluster.state import NO_LEADER, Loss
from headrace.cluster.topic_configs import TopicConfig
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected


class DataLoss(NamedTuple):
    """R27: acknowledged records may be gone. To be logged and counted once its change is committed."""

    topic: str
    partition: int
    old_leader: int
    new_leader: int


class Decisions(NamedTuple):
    changes: list[Change]
    losses: list[DataLoss]


class Standings:
    """How brokers stand, per kind of topic; computed once per pass."""

    def __init__(self, image: ClusterImage) -> None:
        self._live = frozenset(broker.id for broker in image.live_brokers())
        self._losses = {
            broker.id: broker.fence.loss
            for broker in image.brokers.values()
            if broker.fence is not None and broker.fence.loss is not Loss.NOTHING
        }
        self._by_kind: dict[tuple[bool, bool], BrokersStanding] = {}

    def of(self, config: TopicConfig) -> BrokersStanding:
        kind = (config.is_memory, config.flush == "commit")
        standing = self._by_kind.get(kind)
        if standing is None:
            lost = frozenset(
                broker for broker, loss in self._losses.items() if membership.loses(config, loss)
            )
            standing = self._by_kind[kind] = BrokersStanding(self._live, lost)
        return standing


def reconcile(image: ClusterImage, controller_epoch: int, only: Collection[str] | None = None) -> Decisions:
    """Fence, elect, finish moves, let brokers in. Apply, refresh the image, repeat until there is nothing to do.

    `only`: the topics that changed since a pass over everything found nothing to do, when nothing else has changed.

    Brokers are let in only in a pass that finds no partition to change, so the image must have been read afresh for it.
    """
    standings = Standings(image)
    changes: list[Change] = []
    losses: list[DataLoss] = []
    for topic, number, partition in image.all_partitions(only):
        config = topic.config
        standing = standings.of(config)
        elected = settle(
            partition,
            standing,
            config.min_insync_replicas,
            allow_unclean=config.unclean_leader_election_enable,
        )
        state = complete(elected.state, config.min_insync_replicas) or elected.state
        if state is partition:
            continue
        why = f"leader {state.leader}, ISR {list(state.isr)}, ELR {list(state.elr)}"
        changes.append(partition_change(image, topic, number, state, controller_epoch, why))
        if elected.unclean:
            losses.append(DataLoss(topic.name, number, partition.last_leader, state.leader))
    if changes:
        return Decisions(batched(changes), losses)
    welcomes = (membership.unfence(image, broker, controller_epoch) for broker in sorted(image.brokers))
    return Decisions([change for change in welcomes if change is not None], [])


def elect(
    image: ClusterImage, topic: Topic, number: int, election: ElectionType, controller_epoch: int
) -> tuple[Change, DataLoss | None] | Rejected:
    """ElectLeaders, for one partition."""
    partition = topic.partitions[number] if 0 <= number < len(topic.partitions) else None
    if partition is None:
        return Rejected(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{number} does not exist")
    standing = Standings(image).of(topic.config)
    decide = elect_preferred if election is ElectionType.PREFERRED else elect_unclean
    elected = decide(partition, standing, topic.config.min_insync_replicas)
    if isinstance(elected, Rejected):
        return elected
    why = f"{election.name.lower()} election of {elected.state.leader}"
    change = partition_change(image, topic, number, elected.state, controller_epoch, why)
    loss = (
        DataLoss(topic.name, number, partition.last_leader, elected.state.leader) if elected.unclean else None
    )
    return change, loss


def rebalance_leaders(
    image: ClusterImage, controller_epoch: int, *, imbalance_percent: int = 10, max_moves: int = 10
) -> list[Change]:
    """Give leaderships back to preferred replicas, a few at a time (R32).

    Only for brokers of whose preferred partitions more than `imbalance_percent` are led elsewhere, so that one
    partition that wavers is not chased.
    """
    standings = Standings(image)
    preferred: Counter[int] = Counter()
    away: dict[int, list[tuple[Topic, int, Elected]]] = {}
    for topic, number, partition in image.all_partitions():
        first = partition.target[0]
        preferred[first] += 1
        if partition.leader in (first, NO_LEADER) or partition.reassigning:
            continue
        elected = elect_preferred(partition, standings.of(topic.config), topic.config.min_insync_replicas)
        if isinstance(elected, Elected):
            away.setdefault(first, []).append((topic, number, elected))
    moves = []
    for broker, candidates in sorted(away.items()):
        if len(candidates) * 100 > imbalance_percent * preferred[broker]:
            moves += candidates
    return [
        partition_change(
            image, topic, number, elected.state, controller_epoch, "back to its preferred leader"
        )
        for topic, number, elected in moves[:max_moves]
    ]
