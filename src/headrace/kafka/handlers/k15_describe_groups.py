"""Door: DescribeGroups (15). v0 is what librdkafka's list_groups speaks. v6: an unknown group is an error."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NAMES_DESCRIBED
from headrace.groups import commands
from headrace.kafka.call import Call
from headrace.kafka.operations import ON_GROUP
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, describe, needs
from headrace.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

KEY = 15
VERSIONS = (0, 6)
RIGHTS = needs(describe(GROUP, "groups[]"))
PARTS = (Parts("groups", "groups"),)


async def handle(call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    request = call.request
    wanted = dict.fromkeys(request.groups)
    if len(wanted) > MAX_NAMES_DESCRIBED:
        # A3. Named, so that whoever reads the answer knows what to do.
        message = f"more than {MAX_NAMES_DESCRIBED} groups are asked for; ask in several requests"
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(ErrorKind.INVALID_REQUEST.kafka_code, message, group_id) for group_id in wanted
            ]
        )
    return DescribeGroupsResponse(
        groups=[await _describe(call, group_id) async for group_id in call.pace().over(wanted)]
    )


async def _describe(call: Call[DescribeGroupsRequest], group_id: str) -> DescribedGroup:
    try:
        (group,) = await call.services.groups.ask(
            group_id, commands.DescribeGroups((group_id,), call.version >= 6)
        )
    except HeadraceError as problem:
        group = commands.DescribedGroup(problem.kind, group_id)
    return DescribedGroup(
        error_code=group.error.kafka_code,
        error_message=None if group.error is ErrorKind.NONE else group.message,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        authorized_operations=call.bits(
            call.request.include_authorized_operations, ON_GROUP, GROUP, group_id
        ),
        members=[
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in group.members
        ],
    )
