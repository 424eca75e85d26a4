"""Machine: StreamsGroupDescribe."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan
from headrace.groups.streams.commands import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    StreamsGroupDescribe,
)
from headrace.groups.streams.heartbeat import by_role
from headrace.groups.streams.members import NOTHING
from headrace.groups.streams.state import StreamsGroup
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex


def describe(table: GroupTable, command: StreamsGroupDescribe) -> GroupPlan:
    found = tuple(_describe_one(table, group_id) for group_id in command.group_ids)
    return Plan(replies=command.answer(found))


def _describe_one(table: GroupTable, group_id: str) -> DescribedStreamsGroup:
    if not group_id:
        return DescribedStreamsGroup(ErrorKind.INVALID_GROUP_ID, group_id)
    group = table.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        message = f"Group {group_id} is not a streams group."
        return DescribedStreamsGroup(ErrorKind.GROUP_ID_NOT_FOUND, group_id, message, "Dead")
    configured = group.configured(table.topics or TopicIndex({}))
    topology = group.topology
    members = tuple(
        DescribedStreamsMember(
            member.member_id,
            member.epoch,
            member.profile,
            by_role(member.assigned),
            by_role(group.targets.get(member.member_id, NOTHING)),
        )
        for member in group.members.values()
    )
    return DescribedStreamsGroup(
        ErrorKind.NONE,
        group_id,
        None,
        group.state_name,
        group.epoch,
        group.target_epoch,
        -1 if topology is None else topology.epoch,
        # With the partitions that were found, once everything is there; until then as the application said it.
        configured.subtopologies if configured.is_ready or topology is None else topology.subtopologies,
        members,
    )
