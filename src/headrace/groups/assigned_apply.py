"""Machine: what the facts of consumer, share and streams groups do to a shard's table: the group itself, and its deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.core.deadlines import Deadlines
from headrace.groups.assigned import AssignedGroup, MemberState
from headrace.groups.config import GroupConfig
from headrace.groups.deadlines import PHASE, SESSION, Deadline


class GroupsOfShard(Protocol):
    """What a fact of theirs changes of a shard: its groups, and when to look at them again."""

    config: GroupConfig
    groups: dict[str, Any]
    deadlines: Deadlines[Deadline]

    def arm_cleanup(self, group_id: str, at_ms: int) -> None: ...

    def forget_cleanup(self, group_id: str) -> None: ...


Apply = Callable[[GroupsOfShard, Any, int], None]


class KindOfGroup:
    """Its methods are what a fact does; which fact does what is each kind's own table."""

    __slots__ = ("_make",)

    def __init__(self, make: type[AssignedGroup[Any, Any]]) -> None:
        self._make = make

    def find(self, table: GroupsOfShard, group_id: str) -> AssignedGroup[Any, Any] | None:
        group = table.groups.get(group_id)
        return group if isinstance(group, self._make) else None

    def put(self, table: GroupsOfShard, fact: Any, now_ms: int) -> None:
        """The group is made by its first fact."""
        group: Any = self.find(table, fact.group_id)
        if group is None:
            group = table.groups[fact.group_id] = self._make(fact.group_id)
            table.arm_cleanup(fact.group_id, now_ms + table.config.cleanup_interval_ms)
        group.apply(fact)

    def put_if_there(self, table: GroupsOfShard, fact: Any, now_ms: int) -> None:
        """A tombstone may outlive its group in the journal; it must not bring it back."""
        if self.find(table, fact.group_id) is not None:
            self.put(table, fact, now_ms)

    def load_target(self, table: GroupsOfShard, fact: Any, now_ms: int) -> None:
        if fact.target is None:
            self.put_if_there(table, fact, now_ms)
        else:
            self.put(table, fact, now_ms)

    def set_epoch(self, table: GroupsOfShard, fact: Any, now_ms: int) -> None:
        """Perhaps the last member left."""
        self.put(table, fact, now_ms)
        table.arm_cleanup(fact.group_id, now_ms + table.config.cleanup_interval_ms)

    def remove_member(self, table: GroupsOfShard, fact: Any, now_ms: int) -> None:
        if self.find(table, fact.group_id) is not None:
            self.put(table, fact, now_ms)
            _forget_member(table, fact.group_id, fact.member_id)

    def delete(self, table: GroupsOfShard, fact: Any, now_ms: int) -> None:
        group = self.find(table, fact.group_id)
        if group is not None:
            del table.groups[fact.group_id]
            for member_id in group.members:
                _forget_member(table, fact.group_id, member_id)
            table.forget_cleanup(fact.group_id)


def _forget_member(table: GroupsOfShard, group_id: str, member_id: str) -> None:
    table.deadlines.cancel(Deadline(SESSION, group_id, member_id))
    table.deadlines.cancel(Deadline(PHASE, group_id, member_id))


def check_deadlines(group: AssignedGroup[Any, Any], watched: set[Deadline]) -> None:
    """Every member has a session, and a time by which it has to give up what it was asked for."""
    for member_id, member in group.members.items():
        assert Deadline(SESSION, group.group_id, member_id) in watched, f"{member_id} lives for ever"
        if getattr(member, "is_classic", False):
            continue  # it may also be awaited to rejoin, or to sync
        awaited = Deadline(PHASE, group.group_id, member_id) in watched
        revoking = getattr(member, "state", MemberState.STABLE) is MemberState.UNREVOKED
        assert awaited == revoking, f"{member_id} awaited={awaited} revoking={revoking}"
