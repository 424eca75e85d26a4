"""Machine: what can become true of a consumer group. Each durable fact is one of Kafka's ConsumerGroup* records."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.groups.assigned import MemberState
from headrace.groups.consumer.members import Assignment, ConsumerSubscription
from headrace.groups.facts import Durable, Volatile


@dataclass(frozen=True, slots=True)
class GroupEpochSet(Durable):
    """Something that the assignment depends on changed. `fingerprint` is what the topics looked like."""

    group_id: str
    epoch: int
    fingerprint: int
    empty_since_wall_ms: int
    """-1 while there are members."""


@dataclass(frozen=True, slots=True)
class MemberSubscribed(Durable):
    group_id: str
    member_id: str
    subscription: ConsumerSubscription


@dataclass(frozen=True, slots=True)
class TargetsSet(Durable):
    """The assignor ran at `epoch`; only the members whose target changed are named."""

    group_id: str
    epoch: int
    targets: tuple[tuple[str, Assignment], ...]


@dataclass(frozen=True, slots=True)
class CurrentSet(Durable):
    """What the member has been told so far, and what it still has to give up."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    revoking: Assignment


@dataclass(frozen=True, slots=True)
class MemberLeft(Durable):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupDeleted(Durable):
    group_id: str


@dataclass(frozen=True, slots=True)
class AssignmentTold(Volatile):
    """The member was told what it has; `heard`: it has said so, by what it reports to own."""

    group_id: str
    member_id: str
    heard: bool


# Replay only: one record of a member, or its tombstone.


@dataclass(frozen=True, slots=True)
class TargetLoaded(Volatile):
    group_id: str
    member_id: str
    target: Assignment | None
    """None is the tombstone."""


@dataclass(frozen=True, slots=True)
class CurrentForgotten(Volatile):
    group_id: str
    member_id: str
