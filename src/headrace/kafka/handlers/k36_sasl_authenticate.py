"""Door: SaslAuthenticate (36): a broker that called proves which one it is, in which life (A1, A2, A49).

Two rounds: its hello is answered with a challenge, its proof with nothing more. From then on the connection's principal is
that broker. A trouble of our own ends the connection without an answer, so that the caller tries again (A17).
"""

from __future__ import annotations

import logging

from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import ErrorKind
from headrace.core.peer_proof import BadProof
from headrace.kafka.call import Call
from headrace.security.rights import BEFORE_LOGIN
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

log = logging.getLogger(__name__)

KEY = 36
VERSIONS = (2, 2)
RIGHTS = BEFORE_LOGIN
HIGHEST_ADVERTISED = -1


async def handle(call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    request = call.request
    session, introductions = call.session, call.broker.introductions
    if not session.mechanism:
        return SaslAuthenticateResponse(ErrorKind.ILLEGAL_SASL_STATE, "SaslHandshake comes first", b"")
    try:
        if session.answerer is None:
            session.answerer = introductions.challenge(bytes(request.auth_bytes))
            return SaslAuthenticateResponse(ErrorKind.NONE, None, session.answerer.challenge())
        answerer = session.answerer
        session.end_proof()
        session.principal = await introductions.admit(answerer, bytes(request.auth_bytes))
    except BadProof as problem:
        session.end_proof()
        log.warning("a connection from %s does not prove to be a broker: %s", call.client_host, problem)
        return SaslAuthenticateResponse(ErrorKind.SASL_AUTHENTICATION_FAILED, str(problem), b"")
    except CoordinatorError as problem:
        log.info("a broker at %s can't be admitted now: %s", call.client_host, problem)
        call.services.connections.close(call.connection_id)
    return SaslAuthenticateResponse(ErrorKind.NONE, None, b"")
