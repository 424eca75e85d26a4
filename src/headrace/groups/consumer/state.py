"""Machine: one consumer group (KIP-848), and how each fact changes it.

Invariant (R55): `owners` maps each partition that any member has, or has not given up yet, to that one member.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.groups.assigned import AssignedGroup, MemberState
from headrace.groups.consumer import facts
from headrace.groups.consumer.members import NOTHING, Assignment, ConsumerMember, TopicIdPartition
from headrace.groups.facts import ProgressAwaited, SessionExtended
from headrace.groups.members import static_refusal
from headrace.groups.topics import TopicIndex


class ConsumerGroup(AssignedGroup[ConsumerMember, Assignment]):
    __slots__ = ("empty_since_wall_ms", "owners", "statics", "unheard")

    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.empty_since_wall_ms = -1
        self.statics: dict[str, str] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        self.unheard: dict[str, None] = {}
        """Members that have not said yet that they heard their assignment. Not journalled: a new coordinator tells all."""

    # --- questions -------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if all(self.is_reconciled(m) for m in self.members.values()) else "Reconciling"

    @property
    def all_classic(self) -> bool:
        return all(member.is_classic for member in self.members.values())

    def is_reconciled(self, member: ConsumerMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.target_epoch

    def topics_subscribed(self, index: TopicIndex) -> frozenset[str]:
        by_name = frozenset(name for m in self.members.values() for name in m.subscription.topics)
        looking = {
            (m.subscription.reader, m.subscription.client_host, m.subscription.pattern): m.subscription
            for m in self.members.values()
            if m.subscription.pattern
        }
        return index.resolve(by_name, None).union(*(each.resolve(index) for each in looking.values()))

    def retention(self, index: TopicIndex | None) -> tuple[frozenset[str] | None, int | None]:
        """See ClassicGroup.retention."""
        if self.is_empty:
            return frozenset(), self.empty_since_wall_ms if self.empty_since_wall_ms >= 0 else None
        return (None if index is None else self.topics_subscribed(index)), None

    def assignor(self, default: str) -> str:
        """What most members ask for; ties go to whom was named first."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.subscription.assignor is not None:
                votes[member.subscription.assignor] = votes.get(member.subscription.assignor, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else default

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorKind:
        """The member a request of the classic protocol comes from, or why it is none (R54)."""
        fenced = static_refusal(self.statics, member_id, instance_id)
        if fenced is not ErrorKind.NONE:
            return fenced
        return self.members.get(member_id, ErrorKind.UNKNOWN_MEMBER_ID)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Some of its target is still held by another member."""
        target = self.targets.get(member.member_id, NOTHING)
        return any(self.owners.get(part, member.member_id) != member.member_id for part in target)

    # --- facts -----------------------------------------------------------------------------------------------

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def _apply_epoch(self, fact: facts.GroupEpochSet) -> None:
        self.epoch = fact.epoch
        self.fingerprint = fact.fingerprint
        self.empty_since_wall_ms = fact.empty_since_wall_ms

    def _apply_subscribed(self, fact: facts.MemberSubscribed) -> None:
        old = self._member(fact.member_id)
        if old.subscription.instance_id is not None:
            self.statics.pop(old.subscription.instance_id, None)
        if fact.subscription.instance_id is not None:
            self.statics[fact.subscription.instance_id] = fact.member_id
        self.members[fact.member_id] = old._replace(subscription=fact.subscription)

    def _apply_current(self, fact: facts.CurrentSet) -> None:
        old = self._member(fact.member_id)
        self._release(old)
        new = old._replace(
            epoch=fact.epoch,
            previous_epoch=fact.previous_epoch,
            state=fact.state,
            assigned=fact.assigned,
            revoking=fact.revoking,
        )
        self.members[fact.member_id] = new
        self.owners.update(dict.fromkeys(new.held, fact.member_id))

    def _apply_left(self, fact: facts.MemberLeft) -> None:
        self.targets.pop(fact.member_id, None)
        self.unheard.pop(fact.member_id, None)
        member = self.members.pop(fact.member_id, None)
        if member is None:
            return
        self._release(member)
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.statics.get(instance_id) == fact.member_id:
            del self.statics[instance_id]

    def _apply_current_forgotten(self, fact: facts.CurrentForgotten) -> None:
        member = self.members.get(fact.member_id)
        if member is not None:
            self._release(member)
            self.members[fact.member_id] = ConsumerMember(fact.member_id, member.subscription)

    def _apply_told(self, fact: facts.AssignmentTold) -> None:
        if fact.heard:
            self.unheard.pop(fact.member_id, None)
        else:
            self.unheard[fact.member_id] = None

    def _release(self, member: ConsumerMember) -> None:
        for part in member.held:
            if self.owners.get(part) == member.member_id:
                del self.owners[part]

    # --- invariants ------------------------------------------------------------------------------------------

    def invariants(self) -> None:
        super().invariants()
        owners: dict[TopicIdPartition, str] = {}
        for member in self.members.values():
            assert not member.assigned & member.revoking, "a partition is both assigned and being revoked"
            assert (member.state is MemberState.UNREVOKED) == bool(member.revoking)
            assert member.epoch <= self.epoch and member.previous_epoch <= self.epoch
            for part in member.held:
                assert part not in owners, f"R55: {part} has two owners: {owners[part]}, {member.member_id}"
                owners[part] = member.member_id
        assert owners == self.owners, "the index of owners is wrong"
        statics = {m.subscription.instance_id: m.member_id for m in self.members.values()}
        statics.pop(None, None)
        assert statics == self.statics, "the index of static members is wrong"
        assert self.unheard.keys() <= self.members.keys(), "nobody was told something"
        targeted = [part for target in self.targets.values() for part in target]
        assert len(targeted) == len(set(targeted)), "R55: a partition is to have two owners"


ConsumerGroup.appliers = {
    facts.GroupEpochSet: ConsumerGroup._apply_epoch,
    facts.MemberSubscribed: ConsumerGroup._apply_subscribed,
    facts.TargetsSet: ConsumerGroup._apply_targets,
    facts.CurrentSet: ConsumerGroup._apply_current,
    facts.AssignmentTold: ConsumerGroup._apply_told,
    facts.MemberLeft: ConsumerGroup._apply_left,
    facts.TargetLoaded: ConsumerGroup._apply_target_loaded,
    facts.CurrentForgotten: ConsumerGroup._apply_current_forgotten,
    ProgressAwaited: ConsumerGroup._apply_nothing,
    SessionExtended: ConsumerGroup._apply_nothing,
}
