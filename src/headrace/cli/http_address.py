"""Command: the HTTP address of a broker whose Kafka address is known: it says so itself, as one of its configs."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.peer import PeerLost
from headrace.cli.addresses import split_address
from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.peer_login import open_connection
from headrace.cli.profile import Profile
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.wire.api import ApiKey
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

CONFIG = "headrace.http.address"
BROKER = 4
"""The resource type; its empty name is the broker that is asked."""
VERSION = 1
SAY_IT = "say where with --url or HEADRACE_URL"


def learned_address(profile: Profile) -> str:
    """Of the first of the bootstrap addresses that answers."""
    reasons = []
    for address in profile.bootstrap.split(","):
        host, port = split_address(address.strip())
        try:
            return _named(asyncio.run(_ask(profile, host, port)), host)
        except PeerLost as problem:
            reasons.append(f"{address}: {problem.detail}")
        except HeadraceError as problem:
            raise failure_of(problem, address) from None
    raise Failure(
        Exit.UNREACHABLE,
        f"no broker to ask for its HTTP address at {'; '.join(reasons)}",
        f"start one with: headrace serve; or {SAY_IT}",
    )


async def _ask(profile: Profile, host: str, port: int) -> Any:
    connection = await open_connection(profile, host, port)
    try:
        question = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "", [CONFIG])])
        answer = await connection.call(ApiKey.DESCRIBE_CONFIGS, VERSION, question, profile.timeout_ms / 1000)
        return answer.results[0]
    finally:
        connection.close()


def _named(result: Any, host: str) -> str:
    if result.error_code:
        kind = ErrorKind(result.error_code)
        why = result.error_message or kind.name
        raise Failure(
            Exit.DENIED, f"the broker does not tell its HTTP address: {why}", SAY_IT, code=kind.name
        )
    found = next((entry.value for entry in result.configs if entry.name == CONFIG), None)
    if not found:
        raise Failure(Exit.FAILED, f"the broker at {host} does not know an HTTP address of its own", SAY_IT)
    scheme, _, rest = str(found).partition("://")
    where, _, port = rest.rpartition(":")
    if where in ("0.0.0.0", "::", ""):
        where = host  # one that listens everywhere is where we have found it
    return f"{scheme}://[{where}]:{port}" if ":" in where else f"{scheme}://{where}:{port}"


def addressed(profile: Profile) -> Profile:
    """With one HTTP address, for whoever looks at it whatever is wrong: the usual one when nobody can be asked."""
    import msgspec

    if profile.url:
        return msgspec.structs.replace(profile, url=profile.url.split(",")[0].strip())
    try:
        return msgspec.structs.replace(profile, url=learned_address(profile))
    except Failure:
        return msgspec.structs.replace(profile, url=Profile().url)
