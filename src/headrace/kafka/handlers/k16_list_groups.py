"""Door: ListGroups (16): the groups this broker coordinates. v4: filter by state. v5: by type."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.groups import commands
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, GROUP, OWN, Operation, describe
from headrace.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

KEY = 16
VERSIONS = (0, 5)
RIGHTS = OWN.showing(describe(CLUSTER), describe(GROUP))


async def handle(call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    request = call.request
    states, types = frozenset(request.states_filter), frozenset(request.types_filter)
    try:
        answers = await call.services.groups.ask_all(commands.ListGroups(states, types))
    except HeadraceError as problem:
        return ListGroupsResponse(error_code=problem.kind.kafka_code)
    pace = call.pace()
    everything = call.may(Operation.DESCRIBE, CLUSTER)
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state, group.group_type)
            for answer in answers
            async for group in pace.over(answer)
            if everything or call.sees(GROUP, group.group_id)
        ]
    )
