"""Door: DescribeDelegationToken (41, KIP-48): one's own, and those that Describe on the token or DescribeTokens on its owner shows (A43)."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.delegation_tokens import requester
from headrace.security.delegation import Held
from headrace.security.rights import OWN, Operation, Resource
from headrace.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

KEY = 41
VERSIONS = (1, 3)
RIGHTS = OWN


async def handle(call: Call[DescribeDelegationTokenRequest]) -> DescribeDelegationTokenResponse:
    try:
        by = str(requester(call))
    except HeadraceError as problem:
        return DescribeDelegationTokenResponse(problem.kind.kafka_code)
    owners = call.request.owners
    # Kafka's tool says "for current user" and sends an empty list.
    asked = {f"{each.principal_type}:{each.principal_name}" for each in owners} if owners else None
    return DescribeDelegationTokenResponse(
        tokens=[
            _shown(call, held)
            async for held in call.pace().over(list(call.security.delegation.all()))
            if (asked is None or held.record.owner in asked) and _sees(call, by, held)
        ]
    )


def _sees(call: Call[DescribeDelegationTokenRequest], by: str, held: Held) -> bool:
    record = held.record
    return (
        by in (record.owner, record.requester, *record.renewers)
        or call.may(Operation.DESCRIBE, Resource.DELEGATION_TOKEN, held.token_id)
        or call.may(Operation.DESCRIBE_TOKENS, Resource.USER, record.owner)
    )


def _shown(call: Call[DescribeDelegationTokenRequest], held: Held) -> DescribedDelegationToken:
    record = held.record
    kind, _, owner = record.owner.partition(":")
    requester_kind, _, requester_name = record.requester.partition(":")
    return DescribedDelegationToken(
        kind,
        owner,
        requester_kind,
        requester_name,
        record.issued_ms,
        record.expires_ms,
        record.max_ms,
        held.token_id,
        call.security.delegation.secret_of(held),
        [DescribedDelegationTokenRenewer(*each.split(":", 1)) for each in record.renewers],
    )
