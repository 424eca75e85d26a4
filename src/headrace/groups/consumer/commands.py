"""Machine: what consumer groups can be asked, and what they answer (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Command
from headrace.groups.topics import Sees, TopicInfo

TopicPartitions = tuple[tuple[bytes, tuple[int, ...]], ...]
"""Topic id and partitions, as on the wire."""


class ConsumerHeartbeatResult(NamedTuple):
    error: ErrorKind
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: TopicPartitions | None = None
    """None: unchanged. Empty: nothing (kafka.md trap 22)."""


class DescribedAssignment(NamedTuple):
    topic_id: bytes
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assignment: tuple[DescribedAssignment, ...]
    target: tuple[DescribedAssignment, ...]
    is_classic: bool


class DescribedConsumerGroup(NamedTuple):
    error: ErrorKind
    group_id: str
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


@dataclass(slots=True)
class TopicsChanged(Command[None]):
    """All topics there are, internal ones too; an empty mapping is ignored. The shard keeps it: pass a new one each
    time, never change it."""

    topics: Mapping[str, TopicInfo]
    sees: Sees | None = None
    """Whether somebody may see a topic; None: everybody sees all."""


@dataclass(slots=True)
class ConsumerGroupHeartbeat(Command[ConsumerHeartbeatResult]):
    """None, or -1, means unchanged since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    new_member_id: str = ""
    """For a version 0 client that comes without an id."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """Version 1 and up: a regular expression; empty drops it."""
    assignor: str | None = None
    reader: str = ""
    """Who asks, where that counts."""
    owned: TopicPartitions | None = None
    client_id: str = ""
    client_host: str = ""
    member_id_required: bool = False
    """Version 1 and up: clients make their own id (KIP-1082)."""


@dataclass(slots=True)
class ConsumerGroupDescribe(Command[tuple[DescribedConsumerGroup, ...]]):
    group_ids: tuple[str, ...]
