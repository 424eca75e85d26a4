"""Machine: a plan in the making for a consumer group: the steps that heartbeats, leaves and timeouts are made of."""

from __future__ import annotations

from headrace.groups.assigned import JOIN_EPOCH, MemberState
from headrace.groups.config import GroupConfig
from headrace.groups.consumer.assignors import ASSIGNORS, GroupReader
from headrace.groups.consumer.facts import (
    CurrentSet,
    GroupEpochSet,
    MemberLeft,
    MemberSubscribed,
    TargetsSet,
)
from headrace.groups.consumer.members import NOTHING, Assignment, ConsumerMember, ConsumerSubscription
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.draft import GroupDraft
from headrace.groups.facts import ProgressAwaited
from headrace.groups.reconcile import MemberPlace, reconcile
from headrace.groups.topics import TopicIndex


class ConsumerDraft(GroupDraft[ConsumerGroup]):
    __slots__ = ("index",)

    def __init__(
        self, group: ConsumerGroup, index: TopicIndex, config: GroupConfig, now_ms: int, wall_ms: int
    ) -> None:
        super().__init__(group, config, now_ms, wall_ms)
        self.index = index

    def subscribe(self, member_id: str, subscription: ConsumerSubscription) -> None:
        """Add or update a member. What it reads decides the assignment; the rest of a subscription does not."""
        present = self.group.members.get(member_id)
        if present is not None and present.subscription == subscription:
            return
        self.do(MemberSubscribed(self.group.group_id, member_id, subscription))
        old = present.subscription if present is not None else ConsumerSubscription()
        if present is None or old.what != subscription.what:
            self.bump()

    def bump(self) -> None:
        """The assignment has to be found anew, by the next heartbeat that needs it."""
        group = self.group
        fingerprint = self.index.fingerprint(group.topics_subscribed(self.index))
        empty_since_wall_ms = self.wall_ms if group.is_empty else -1
        self.do(GroupEpochSet(group.group_id, group.epoch + 1, fingerprint, empty_since_wall_ms))

    def assign(self) -> None:
        """Run the assignor, when something changed since it last ran."""
        group = self.group
        if group.target_epoch >= group.epoch:
            return
        readers = [
            GroupReader(
                member.member_id,
                member.subscription.instance_id,
                member.subscription.rack_id,
                member.subscription.resolve(self.index),
            )
            for member in group.members.values()
        ]
        assignor = ASSIGNORS[group.assignor(self.config.consumer_assignors[0])]
        targets = assignor(readers, group.targets, self.index)
        changed = tuple((m, parts) for m, parts in targets.items() if group.targets.get(m) != parts)
        self.do(TargetsSet(group.group_id, group.epoch, changed))

    def step(self, member_id: str, owned: Assignment | None) -> ConsumerMember:
        """Move the member towards its target. Returns it as it then is."""
        group, before = self.group, self.group.members[member_id]
        place = reconcile(
            MemberPlace(before.epoch, before.previous_epoch, before.state, before.assigned, before.revoking),
            group.targets.get(member_id, NOTHING),
            group.target_epoch,
            owned,
            lambda part: group.owners.get(part, member_id) == member_id,
        )
        after = before._replace(**place._asdict())
        if after != before:
            self.set_current(after)
            if not after.is_classic:
                until_ms = self.now_ms + after.subscription.rebalance_timeout_ms
                revoking = after.state is MemberState.UNREVOKED
                self.await_progress(member_id, until_ms if revoking else None)
        return after

    def set_current(self, member: ConsumerMember) -> None:
        self.do(
            CurrentSet(
                self.group.group_id,
                member.member_id,
                member.epoch,
                member.previous_epoch,
                member.state,
                member.assigned,
                member.revoking,
            )
        )

    def await_progress(self, member_id: str, until_ms: int | None) -> None:
        self.do(ProgressAwaited(self.group.group_id, member_id, until_ms))

    def remove(self, member_id: str) -> None:
        self.do(MemberLeft(self.group.group_id, member_id))

    def replace(self, old: ConsumerMember, member_id: str) -> None:
        """A static member came back under another id: it takes over place, target and partitions."""
        group, target = self.group, self.group.targets.get(old.member_id, NOTHING)
        self.remove(old.member_id)
        self.do(MemberSubscribed(group.group_id, member_id, old.subscription))
        self.do(TargetsSet(group.group_id, group.target_epoch, ((member_id, target),)))
        self.set_current(old._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH))
