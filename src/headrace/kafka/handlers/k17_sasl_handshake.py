"""Door: SaslHandshake (17): how a connection wants to prove who it is (A14-A16).

Users have SCRAM and, where nobody can listen, PLAIN. The mechanism of brokers among themselves (core.peer_proof) is not on offer. After
version 0 tokens come without headers, as old clients send them.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import ErrorKind
from headrace.core.peer_proof import MECHANISM
from headrace.kafka.call import Call
from headrace.security.rights import BEFORE_LOGIN
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

KEY = 17
VERSIONS = (0, 1)
RIGHTS = BEFORE_LOGIN


LEAST_BETWEEN_MS = 1_000
"""Between one login of a connection and the next. Who comes sooner waits: some clients log in before every request (A21)."""


async def handle(call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    mechanism, session = call.request.mechanism, call.session
    if session.proved_by:
        early_ms = session.proved_ms + LEAST_BETWEEN_MS - call.security.logins.now_ms()
        if early_ms > 0:
            await asyncio.sleep(early_ms / 1000)
    session.end_proof()
    if mechanism == MECHANISM and call.version >= 1 and not session.is_named:
        session.begin_proof(MECHANISM, None)
        return SaslHandshakeResponse(ErrorKind.NONE, [MECHANISM])
    offered = call.security.logins.mechanisms(session.is_tls)
    if mechanism not in offered or (session.proved_by and mechanism != session.proved_by):
        return SaslHandshakeResponse(ErrorKind.UNSUPPORTED_SASL_MECHANISM, offered)
    exchange = call.security.logins.begin(mechanism, call.client_host)
    session.begin_proof(mechanism, exchange, bare_tokens=call.version == 0)
    return SaslHandshakeResponse(ErrorKind.NONE, offered)
