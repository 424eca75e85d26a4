"""Machine: what can become true of a share group's membership. Each durable fact is one of Kafka's ShareGroup* records."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.groups.consumer.members import Assignment
from headrace.groups.facts import Durable, Volatile
from headrace.groups.share.members import ShareSubscription


@dataclass(frozen=True, slots=True)
class ShareEpochSet(Durable):
    group_id: str
    epoch: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class ShareMemberSubscribed(Durable):
    group_id: str
    member_id: str
    subscription: ShareSubscription


@dataclass(frozen=True, slots=True)
class ShareTargetsSet(Durable):
    """Only the members whose target changed are named."""

    group_id: str
    epoch: int
    targets: tuple[tuple[str, Assignment], ...]


@dataclass(frozen=True, slots=True)
class ShareCurrentSet(Durable):
    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    assigned: Assignment


@dataclass(frozen=True, slots=True)
class ShareMemberLeft(Durable):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupDeleted(Durable):
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTargetLoaded(Volatile):
    """Replay only; None is the tombstone."""

    group_id: str
    member_id: str
    target: Assignment | None
