"""Codec: Sasl Handshake (API key 17)."""

from __future__ import annotations

from headrace.wire.schema import array, int16, message, string


@message(key=17, versions=(0, 1))
class SaslHandshakeRequest:
    mechanism: str = string()


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string)
