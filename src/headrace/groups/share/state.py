"""Machine: the membership of one share group, and how each fact changes it.

Partitions are shared, so there is nothing to hand over and nobody to wait for: a member's assignment is its target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.groups.consumer.state import NOTHING, Assignment
from headrace.groups.facts import SessionExtended
from headrace.groups.share import facts
from headrace.groups.topics import TopicIndex


class ShareSubscription(NamedTuple):
    topics: tuple[str, ...] = ()
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class ShareMember(NamedTuple):
    member_id: str
    subscription: ShareSubscription = ShareSubscription()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = NOTHING


class ShareGroup:
    __slots__ = ("epoch", "fingerprint", "group_id", "members", "target_epoch", "targets")

    group_type = "share"
    protocol_type = "share"
    can_be_forgotten = False
    """Its queue state may outlive its members for long; only an administrator deletes it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.fingerprint = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}

    def copy(self) -> ShareGroup:
        twin = ShareGroup.__new__(ShareGroup)
        for name in ShareGroup.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, dict) else value)
        return twin

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def topics_subscribed(self, index: TopicIndex) -> frozenset[str]:
        return index.resolve({name for m in self.members.values() for name in m.subscription.topics}, None)

    def retention(self, index: object) -> tuple[frozenset[str] | None, int | None]:
        """It has no committed offsets; if there are any, they are not ours to drop."""
        return None, None

    # --- facts -----------------------------------------------------------------------------------------------

    def apply(self, fact: Any) -> None:
        _APPLY[type(fact)](self, fact)

    def _apply_epoch(self, fact: facts.ShareEpochSet) -> None:
        self.epoch = fact.epoch
        self.fingerprint = fact.fingerprint

    def _apply_subscribed(self, fact: facts.ShareMemberSubscribed) -> None:
        old = self.members.get(fact.member_id) or ShareMember(fact.member_id)
        self.members[fact.member_id] = old._replace(subscription=fact.subscription)

    def _apply_targets(self, fact: facts.ShareTargetsSet) -> None:
        self.target_epoch = fact.epoch
        self.targets.update(fact.targets)

    def _apply_target_loaded(self, fact: facts.ShareTargetLoaded) -> None:
        if fact.target is None:
            self.targets.pop(fact.member_id, None)
        else:
            self.targets[fact.member_id] = fact.target

    def _apply_current(self, fact: facts.ShareCurrentSet) -> None:
        old = self.members.get(fact.member_id) or ShareMember(fact.member_id)
        self.members[fact.member_id] = old._replace(
            epoch=fact.epoch, previous_epoch=fact.previous_epoch, assigned=fact.assigned
        )

    def _apply_left(self, fact: facts.ShareMemberLeft) -> None:
        self.members.pop(fact.member_id, None)
        self.targets.pop(fact.member_id, None)

    def _apply_nothing(self, fact: object) -> None:
        """A fact about time only."""

    def invariants(self) -> None:
        assert self.targets.keys() <= self.members.keys(), "a target for nobody"
        assert self.target_epoch <= self.epoch
        for member in self.members.values():
            assert member.previous_epoch <= member.epoch <= self.epoch
            if member.epoch == self.target_epoch:
                assert member.assigned == self.targets.get(member.member_id, NOTHING)


_APPLY: dict[type, Callable[[ShareGroup, Any], None]] = {
    facts.ShareEpochSet: ShareGroup._apply_epoch,
    facts.ShareMemberSubscribed: ShareGroup._apply_subscribed,
    facts.ShareTargetsSet: ShareGroup._apply_targets,
    facts.ShareTargetLoaded: ShareGroup._apply_target_loaded,
    facts.ShareCurrentSet: ShareGroup._apply_current,
    facts.ShareMemberLeft: ShareGroup._apply_left,
    SessionExtended: ShareGroup._apply_nothing,
}
