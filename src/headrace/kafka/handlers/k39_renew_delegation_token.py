"""Door: RenewDelegationToken (39, KIP-48): it lasts longer, never longer than its longest. For its owner, who asked for it, and its renewers (A43)."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.delegation_tokens import requester
from headrace.security.rights import OWN
from headrace.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

KEY = 39
VERSIONS = (1, 2)
RIGHTS = OWN


async def handle(call: Call[RenewDelegationTokenRequest]) -> RenewDelegationTokenResponse:
    try:
        ends_ms = await call.security.delegation.renew(
            bytes(call.request.hmac), requester(call), call.request.renew_period_ms
        )
    except HeadraceError as problem:
        return RenewDelegationTokenResponse(problem.kind.kafka_code)
    return RenewDelegationTokenResponse(0, ends_ms)
