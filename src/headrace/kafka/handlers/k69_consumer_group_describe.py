"""Door: ConsumerGroupDescribe (69). A classic group is GROUP_ID_NOT_FOUND here, so that clients ask DescribeGroups."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.groups.consumer import commands
from headrace.kafka.call import Call
from headrace.kafka.describing import described
from headrace.kafka.operations import ON_GROUP
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, describe, needs
from headrace.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

KEY = 69
VERSIONS = (0, 1)
RIGHTS = needs(describe(GROUP, "group_ids[]")).showing(describe(TOPIC))
PARTS = (Parts("group_ids", "groups"),)

CLASSIC, CONSUMER = 0, 1


async def handle(call: Call[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=await described(call, DescribedGroup, _describe))


async def _describe(call: Call[ConsumerGroupDescribeRequest], group_id: str) -> DescribedGroup:
    (group,) = await call.services.groups.ask(group_id, commands.ConsumerGroupDescribe((group_id,)))
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


def _member(call: Call[ConsumerGroupDescribeRequest], member: commands.DescribedConsumer) -> Member:
    """Without the topics that the caller may not see (A44)."""
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        [topic for topic in member.topics if call.sees(TOPIC, topic)],
        member.pattern,
        _assignment(call, member.assignment),
        _assignment(call, member.target),
        CLASSIC if member.is_classic else CONSUMER,
    )


def _assignment(
    call: Call[ConsumerGroupDescribeRequest], assigned: tuple[commands.DescribedAssignment, ...]
) -> Assignment:
    return Assignment(
        [
            TopicPartitions(entry.topic_id, entry.topic, list(entry.partitions))
            for entry in assigned
            if call.sees(TOPIC, entry.topic)
        ]
    )
