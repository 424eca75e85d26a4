"""Machine: who may commit offsets of a streams group (R54: member epochs)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.errors import ErrorKind
from headrace.groups.commands import OffsetToCommit
from headrace.groups.streams.members import Role, StreamsMember, Task
from headrace.groups.streams.state import StreamsGroup


def commit_refusal(
    group: StreamsGroup,
    member_id: str,
    epoch: int,
    offsets: Iterable[OffsetToCommit],
    *,
    transactional: bool,
    member_epoch_known: bool = True,
) -> ErrorKind:
    if epoch < 0 and not group.members:
        return ErrorKind.NONE
    if transactional and epoch < 0 and not member_id:
        return ErrorKind.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorKind.UNKNOWN_MEMBER_ID
    if not transactional and not member_epoch_known:
        return ErrorKind.UNSUPPORTED_VERSION
    if epoch == member.epoch or (0 < epoch < member.epoch and _had_them(group, member, epoch, offsets)):
        return ErrorKind.NONE
    # The producer's API has no word for a stale member epoch.
    return ErrorKind.ILLEGAL_GENERATION if transactional else ErrorKind.STALE_MEMBER_EPOCH


def _had_them(
    group: StreamsGroup, member: StreamsMember, epoch: int, offsets: Iterable[OffsetToCommit]
) -> bool:
    """The commit was under way when the epoch rose, and is only about tasks that the member has had all along."""
    readers = {} if group.topology is None else group.topology.readers()
    for offset in offsets:
        task = Task(Role.ACTIVE, readers.get(offset.topic, ""), offset.partition)
        if epoch < member.since.get(task, epoch + 1):
            return False
    return True
