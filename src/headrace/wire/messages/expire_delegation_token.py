"""Codec: Expire Delegation Token (API key 40)."""

from __future__ import annotations

from headrace.wire.schema import int16, int32, int64, message, octets


@message(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenRequest:
    hmac: bytes = octets()
    expiry_time_period_ms: int = int64()


@message(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
