"""Door: CreateAcls (30). A right that is there already is there still; what is wrong with one does not stop the others."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.security.audit import ACTING
from headrace.security.guard import Parts
from headrace.security.new_acls import acl_of
from headrace.security.records import Acl
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

KEY = 30
VERSIONS = (1, 3)
RIGHTS = needs(alter(CLUSTER))
PARTS = (Parts("creations", "results"),)


async def handle(call: Call[CreateAclsRequest]) -> CreateAclsResponse:
    ACTING.set(str(call.session.principal))
    wanted: list[Acl] = []
    results: list[AclCreationResult] = []
    good: list[AclCreationResult] = []
    async for entry in call.pace().over(call.request.creations):
        result = AclCreationResult()
        results.append(result)
        try:
            wanted.append(acl_of(entry))
            good.append(result)
        except HeadraceError as problem:
            result.error_code, result.error_message = problem.kind.kafka_code, problem.detail
    try:
        await call.security.admin.add_acls(wanted)
    except HeadraceError as problem:
        for result in good:
            result.error_code, result.error_message = problem.kind.kafka_code, problem.detail
    return CreateAclsResponse(results=results)
