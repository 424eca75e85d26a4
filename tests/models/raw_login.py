"""SCRAM and PLAIN from the client's side, frame by frame, for what no real client would do (A14-A21)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Any

from raw_client import RawClient

from headrace.wire.api import ApiKey
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest

SCRAM = "SCRAM-SHA-256"
PLAIN = "PLAIN"


def shake(client: RawClient, mechanism: str = SCRAM, version: int = 1) -> Any:
    return client.call(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))


def authenticate(client: RawClient, token: bytes) -> Any:
    return client.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token))


def bare(client: RawClient, token: bytes) -> bytes:
    """A token without a header, as after a handshake of version 0 (A15)."""
    client.socket.sendall(struct.pack(">i", len(token)) + token)
    return client.read_frame()


def scram(say: Callable[[bytes], bytes], user: str, password: str, extension: str = "") -> bytes:
    """Both rounds; what the server said last."""
    first = f"n={user},r=0123456789abcdef{extension}"
    answer = say(f"n,,{first}".encode()).decode()
    nonce, salt, count = (part[2:] for part in answer.split(","))
    without = f"c=biws,r={nonce}"
    signed = f"{first},{answer},{without}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(count))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return say(f"{without},p={proof}".encode())


def log_in(client: RawClient, user: str, password: str) -> int:
    """How long it is good, in milliseconds; 0: for ever."""
    assert shake(client).error_code == 0
    lifetimes: list[int] = []

    def say(token: bytes) -> bytes:
        answer = authenticate(client, token)
        assert answer.error_code == 0, answer
        lifetimes.append(answer.session_lifetime_ms)
        return bytes(answer.auth_bytes)

    assert scram(say, user, password).startswith(b"v=")
    return lifetimes[-1]
