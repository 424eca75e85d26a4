"""Machine: what the membership of share groups can be asked, and what it answers (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Command
from headrace.groups.consumer.commands import DescribedAssignment, TopicPartitions


class ShareHeartbeatResult(NamedTuple):
    error: ErrorKind
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: TopicPartitions | None = None
    """None: unchanged. Empty: nothing."""


class DescribedShareMember(NamedTuple):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: tuple[DescribedAssignment, ...]


class DescribedShareGroup(NamedTuple):
    error: ErrorKind
    group_id: str
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()


@dataclass(slots=True)
class ShareGroupHeartbeat(Command[ShareHeartbeatResult]):
    """Epoch 0 joins, -1 leaves. None means unchanged since the last heartbeat."""

    group_id: str
    member_id: str
    """Made by the client, at most 36 characters."""
    member_epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(slots=True)
class MakeShareGroup(Command[None]):
    """An administrator sets where a group begins, before it has members: there has to be a group."""

    group_id: str


@dataclass(slots=True)
class ShareGroupDescribe(Command[tuple[DescribedShareGroup, ...]]):
    group_ids: tuple[str, ...]
