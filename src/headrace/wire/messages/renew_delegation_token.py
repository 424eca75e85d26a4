"""Codec: Renew Delegation Token (API key 39)."""

from __future__ import annotations

from headrace.wire.schema import int16, int32, int64, message, octets


@message(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenRequest:
    hmac: bytes = octets()
    renew_period_ms: int = int64()


@message(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
