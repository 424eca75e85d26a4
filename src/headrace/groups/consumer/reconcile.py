"""Machine: one step of one member towards its target (kafka.md 6.2).

R55: a partition enters `assigned` only when nobody else has it, and leaves a member's hands only when the
member says, by what it reports to own, that it has let go.
"""

from __future__ import annotations

from headrace.groups.consumer.state import NOTHING, Assignment, ConsumerGroup, ConsumerMember, MemberState


def reconcile(group: ConsumerGroup, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
    """The member as it should be told to be. `owned` is what it reports; None means that it did not say, and so may
    still have everything it ever had."""
    if group.is_reconciled(member):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & member.revoking:
            return member
        # It let go. That is progress of its own, even when the target has moved on meanwhile.
        return _next(group, member, member.epoch + 1, owned)
    return _next(group, member, member.epoch, owned)


def _next(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, owned: Assignment | None
) -> ConsumerMember:
    target = group.targets.get(member.member_id, NOTHING)
    kept = member.assigned & target
    lost = member.assigned - target
    if lost and (owned is None or owned & lost):
        return _at(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, lost)
    wanted = target - kept
    free = frozenset(part for part in wanted if group.owners.get(part, member.member_id) == member.member_id)
    # What it is just giving up is in its own name until this step is applied, so it counts as free: rightly so.
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _at(member, group.target_epoch, state, kept | free, NOTHING)


def _at(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment
) -> ConsumerMember:
    previous_epoch = member.previous_epoch if epoch == member.epoch else member.epoch
    return member._replace(
        epoch=epoch, previous_epoch=previous_epoch, state=state, assigned=assigned, revoking=revoking
    )
