"""Machine: what changed in the image: told to whoever listens to it."""

from __future__ import annotations

from typing import NamedTuple

from headrace.cluster.configs import TopicConfig
from headrace.cluster.rows import BrokerNode, ElectedController, Topic
from headrace.cluster.state import PartitionState


class TopicCreated(NamedTuple):
    topic: Topic


class TopicGone(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int


class PartitionChanged(NamedTuple):
    """`old` is None for a partition seen for the first time."""

    topic: Topic
    partition: int
    old: PartitionState | None
    new: PartitionState
    revision: int


class BrokerUp(NamedTuple):
    """A broker may now lead, or came back under a new epoch, or changed its address."""

    broker: BrokerNode


class BrokerDown(NamedTuple):
    """A broker that could lead no longer can: its registration ended or it was fenced."""

    broker_id: int
    epoch: int
    fenced: bool


class BrokerRegistered(NamedTuple):
    """A registration or its fence changed without making the broker live: the controller has work to do (R4)."""

    broker: BrokerNode


class TopicConfigChanged(NamedTuple):
    topic: Topic
    old: TopicConfig


class BrokerConfigChanged(NamedTuple):
    """broker_id None is the cluster-wide default."""

    broker_id: int | None


class ControllerChanged(NamedTuple):
    controller: ElectedController | None


class OpaqueChanged(NamedTuple):
    """A key of a higher package: queues/…, subscriptions/…; value None when it was deleted."""

    key: str
    value: bytes | None


class Undecodable(NamedTuple):
    """A value that is not what its key promises (X27). The last good value stays in force."""

    key: str
    problem: str


Delta = (
    TopicCreated
    | TopicGone
    | PartitionChanged
    | BrokerUp
    | BrokerDown
    | BrokerRegistered
    | TopicConfigChanged
    | BrokerConfigChanged
    | ControllerChanged
    | OpaqueChanged
    | Undecodable
)
