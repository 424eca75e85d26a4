"""Port: what coordinators need of the broker that they run on, and nothing else of it.

A `ShardHost` is the broker as every coordinator sees it. Who needs more is given that by its own constructor, so that a wire
that is missing is a type error ([decision 0030](../../../docs/decisions/0030-children-get-what-they-use.md)).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.partition_admin import PartitionAdmin
from headrace.broker.runtime import Runtime
from headrace.broker.topic_admin import TopicAdmin
from headrace.broker.txn_client import TransactionClient
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind


class ShardHost(Protocol):
    @property
    def runtime(self) -> Runtime: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def node_id(self) -> int: ...

    @property
    def partitions(self) -> dict[tuple[str, int], Partition]:
        """The replicas on this broker."""
        ...

    def find_partition(self, topic: str, number: int) -> tuple[Partition | None, ErrorKind]:
        """The replica here, or what a client is told instead."""
        ...

    def new_uuid(self) -> str: ...


@dataclass(frozen=True, slots=True)
class QueueHost:
    """What queues are given: the broker under them, and the other services that they use."""

    runtime: Runtime
    metadata: Metadata
    image: ClusterImage
    node_id: int
    partitions: dict[tuple[str, int], Partition]
    find_partition: Callable[[str, int], tuple[Partition | None, ErrorKind]]
    new_uuid: Callable[[], str]
    caught_up: Callable[[], Awaitable[None]]
    """Returns when the replicas here are as the image says."""
    topics: TopicAdmin
    partition_admin: PartitionAdmin
    transaction: Callable[[str], TransactionClient]
    """A transaction of the broker's own under this id."""
