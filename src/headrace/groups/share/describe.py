"""Machine: ShareGroupDescribe."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan
from headrace.groups.consumer.describe import named
from headrace.groups.share.commands import DescribedShareGroup, DescribedShareMember, ShareGroupDescribe
from headrace.groups.share.state import ShareGroup
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex


def describe(table: GroupTable, command: ShareGroupDescribe) -> GroupPlan:
    found = tuple(_describe_one(table, group_id) for group_id in command.group_ids)
    return Plan(replies=command.answer(found))


def _describe_one(table: GroupTable, group_id: str) -> DescribedShareGroup:
    if not group_id:
        return DescribedShareGroup(ErrorKind.INVALID_GROUP_ID, group_id)
    group = table.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        message = f"Group {group_id} is not a share group."
        return DescribedShareGroup(ErrorKind.GROUP_ID_NOT_FOUND, group_id, message, "Dead")
    index = table.topics or TopicIndex({})
    members = tuple(
        DescribedShareMember(
            member.member_id,
            member.subscription.rack_id,
            member.epoch,
            member.subscription.client_id,
            member.subscription.client_host,
            member.subscription.topics,
            named(member.assigned, index),
        )
        for member in group.members.values()
    )
    return DescribedShareGroup(
        ErrorKind.NONE, group_id, None, group.state_name, group.epoch, group.target_epoch, "simple", members
    )
