"""Machine: what streams groups can be asked, and what they answer (KIP-1071)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Command
from headrace.groups.streams.members import MemberProfile, TaskLists
from headrace.groups.streams.state import Endpoints
from headrace.groups.streams.topology import InternalTopic, Notice, Subtopology, Topology


class TasksByRole(NamedTuple):
    active: TaskLists = ()
    standby: TaskLists = ()
    warmup: TaskLists = ()


class StreamsHeartbeatResult(NamedTuple):
    error: ErrorKind
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    tasks: TasksByRole | None = None
    """None: unchanged."""
    endpoint_epoch: int = 0
    endpoints: Endpoints | None = None
    """None: the member knows them."""
    notices: tuple[Notice, ...] = ()
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics that somebody has to make."""


class DescribedStreamsMember(NamedTuple):
    member_id: str
    member_epoch: int
    profile: MemberProfile
    assigned: TasksByRole
    target: TasksByRole


class DescribedStreamsGroup(NamedTuple):
    error: ErrorKind
    group_id: str
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    target_epoch: int = 0
    topology_epoch: int = 0
    subtopologies: tuple[Subtopology, ...] | None = None
    members: tuple[DescribedStreamsMember, ...] = ()


@dataclass(slots=True)
class StreamsGroupHeartbeat(Command[StreamsHeartbeatResult]):
    """Epoch 0 joins, -1 leaves. None means unchanged since the last heartbeat."""

    group_id: str
    member_id: str
    """Made by the client."""
    member_epoch: int
    endpoint_epoch: int = -1
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    """Comes with a join."""
    owned: TasksByRole | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    shutdown: bool = False
    client_id: str = ""
    client_host: str = ""
    unsupported: str | None = None
    """What the request asks for that nobody does yet, in words."""


@dataclass(slots=True)
class StreamsGroupDescribe(Command[tuple[DescribedStreamsGroup, ...]]):
    group_ids: tuple[str, ...]
