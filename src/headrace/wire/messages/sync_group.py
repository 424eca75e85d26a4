"""Codec: Sync Group (API key 14): v3: static membership. v5: protocol type and name are echoed."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, message, octets, string, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = octets()


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(None, since=3, nullable=3)
    protocol_type: str | None = string(None, since=5, nullable=5)
    protocol_name: str | None = string(None, since=5, nullable=5)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(None, since=5, nullable=5)
    protocol_name: str | None = string(None, since=5, nullable=5)
    assignment: bytes = octets()
