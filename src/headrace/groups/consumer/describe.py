"""Machine: ConsumerGroupDescribe."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan
from headrace.groups.consumer.commands import (
    ConsumerGroupDescribe,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from headrace.groups.consumer.members import NOTHING, Assignment, as_lists
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex


def describe(table: GroupTable, command: ConsumerGroupDescribe) -> GroupPlan:
    found = tuple(_describe_one(table, group_id) for group_id in command.group_ids)
    return Plan(replies=command.answer(found))


def _describe_one(table: GroupTable, group_id: str) -> DescribedConsumerGroup:
    if not group_id:
        return DescribedConsumerGroup(ErrorKind.INVALID_GROUP_ID, group_id)
    group = table.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        # Java falls back to DescribeGroups on this error.
        message = f"Group {group_id} is not a consumer group."
        return DescribedConsumerGroup(ErrorKind.GROUP_ID_NOT_FOUND, group_id, message)
    index = table.topics or TopicIndex({})
    members = tuple(
        DescribedConsumer(
            member.member_id,
            member.subscription.instance_id,
            member.subscription.rack_id,
            member.epoch,
            member.subscription.client_id,
            member.subscription.client_host,
            member.subscription.topics,
            member.subscription.pattern,
            named(member.assigned, index),
            named(group.targets.get(member.member_id, NOTHING), index),
            member.is_classic,
        )
        for member in group.members.values()
    )
    return DescribedConsumerGroup(
        ErrorKind.NONE,
        group_id,
        None,
        group.state_name,
        group.epoch,
        group.target_epoch,
        group.assignor(table.config.consumer_assignors[0]),
        members,
    )


def named(assignment: Assignment, index: TopicIndex) -> tuple[DescribedAssignment, ...]:
    """By topic; one that was deleted and not given up yet has no name to show and is left out."""
    return tuple(
        DescribedAssignment(topic_id, index.by_id[topic_id], partitions)
        for topic_id, partitions in as_lists(assignment)
        if topic_id in index.by_id
    )
