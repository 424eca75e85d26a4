"""Door: ExpireDelegationToken (40, KIP-48): it ends sooner, or at once. For its owner, who asked for it, and its renewers (A43)."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.delegation_tokens import requester
from headrace.security.rights import OWN
from headrace.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

KEY = 40
VERSIONS = (1, 2)
RIGHTS = OWN


async def handle(call: Call[ExpireDelegationTokenRequest]) -> ExpireDelegationTokenResponse:
    try:
        ends_ms = await call.security.delegation.expire(
            bytes(call.request.hmac), requester(call), call.request.expiry_time_period_ms
        )
    except HeadraceError as problem:
        return ExpireDelegationTokenResponse(problem.kind.kafka_code)
    return ExpireDelegationTokenResponse(0, ends_ms)
