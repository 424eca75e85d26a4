"""Machine: what can become true of a streams group. Each durable fact is one or more of Kafka's StreamsGroup* records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.groups.assigned import MemberState
from headrace.groups.facts import Durable, Volatile
from headrace.groups.streams.members import MemberProfile, Task, Tasks
from headrace.groups.streams.topology import Topology


@dataclass(frozen=True, slots=True)
class StreamsEpochSet(Durable):
    """Something that the assignment depends on changed."""

    group_id: str
    epoch: int
    fingerprint: int
    validated_epoch: int
    """Of the topology whose topics are all there and fit together; -1 when they do not."""
    standby_replicas: int
    empty_since_wall_ms: int
    """-1 while there are members."""


@dataclass(frozen=True, slots=True)
class TopologySet(Durable):
    group_id: str
    topology: Topology


@dataclass(frozen=True, slots=True)
class StreamsMemberSet(Durable):
    group_id: str
    member_id: str
    profile: MemberProfile


@dataclass(frozen=True, slots=True)
class StreamsTargetsSet(Durable):
    """The assignor ran at `epoch`; only the members whose target changed are named."""

    group_id: str
    epoch: int
    targets: tuple[tuple[str, Tasks], ...]
    at_wall_ms: int = 0


@dataclass(frozen=True, slots=True)
class StreamsCurrentSet(Durable):
    """What the member has been told so far, and what it still has to give up."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Tasks
    revoking: Tasks
    since: Mapping[Task, int]
    """The epoch at which each active task came to the member."""


@dataclass(frozen=True, slots=True)
class StreamsMemberLeft(Durable):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class StreamsGroupDeleted(Durable):
    group_id: str


@dataclass(frozen=True, slots=True)
class AssignmentDelayed(Volatile):
    """The first assignment waits for more members."""

    group_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class ShutdownRequested(Volatile):
    """A member met with an error that none of them would survive: all are told to stop."""

    group_id: str
    member_id: str


# Replay only: one record of a member, or its tombstone.


@dataclass(frozen=True, slots=True)
class StreamsTargetLoaded(Volatile):
    group_id: str
    member_id: str
    target: Tasks | None


@dataclass(frozen=True, slots=True)
class StreamsCurrentForgotten(Volatile):
    group_id: str
    member_id: str
