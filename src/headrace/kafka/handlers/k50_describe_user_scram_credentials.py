"""Door: DescribeUserScramCredentials (50, KIP-554): which mechanisms users have, and never what is stored for them."""

from __future__ import annotations

from collections import Counter

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, describe, needs
from headrace.security.scram import NUMBERS
from headrace.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

KEY = 50
VERSIONS = (0, 0)
RIGHTS = needs(describe(CLUSTER))


async def handle(call: Call[DescribeUserScramCredentialsRequest]) -> DescribeUserScramCredentialsResponse:
    asked = Counter(entry.name for entry in call.request.users or ())
    names = list(asked) or sorted(call.security.image.scram)
    return DescribeUserScramCredentialsResponse(
        results=[_describe(call, name, asked[name] > 1) async for name in call.pace().over(names)]
    )


def _describe(
    call: Call[DescribeUserScramCredentialsRequest], name: str, twice: bool
) -> DescribeUserScramCredentialsResult:
    if twice:
        kind, words = ErrorKind.DUPLICATE_RESOURCE, f"user {name!r} is asked for twice"
        return DescribeUserScramCredentialsResult(name, kind.kafka_code, words)
    records = call.security.image.scram.get(name)
    if records is None:
        kind, words = ErrorKind.RESOURCE_NOT_FOUND, f"user {name!r} has no password"
        return DescribeUserScramCredentialsResult(name, kind.kafka_code, words)
    infos = [
        CredentialInfo(NUMBERS[mechanism], record.iterations)
        for mechanism, record in sorted(records.items())
        if mechanism in NUMBERS
    ]
    return DescribeUserScramCredentialsResult(name, credential_infos=infos)
