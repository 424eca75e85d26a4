"""Machine: one step of one member towards its target (kafka.md 6.2), whether it is assigned partitions or tasks.

R55: something enters `assigned` only when nobody has it who must not have it at the same time, and leaves a member's hands
only when the member says, by what it reports to own, that it has let go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from headrace.groups.assigned import MemberState

P = TypeVar("P")


class MemberPlace(NamedTuple, Generic[P]):
    """Where a member is on its way."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: frozenset[P]
    revoking: frozenset[P]

    def at(
        self, epoch: int, state: MemberState, assigned: frozenset[P], revoking: frozenset[P] = frozenset()
    ) -> MemberPlace[P]:
        previous_epoch = self.previous_epoch if epoch == self.epoch else self.epoch
        return MemberPlace(epoch, previous_epoch, state, assigned, revoking)


def reconcile(
    now: MemberPlace[P],
    target: frozenset[P],
    target_epoch: int,
    owned: frozenset[P] | None,
    is_free: Callable[[P], bool],
) -> MemberPlace[P]:
    """Where the member should be told to be. `owned` is what it reports; None means that it did not say, and so may still
    have everything it ever had. What the member itself has counts as free: it is just giving it up."""
    if now.state is MemberState.STABLE and now.epoch == target_epoch:
        return now
    epoch = now.epoch
    if now.state is MemberState.UNREVOKED:
        if owned is None or owned & now.revoking:
            return now
        # It let go. That is progress of its own, even when the target has moved on meanwhile.
        epoch += 1
    kept, lost = now.assigned & target, now.assigned - target
    if lost and (owned is None or owned & lost):
        return now.at(epoch, MemberState.UNREVOKED, kept, lost)
    wanted = target - kept
    free = frozenset(part for part in wanted if is_free(part))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    return now.at(target_epoch, state, kept | free)
