"""Door: SaslHandshake (17). The one mechanism is that of brokers among themselves (core.peer_proof); it is not on offer."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.peer_proof import MECHANISM
from headrace.kafka.call import Call
from headrace.security.rights import BEFORE_LOGIN
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

KEY = 17
VERSIONS = (1, 1)
RIGHTS = BEFORE_LOGIN
HIGHEST_ADVERTISED = -1


def handle(call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    request = call.request
    call.session.end_proof()
    if request.mechanism != MECHANISM:
        return SaslHandshakeResponse(ErrorKind.UNSUPPORTED_SASL_MECHANISM, [])
    call.session.mechanism = MECHANISM
    return SaslHandshakeResponse(ErrorKind.NONE, [MECHANISM])
