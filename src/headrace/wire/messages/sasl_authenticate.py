"""Codec: Sasl Authenticate (API key 36)."""

from __future__ import annotations

from headrace.wire.schema import int16, int64, message, octets, string


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    auth_bytes: bytes = octets()


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64(since=1)
