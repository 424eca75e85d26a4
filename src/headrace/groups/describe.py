"""Machine: DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact, Plan
from headrace.groups.commands import (
    DeletedGroup,
    DeleteGroups,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    GroupPlan,
    ListedGroup,
    ListGroups,
)
from headrace.groups.consumer.facts import ConsumerGroupDeleted
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.facts import GroupDeleted, OffsetsDropped
from headrace.groups.share.facts import ShareGroupDeleted
from headrace.groups.share.state import ShareGroup
from headrace.groups.state import ClassicGroup, GroupState
from headrace.groups.streams.facts import StreamsGroupDeleted
from headrace.groups.streams.state import StreamsGroup
from headrace.groups.table import Group, GroupTable


def find_classic(table: GroupTable, group_id: str) -> ClassicGroup | None:
    """A group that only ever committed offsets has no members and no type, but it is there."""
    group = table.groups.get(group_id)
    if group is not None:
        return group if isinstance(group, ClassicGroup) else None
    return ClassicGroup(group_id) if group_id in table.offsets.group_ids() else None


def describe(table: GroupTable, command: DescribeGroups) -> GroupPlan:
    found = tuple(_describe_one(table, group_id, command.missing_is_error) for group_id in command.group_ids)
    return Plan(replies=command.answer(found))


def _describe_one(table: GroupTable, group_id: str, missing_is_error: bool) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(ErrorKind.INVALID_GROUP_ID, group_id)
    group = find_classic(table, group_id)
    if group is None:
        if missing_is_error:
            message = f"Group {group_id} not found."
            return DescribedGroup(ErrorKind.GROUP_ID_NOT_FOUND, group_id, "Dead", message=message)
        return DescribedGroup(ErrorKind.NONE, group_id, "Dead")
    stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            # Between generations nothing is agreed upon yet.
            member.metadata(group.protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if stable else ""
    return DescribedGroup(ErrorKind.NONE, group_id, group.state.value, group.protocol_type, protocol, members)


def list_groups(table: GroupTable, command: ListGroups) -> GroupPlan:
    states = {state.lower() for state in command.states}
    types = {group_type.lower() for group_type in command.types}
    found: list[ListedGroup] = []
    for group_id in sorted(table.groups.keys() | table.offsets.group_ids()):
        group: Group = table.groups.get(group_id) or ClassicGroup(group_id)
        state = group.state_name
        if (states and state.lower() not in states) or (types and group.group_type not in types):
            continue
        found.append(ListedGroup(group_id, group.protocol_type, state, group.group_type))
    return Plan(replies=command.answer(tuple(found)))


def delete_groups(table: GroupTable, command: DeleteGroups) -> GroupPlan:
    facts: list[Fact] = []
    outcomes: list[DeletedGroup] = []
    for group_id in dict.fromkeys(command.group_ids):
        error = _why_not_deletable(table, group_id)
        outcomes.append(DeletedGroup(group_id, error))
        if error is ErrorKind.NONE:
            keys = table.offsets.keys_of_group(group_id)
            if keys:
                facts.append(OffsetsDropped(group_id, keys))
            group = table.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                facts.append(GroupDeleted(group_id))
            elif isinstance(group, ConsumerGroup):
                facts.append(ConsumerGroupDeleted(group_id))
            elif isinstance(group, ShareGroup):
                facts.append(ShareGroupDeleted(group_id))
            elif isinstance(group, StreamsGroup):
                facts.append(StreamsGroupDeleted(group_id))
    return Plan(tuple(facts), command.answer(tuple(outcomes)))


def _why_not_deletable(table: GroupTable, group_id: str) -> ErrorKind:
    if not group_id:
        return ErrorKind.INVALID_GROUP_ID
    group = table.groups.get(group_id)
    if group is not None:
        return ErrorKind.NONE if group.is_empty else ErrorKind.NON_EMPTY_GROUP
    known = group_id in table.offsets.group_ids()
    return ErrorKind.NONE if known else ErrorKind.GROUP_ID_NOT_FOUND
