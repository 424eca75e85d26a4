"""Door: ShareGroupDescribe (77)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.groups.share import commands
from headrace.kafka.call import Call
from headrace.kafka.describing import described
from headrace.kafka.operations import ON_GROUP
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, describe, needs
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
RIGHTS = needs(describe(GROUP, "group_ids[]")).showing(describe(TOPIC))
PARTS = (Parts("group_ids", "groups"),)


async def handle(call: Call[ShareGroupDescribeRequest]) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=await described(call, DescribedGroup, _describe))


async def _describe(call: Call[ShareGroupDescribeRequest], group_id: str) -> DescribedGroup:
    (group,) = await call.services.groups.ask(group_id, commands.ShareGroupDescribe((group_id,)))
    return DescribedGroup(
        error_code=group.error.kafka_code,
        error_message=None if group.error is ErrorKind.NONE else group.message,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        authorized_operations=call.bits(
            call.request.include_authorized_operations, ON_GROUP, GROUP, group_id
        ),
        members=[_member(call, member) for member in group.members],
    )


def _member(call: Call[ShareGroupDescribeRequest], member: commands.DescribedShareMember) -> Member:
    """Without the topics that the caller may not see (A44)."""
    assigned = [
        TopicPartitions(one.topic_id, one.topic, list(one.partitions))
        for one in member.assignment
        if call.sees(TOPIC, one.topic)
    ]
    return Member(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        [topic for topic in member.topics if call.sees(TOPIC, topic)],
        Assignment(assigned),
    )
