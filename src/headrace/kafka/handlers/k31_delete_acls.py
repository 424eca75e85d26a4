"""Door: DeleteAcls (31): the rights that fit a filter."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.acl_entries import AclFilter
from headrace.kafka.call import Call
from headrace.security.audit import ACTING
from headrace.security.guard import Parts
from headrace.security.records import Acl
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

KEY = 31
VERSIONS = (1, 3)
RIGHTS = needs(alter(CLUSTER))
PARTS = (Parts("filters", "filter_results"),)


async def handle(call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    ACTING.set(str(call.session.principal))
    pace = call.pace()
    return DeleteAclsResponse(
        filter_results=[await _delete(call, entry) async for entry in pace.over(call.request.filters)]
    )


async def _delete(call: Call[DeleteAclsRequest], entry: DeleteAclsFilter) -> DeleteAclsFilterResult:
    wanted = AclFilter(
        entry.resource_type_filter,
        entry.resource_name_filter,
        entry.pattern_type_filter,
        entry.principal_filter,
        entry.host_filter,
        entry.operation,
        entry.permission_type,
    )
    if wanted.problem is not None:
        return DeleteAclsFilterResult(ErrorKind.INVALID_REQUEST.kafka_code, wanted.problem)
    acls: list[Acl] = list(call.security.image.acls)
    doomed = [acl async for acl in call.pace().over(acls) if wanted.fits(acl)]
    try:
        await call.security.admin.remove_acls(doomed)
    except HeadraceError as problem:
        return DeleteAclsFilterResult(problem.kind.kafka_code, problem.detail)
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                0,
                None,
                acl.resource,
                acl.name,
                acl.pattern,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for acl in doomed
        ]
    )
