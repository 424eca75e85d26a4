"""Door: CreateDelegationToken (38, KIP-48): one's own need no right, those of others CreateTokens on the user (A43)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.delegation_tokens import requester, user_named
from headrace.security.rights import OWN, Operation, Resource
from headrace.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

KEY = 38
VERSIONS = (1, 3)
RIGHTS = OWN


async def handle(call: Call[CreateDelegationTokenRequest]) -> CreateDelegationTokenResponse:
    request, session = call.request, call.session
    answer = CreateDelegationTokenResponse(
        principal_type=session.principal.kind,
        principal_name=session.principal.name,
        token_requester_principal_type=session.principal.kind,
        token_requester_principal_name=session.principal.name,
    )
    try:
        by = requester(call)
        owner = by
        if request.owner_principal_name:
            owner = user_named(request.owner_principal_type or "", request.owner_principal_name)
        answer.principal_type, answer.principal_name = owner.kind, owner.name
        if owner != by and call.refuses(Operation.CREATE_TOKENS, Resource.USER, str(owner)):
            raise HeadraceError(ErrorKind.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "needs CreateTokens on user")
        renewers = [str(user_named(each.principal_type, each.principal_name)) for each in request.renewers]
        held, secret = await call.security.delegation.create(owner, by, renewers, request.max_lifetime_ms)
    except HeadraceError as problem:
        answer.error_code = problem.kind.kafka_code
        return answer
    record = held.record
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = record.issued_ms, record.expires_ms
    answer.max_timestamp_ms, answer.token_id, answer.hmac = record.max_ms, held.token_id, secret
    return answer
