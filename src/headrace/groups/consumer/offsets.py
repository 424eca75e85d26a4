"""Machine: who may commit offsets of a consumer group (R54: member epochs)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.groups.consumer.state import ConsumerGroup


def commit_refusal(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    instance_id: str | None,
    *,
    transactional: bool,
    member_epoch_known: bool = True,
) -> ErrorKind:
    if epoch < 0 and not group.members:
        return ErrorKind.NONE
    if transactional and epoch < 0 and not member_id and instance_id is None:
        return ErrorKind.NONE
    member = group.find(member_id, instance_id)
    if isinstance(member, ErrorKind):
        return member
    if not transactional and not member.is_classic and not member_epoch_known:
        return ErrorKind.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorKind.NONE
    # The producer's API has no word for a stale member epoch.
    stale = not member.is_classic and not transactional
    return ErrorKind.STALE_MEMBER_EPOCH if stale else ErrorKind.ILLEGAL_GENERATION
