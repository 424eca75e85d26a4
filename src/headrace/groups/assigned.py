"""Machine: what groups have in common whose assignment the coordinator makes: consumer, share and streams groups.

Members have epochs; a target is made for all of them at one group epoch; each member is moved to its target by its own
heartbeats. What is assigned (partitions or tasks) is each kind's own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from headrace.core.errors import ErrorKind


class HasEpoch(Protocol):
    """A member of any kind."""

    @property
    def epoch(self) -> int: ...


M = TypeVar("M", bound=HasEpoch)
A = TypeVar("A")

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(IntEnum):
    """The value is what Kafka journals."""

    STABLE = 1
    UNREVOKED = 2
    """It has been asked to give something up and has not said that it did."""
    UNRELEASED = 3
    """It is to get something that another member has not given up."""


class AssignedGroup(Generic[M, A]):
    """`M` is a member, `A` what one can be assigned."""

    __slots__ = ("epoch", "fingerprint", "group_id", "members", "target_epoch", "targets")

    appliers: ClassVar[dict[type, Callable[[Any, Any], None]]]
    """What each fact does to the group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.fingerprint = 0
        """What the topics looked like that the assignment depends on."""
        self.members: dict[str, M] = {}
        self.targets: dict[str, A] = {}

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        for kind in type(self).__mro__:
            for name in getattr(kind, "__slots__", ()):
                value = getattr(self, name)
                setattr(twin, name, value.copy() if isinstance(value, dict) else value)
        return twin

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def can_be_forgotten(self) -> bool:
        """Once it has no offsets either."""
        return not self.members

    def fetch_refusal(self, member_id: str | None, epoch: int) -> ErrorKind:
        """Why this member may not fetch offsets (R54: member epochs); administrators have neither a name nor an epoch."""
        if member_id is None and epoch < 0:
            return ErrorKind.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorKind.UNKNOWN_MEMBER_ID
        return ErrorKind.NONE if epoch == member.epoch else ErrorKind.STALE_MEMBER_EPOCH

    # --- facts -----------------------------------------------------------------------------------------------

    def apply(self, fact: Any) -> None:
        self.appliers[type(fact)](self, fact)

    def _apply_targets(self, fact: Any) -> None:
        self.target_epoch = fact.epoch
        self.targets.update(fact.targets)

    def _apply_target_loaded(self, fact: Any) -> None:
        if fact.target is None:
            self.targets.pop(fact.member_id, None)
        else:
            self.targets[fact.member_id] = fact.target

    def _apply_nothing(self, fact: object) -> None:
        """A fact about time only."""

    # --- invariants ------------------------------------------------------------------------------------------

    def invariants(self) -> None:
        assert self.targets.keys() <= self.members.keys(), "a target for nobody"
        assert self.target_epoch <= self.epoch
