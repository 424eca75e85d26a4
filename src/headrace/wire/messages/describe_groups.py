"""Codec: Describe Groups (API key 15)."""

from __future__ import annotations

from headrace.wire.schema import array, boolean, int16, int32, message, octets, string, struct


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(None, since=4, nullable=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(None, since=6, nullable=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(-(2**31), since=3)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)
