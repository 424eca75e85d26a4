"""Door: AlterUserScramCredentials (51, KIP-554). The client salts; a password never comes here (A32)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.security.audit import ACTING
from headrace.security.guard import Parts
from headrace.security.records import ScramRecord
from headrace.security.rights import CLUSTER, alter, needs
from headrace.security.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, NUMBERS, record_of
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

KEY = 51
VERSIONS = (0, 0)
RIGHTS = needs(alter(CLUSTER))
PARTS = (Parts("deletions", "results"), Parts("upsertions", "results"))

_MECHANISMS = {number: mechanism for mechanism, number in NUMBERS.items()}
_SIZES = {mechanism: 32 if name == "sha256" else 64 for mechanism, name in HASHES.items()}


async def handle(call: Call[AlterUserScramCredentialsRequest]) -> AlterUserScramCredentialsResponse:
    ACTING.set(str(call.session.principal))
    request = call.request
    seen = Counter((entry.name, entry.mechanism) for entry in request.deletions)
    seen.update((entry.name, entry.mechanism) for entry in request.upsertions)
    twice = {name for (name, _), count in seen.items() if count > 1}
    names = dict.fromkeys(name for name, _ in seen)
    return AlterUserScramCredentialsResponse(
        results=[await _alter(call, name, name in twice) async for name in call.pace().over(names)]
    )


async def _alter(
    call: Call[AlterUserScramCredentialsRequest], name: str, twice: bool
) -> AlterUserScramCredentialsResult:
    request = call.request
    try:
        if twice:
            raise HeadraceError(ErrorKind.DUPLICATE_RESOURCE, f"user {name!r} is in the request twice")
        upserts = _records(entry for entry in request.upsertions if entry.name == name)
        deletions = [_mechanism(entry.mechanism) for entry in request.deletions if entry.name == name]
        await call.security.admin.alter_scram(name, upserts, deletions)
    except HeadraceError as problem:
        return AlterUserScramCredentialsResult(name, problem.kind.kafka_code, problem.detail)
    return AlterUserScramCredentialsResult(name)


def _records(entries: Iterable[ScramCredentialUpsertion]) -> dict[str, ScramRecord]:
    made: dict[str, ScramRecord] = {}
    for entry in entries:
        mechanism = _mechanism(entry.mechanism)
        if not LEAST_ITERATIONS <= entry.iterations <= MOST_ITERATIONS:
            raise HeadraceError(
                ErrorKind.UNACCEPTABLE_CREDENTIAL,
                f"{entry.iterations} iterations; {LEAST_ITERATIONS} to {MOST_ITERATIONS} are allowed",
            )
        if len(entry.salted_password) != _SIZES[mechanism] or not 8 <= len(entry.salt) <= 1_024:
            raise HeadraceError(
                ErrorKind.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password has a wrong length"
            )
        salted = bytes(entry.salted_password)
        made[mechanism] = record_of(mechanism, salted, bytes(entry.salt), entry.iterations)
    return made


def _mechanism(number: int) -> str:
    found = _MECHANISMS.get(number)
    if found is None:
        raise HeadraceError(ErrorKind.UNSUPPORTED_SASL_MECHANISM, f"mechanism {number} is not known")
    return found
