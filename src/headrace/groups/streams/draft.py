"""Machine: a plan in the making for a streams group: the steps that heartbeats, leaves and timeouts are made of."""

from __future__ import annotations

from dataclasses import replace

from headrace.groups.assigned import MemberState
from headrace.groups.config import GroupConfig
from headrace.groups.draft import GroupDraft
from headrace.groups.facts import ProgressAwaited
from headrace.groups.reconcile import MemberPlace, reconcile
from headrace.groups.streams.assignor import assign_sticky
from headrace.groups.streams.facts import (
    StreamsCurrentSet,
    StreamsEpochSet,
    StreamsMemberLeft,
    StreamsTargetsSet,
)
from headrace.groups.streams.members import NOTHING, Role, StreamsMember, Tasks
from headrace.groups.streams.state import StreamsGroup
from headrace.groups.streams.topology import ConfiguredTopology, Notice, Status
from headrace.groups.topics import TopicIndex


def epoch_for(group: StreamsGroup, index: TopicIndex) -> StreamsEpochSet:
    """The next epoch of a group with members, with the topics as they are now."""
    validated_epoch, fingerprint = group.outlook(index)
    return StreamsEpochSet(
        group.group_id, group.epoch + 1, fingerprint, validated_epoch, group.standby_replicas, -1
    )


class StreamsDraft(GroupDraft[StreamsGroup]):
    __slots__ = ("index",)

    def __init__(
        self, group: StreamsGroup, index: TopicIndex, config: GroupConfig, now_ms: int, wall_ms: int
    ) -> None:
        super().__init__(group, config, now_ms, wall_ms)
        self.index = index

    @property
    def configured(self) -> ConfiguredTopology:
        return self.group.configured(self.index)

    def bump(self, standby_replicas: int) -> None:
        """The assignment has to be found anew, by the next heartbeat that needs it."""
        group = self.group
        raised = epoch_for(group, self.index)
        empty_since_wall_ms = self.wall_ms if group.is_empty else -1
        self.do(replace(raised, standby_replicas=standby_replicas, empty_since_wall_ms=empty_since_wall_ms))

    def is_out_of_date(self, standby_replicas: int) -> bool:
        """Topics or settings changed since the group's epoch did."""
        group = self.group
        seen = group.standby_replicas, group.validated_epoch, group.fingerprint
        return seen != (standby_replicas, *group.outlook(self.index))

    def assign(self) -> Notice | None:
        """Run the assignor when something changed since it last ran, or say why that has to wait."""
        group, settings = self.group, self.config.streams
        if group.delayed_until_ms is not None and self.now_ms < group.delayed_until_ms:
            return Notice(Status.ASSIGNMENT_DELAYED, "The first assignment waits for more members to join.")
        if group.target_epoch >= group.epoch:
            return None
        age_ms = self.wall_ms - group.assigned_wall_ms
        if 0 <= age_ms < settings.assignment_interval_ms:
            return Notice(
                Status.ASSIGNMENT_DELAYED, "Tasks were assigned a moment ago; the next assignment waits."
            )
        processes = {member_id: member.profile.process_id for member_id, member in group.members.items()}
        targets = assign_sticky(processes, group.targets, self.configured, settings.standby_replicas)
        changed = tuple((m, tasks) for m, tasks in targets.items() if group.targets.get(m) != tasks)
        self.do(StreamsTargetsSet(group.group_id, group.epoch, changed, self.wall_ms))
        return None

    def step(self, member_id: str, owned: Tasks | None) -> StreamsMember:
        """Move the member towards its target. Returns it as it then is."""
        group, before = self.group, self.group.members[member_id]
        now = MemberPlace(before.epoch, before.previous_epoch, before.state, before.assigned, before.revoking)
        target = group.targets.get(member_id, NOTHING)
        place = reconcile(now, target, group.target_epoch, owned, lambda task: group.is_free(before, task))
        if place == now:
            return before
        since = {
            task: before.since.get(task, place.epoch)
            for task in place.assigned | place.revoking
            if task.role is Role.ACTIVE
        }
        self.do(StreamsCurrentSet(group.group_id, member_id, *place, since))
        after = before._replace(**place._asdict(), since=since)
        until_ms = self.now_ms + after.profile.rebalance_timeout_ms
        revoking = after.state is MemberState.UNREVOKED
        self.do(ProgressAwaited(group.group_id, member_id, until_ms if revoking else None))
        return after

    def remove(self, member_id: str) -> None:
        self.do(StreamsMemberLeft(self.group.group_id, member_id))
