"""Codec: Join Group (API key 11): classic groups.

v4: MEMBER_ID_REQUIRED (KIP-394). v5: static membership (KIP-345). v7: protocol type. v8: reason. v9: skip_assignment.
"""

from __future__ import annotations

from headrace.wire.schema import array, boolean, int16, int32, message, octets, string, struct


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = octets()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = string(None, since=5, nullable=5)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(None, since=8, nullable=8)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string(None, since=5, nullable=5)
    metadata: bytes = octets()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(-1)
    protocol_type: str | None = string(None, since=7, nullable=7)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
