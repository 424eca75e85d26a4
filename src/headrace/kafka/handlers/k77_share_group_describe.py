"""Door: ShareGroupDescribe (77)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.groups.share import commands
from headrace.kafka.call import Call
from headrace.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

KEY = 77
VERSIONS = (1, 1)


async def handle(call: Call) -> ShareGroupDescribeResponse:
    request: ShareGroupDescribeRequest = call.request
    return ShareGroupDescribeResponse(groups=[await _describe(call, group) for group in request.group_ids])


async def _describe(call: Call, group_id: str) -> DescribedGroup:
    try:
        (group,) = await call.broker.groups.ask(
            group_id, lambda waiter: commands.ShareGroupDescribe(waiter, (group_id,))
        )
    except HeadraceError as problem:
        return DescribedGroup(
            error_code=problem.kind.kafka_code, error_message=problem.detail, group_id=group_id
        )
    return DescribedGroup(
        error_code=group.error.kafka_code,
        error_message=None if group.error is ErrorKind.NONE else group.message,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
    )


def _member(member: commands.DescribedShareMember) -> Member:
    assigned = [TopicPartitions(one.topic_id, one.topic, list(one.partitions)) for one in member.assignment]
    return Member(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        Assignment(assigned),
    )
