"""Machine: a member of a classic group. Immutable: facts carry it, and the state keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.groups.commands import Protocol


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_waiter: int | None = None
    sync_waiter: int | None = None

    @property
    def is_parked(self) -> bool:
        """It waits for us, so its silence says nothing about its health."""
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


def metadata_size(protocols: tuple[Protocol, ...]) -> int:
    """What a member makes us keep (A4)."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def static_refusal(statics: Mapping[str, str], member_id: str, instance_id: str | None) -> ErrorKind:
    """Who has this instance id now (R54): a member that was replaced is fenced. NONE for members without one."""
    if instance_id is None:
        return ErrorKind.NONE
    owner = statics.get(instance_id)
    if owner is None:
        return ErrorKind.UNKNOWN_MEMBER_ID
    return ErrorKind.NONE if owner == member_id else ErrorKind.FENCED_INSTANCE_ID
