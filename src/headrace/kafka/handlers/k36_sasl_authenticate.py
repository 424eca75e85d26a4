"""Door: SaslAuthenticate (36): who called proves to be a user, or a broker in a certain life (A1, A2, A14-A17, A49).

A wrong credential is answered with one text, and then the connection ends. A trouble of our own ends it without an answer, so that the
caller tries again: clients take an answer as final (A17).
"""

from __future__ import annotations

import logging

from headrace.broker.services import Services
from headrace.cluster.broker_configs import MAX_CONNECTIONS_PER_USER
from headrace.cluster.configs import broker_number
from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import ErrorKind
from headrace.core.peer_proof import MECHANISM, BadProof
from headrace.kafka.call import Call
from headrace.kafka.session import Session
from headrace.security.logins import MAX_TOKEN_BYTES, REFUSAL, LoginFailed, Logins
from headrace.security.passwords import Busy
from headrace.security.rights import BEFORE_LOGIN
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

log = logging.getLogger(__name__)

KEY = 36
VERSIONS = (0, 2)
RIGHTS = BEFORE_LOGIN


async def handle(call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    session = call.session
    if not session.mechanism:
        return SaslAuthenticateResponse(ErrorKind.ILLEGAL_SASL_STATE, "SaslHandshake comes first", b"")
    if session.mechanism == MECHANISM:
        return await _broker(call)
    try:
        answer = await step(session, bytes(call.request.auth_bytes), call.security.logins)
    except LoginFailed:
        session.end_proof()
        session.is_over = True
        return SaslAuthenticateResponse(ErrorKind.SASL_AUTHENTICATION_FAILED, REFUSAL, b"")
    except Busy:
        log.warning("too many logins at once: a connection from %s has to try again", call.client_host)
        call.services.connections.close(call.connection_id)
        return SaslAuthenticateResponse()
    if not session.is_proving and not has_place(call.services, call.connection_id):
        log.warning(
            "%r has as many connections as one user may have; closing the newest", session.principal.name
        )
        call.services.connections.close(call.connection_id)
        return SaslAuthenticateResponse()
    lifetime_ms = max(1, session.ends_ms - call.security.logins.now_ms()) if session.ends_ms else 0
    return SaslAuthenticateResponse(ErrorKind.NONE, None, answer, lifetime_ms)


def has_place(services: Services, connection_id: int) -> bool:
    """Whether a user has room for one more connection, which is that one (A62)."""
    most = int(broker_number(MAX_CONNECTIONS_PER_USER, services.broker.image.layers()))
    return services.connections.proved(connection_id, most)


async def step(session: Session, token: bytes, logins: Logins) -> bytes:
    """Raises LoginFailed, Busy."""
    exchange = session.exchange
    if exchange is None or len(token) > MAX_TOKEN_BYTES:
        raise LoginFailed("not a token")
    found = await exchange.step(token)
    if found.principal is not None:
        if session.proved_by and session.principal != found.principal:
            raise LoginFailed(f"{session.principal} became {found.principal}")
        session.prove(found.principal, found.credential)
        lifetime_ms = logins.lifetime_ms(found.expires_ms)
        session.proved_ms = logins.now_ms()
        session.ends_ms = session.proved_ms + lifetime_ms if lifetime_ms else 0
    return found.answer


async def bare_step(session: Session, token: bytes, logins: Logins) -> bytes | None:
    """A15: the same for a token without a header; None ends the connection, which is all that can be said."""
    try:
        return await step(session, token, logins)
    except (LoginFailed, Busy):
        return None


async def _broker(call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    """Two rounds: its hello is answered with a challenge, its proof with nothing more."""
    request = call.request
    session, introductions = call.session, call.broker.introductions
    try:
        if session.answerer is None:
            session.answerer = introductions.challenge(bytes(request.auth_bytes))
            return SaslAuthenticateResponse(ErrorKind.NONE, None, session.answerer.challenge())
        session.prove(
            await introductions.admit(session.answerer, bytes(request.auth_bytes), session.certified_broker)
        )
    except BadProof as problem:
        session.end_proof()
        log.warning("a connection from %s does not prove to be a broker: %s", call.client_host, problem)
        return SaslAuthenticateResponse(ErrorKind.SASL_AUTHENTICATION_FAILED, str(problem), b"")
    except CoordinatorError as problem:
        log.info("a broker at %s can't be admitted now: %s", call.client_host, problem)
        call.services.connections.close(call.connection_id)
    return SaslAuthenticateResponse(ErrorKind.NONE, None, b"")
