"""Machine: the membership of one share group, and how each fact changes it.

Partitions are shared, so there is nothing to hand over and nobody to wait for: a member's assignment is its target.
"""

from __future__ import annotations

from headrace.groups.assigned import AssignedGroup
from headrace.groups.consumer.members import NOTHING, Assignment
from headrace.groups.facts import SessionExtended
from headrace.groups.share import facts
from headrace.groups.share.members import ShareMember
from headrace.groups.topics import TopicIndex


class ShareGroup(AssignedGroup[ShareMember, Assignment]):
    __slots__ = ()

    group_type = "share"
    protocol_type = "share"
    can_be_forgotten = False
    """Its queue state may outlive its members for long; only an administrator deletes it."""

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def topics_subscribed(self, index: TopicIndex) -> frozenset[str]:
        return index.resolve({name for m in self.members.values() for name in m.subscription.topics}, None)

    def retention(self, index: object) -> tuple[frozenset[str] | None, int | None]:
        """It has no committed offsets; if there are any, they are not ours to drop."""
        return None, None

    # --- facts -----------------------------------------------------------------------------------------------

    def _apply_epoch(self, fact: facts.ShareEpochSet) -> None:
        self.epoch = fact.epoch
        self.fingerprint = fact.fingerprint

    def _apply_subscribed(self, fact: facts.ShareMemberSubscribed) -> None:
        old = self.members.get(fact.member_id) or ShareMember(fact.member_id)
        self.members[fact.member_id] = old._replace(subscription=fact.subscription)

    def _apply_current(self, fact: facts.ShareCurrentSet) -> None:
        old = self.members.get(fact.member_id) or ShareMember(fact.member_id)
        self.members[fact.member_id] = old._replace(
            epoch=fact.epoch, previous_epoch=fact.previous_epoch, assigned=fact.assigned
        )

    def _apply_left(self, fact: facts.ShareMemberLeft) -> None:
        self.members.pop(fact.member_id, None)
        self.targets.pop(fact.member_id, None)

    def invariants(self) -> None:
        super().invariants()
        for member in self.members.values():
            assert member.previous_epoch <= member.epoch <= self.epoch
            if member.epoch == self.target_epoch:
                assert member.assigned == self.targets.get(member.member_id, NOTHING)


ShareGroup.appliers = {
    facts.ShareEpochSet: ShareGroup._apply_epoch,
    facts.ShareMemberSubscribed: ShareGroup._apply_subscribed,
    facts.ShareTargetsSet: ShareGroup._apply_targets,
    facts.ShareTargetLoaded: ShareGroup._apply_target_loaded,
    facts.ShareCurrentSet: ShareGroup._apply_current,
    facts.ShareMemberLeft: ShareGroup._apply_left,
    SessionExtended: ShareGroup._apply_nothing,
}
