"""Codec: Create Delegation Token (API key 38)."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, int64, message, octets, string, struct


@struct
class CreatableRenewer:
    principal_type: str = string()
    principal_name: str = string()


@message(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = string(nullable=3, since=3)
    owner_principal_name: str | None = string(nullable=3, since=3)
    renewers: list[CreatableRenewer] = array(CreatableRenewer)
    max_lifetime_ms: int = int64()


@message(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse:
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    throttle_time_ms: int = int32()
