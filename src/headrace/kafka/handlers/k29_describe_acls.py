"""Door: DescribeAcls (29): the rights that there are, by resource."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.acl_entries import AclFilter
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, describe, needs
from headrace.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

KEY = 29
VERSIONS = (1, 3)
RIGHTS = needs(describe(CLUSTER))


async def handle(call: Call[DescribeAclsRequest]) -> DescribeAclsResponse:
    request = call.request
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if wanted.problem is not None:
        return DescribeAclsResponse(
            error_code=ErrorKind.INVALID_REQUEST.kafka_code, error_message=wanted.problem
        )
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    async for acl in call.pace().over(list(call.security.image.acls)):
        if wanted.fits(acl):
            row = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            found.setdefault((acl.resource, acl.name, acl.pattern), []).append(row)
    return DescribeAclsResponse(
        resources=[DescribeAclsResource(*place, rows) for place, rows in sorted(found.items())]
    )
