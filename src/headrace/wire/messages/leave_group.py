"""Codec: Leave Group (API key 13): v3: many members with an error each (KIP-345). v5: reason (KIP-800)."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, message, string, struct


@struct
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(None, nullable=0)
    reason: str | None = string(None, since=5, nullable=5)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@struct
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable=0)
    error_code: int = int16()


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
