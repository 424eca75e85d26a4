"""Codec: Api Versions (API key 18): what this broker speaks. See wire/negotiation.py for KIP-511."""

from __future__ import annotations

from headrace.wire.schema import array, boolean, int16, int32, int64, message, string, struct


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


@struct
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(-1, since=3, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
