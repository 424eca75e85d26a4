"""Driver: who is told when this broker begins or ends to lead a partition: the coordinator whose state lies in it."""

from __future__ import annotations

from typing import Protocol

from headrace.broker.connections import Connections
from headrace.broker.partition import Partition


class ShardOwner(Protocol):
    """A coordinator: it has a shard for each partition of its topics that is led here."""

    def owns(self, topic: str) -> bool: ...

    def lead(self, partition: Partition) -> None: ...

    def resign(self, partition: Partition) -> None: ...


class Leading:
    def __init__(self, connections: Connections, *owners: ShardOwner) -> None:
        self._connections = connections
        self._owners = owners

    def began(self, partition: Partition) -> None:
        connections = self._connections
        connections.leaderships.began(partition.tp, partition.leader_epoch, connections.newest_id)
        owner = self._owner(partition)
        if owner is not None:
            owner.lead(partition)

    def ended(self, partition: Partition) -> None:
        self._connections.leaderships.ended(partition.tp)
        owner = self._owner(partition)
        if owner is not None:
            owner.resign(partition)

    def _owner(self, partition: Partition) -> ShardOwner | None:
        return next((owner for owner in self._owners if owner.owns(partition.tp.topic)), None)
