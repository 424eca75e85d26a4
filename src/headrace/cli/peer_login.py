"""Command: a connection of our own to a broker, as the user of the profile: what the Kafka admin client has no words for."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from headrace.broker.peer import PeerConnection
from headrace.cli.failure import Exit, Failure
from headrace.cli.profile import Profile
from headrace.core.errors import ErrorKind
from headrace.security.logins import OAUTHBEARER
from headrace.security.scram import SHA_512, salted_password
from headrace.wire.api import ApiKey
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest

SECONDS = 10.0


async def open_connection(profile: Profile, host: str, port: int) -> PeerConnection:
    """Raises PeerLost, Failure."""
    tls = None
    if profile.tls_ca:
        from headrace.net.tls import client_context

        tls = client_context(profile.tls_ca)
    connection = await PeerConnection.open(host, port, "headrace-cli", tls)
    if profile.user or profile.token_file:
        try:
            await _log_in(connection, profile)
        except BaseException:
            connection.close()
            raise
    return connection


async def _log_in(connection: PeerConnection, profile: Profile) -> None:
    if profile.token_file:
        await _shake(connection, OAUTHBEARER)
        said = await _exchange(connection, f"n,,\x01auth=Bearer {profile.token}\x01\x01")
        if said:  # what is wrong, before it is refused (RFC 7628)
            raise Failure(Exit.DENIED, "the token is not known, or has ended", "headrace login")
        return
    await _shake(connection, SHA_512)
    await _scram(connection, profile.user, profile.password)


async def _shake(connection: PeerConnection, mechanism: str) -> None:
    shaken = await connection.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism), SECONDS)
    if shaken.error_code:
        raise Failure(
            Exit.DENIED, f"the broker does not take {mechanism}: {', '.join(shaken.mechanisms) or 'nothing'}"
        )


async def _scram(connection: PeerConnection, user: str, password: str) -> None:
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={secrets.token_urlsafe(24)}"
    first = await _exchange(connection, f"n,,{bare}")
    fields = dict(part.split("=", 1) for part in first.split(","))
    salted = salted_password(SHA_512, password, base64.b64decode(fields["s"]), int(fields["i"]))
    without = f"c=biws,r={fields['r']}"
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    signed = f"{bare},{first},{without}".encode()
    signature = hmac.digest(hashlib.sha512(client_key).digest(), signed, "sha512")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    final = await _exchange(connection, f"{without},p={proof}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    if not hmac.compare_digest(final, "v=" + base64.b64encode(expected).decode()):
        raise Failure(Exit.DENIED, "the broker does not know this user's password: it is another one")


async def _exchange(connection: PeerConnection, message: str) -> str:
    answer = await connection.call(
        ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(message.encode()), SECONDS
    )
    if answer.error_code:
        words = answer.error_message or ErrorKind(answer.error_code).name
        raise Failure(
            Exit.DENIED, words, "check HEADRACE_USER and HEADRACE_PASSWORD", code="SASL_AUTHENTICATION_FAILED"
        )
    return bytes(answer.auth_bytes).decode()
