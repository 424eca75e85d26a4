"""Machine: a plan in the making.

decide() must not change state, yet one request can cause a chain (a member leaves, so all others have joined, so a
generation starts). A Draft lets verbs look ahead: each fact is also applied, with the very same code, to a private
copy of the group. The copy is made only when somebody looks, so a verb that just parks a waiter costs nothing extra.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from headrace.core.errors import ErrorKind
from headrace.core.plan import Command, Fact, Plan, Reply
from headrace.groups.commands import GroupPlan, JoinResult, SyncResult
from headrace.groups.config import GroupConfig
from headrace.groups.facts import MemberJoining, MemberRemoved
from headrace.groups.members import Member
from headrace.groups.state import ClassicGroup


class Copyable(Protocol):
    """A group that a Draft can try facts on."""

    def copy(self) -> Any: ...

    def apply(self, fact: Any) -> None: ...


G = TypeVar("G", bound=Copyable)
R = TypeVar("R")


class GroupDraft(Generic[G]):
    __slots__ = ("_facts", "_group", "_is_copy", "_replies", "_unseen", "config", "now_ms", "wall_ms")

    def __init__(self, group: G, config: GroupConfig, now_ms: int, wall_ms: int) -> None:
        self._group = group
        self._is_copy = False
        self._unseen: list[Any] = []
        self._facts: list[Fact] = []
        self._replies: list[Reply] = []
        self.config = config
        self.now_ms = now_ms
        self.wall_ms = wall_ms

    @property
    def group(self) -> G:
        """The group as it will be after every fact so far. Read only."""
        if self._unseen:
            if not self._is_copy:
                self._group, self._is_copy = self._group.copy(), True
            for fact in self._unseen:
                self._group.apply(fact)
            self._unseen.clear()
        return self._group

    def do(self, fact: Fact) -> None:
        self._facts.append(fact)
        self._unseen.append(fact)

    def answer(self, command: Command[R], value: R) -> None:
        self._replies += command.answer(value)

    def reply(self, waiter: int, value: object) -> None:
        """To somebody who has waited since an earlier plan."""
        self._replies.append(Reply(waiter, value))

    def plan(self) -> GroupPlan:
        return Plan(tuple(self._facts), tuple(self._replies))


class ClassicDraft(GroupDraft[ClassicGroup]):
    """With the steps that more than one verb of the classic protocol takes."""

    __slots__ = ()

    def park_join(self, protocol_type: str, member: Member) -> None:
        """Add or update a member with its parked join, and send away an earlier join of its own that is still parked
        (a client that gave up and came back): every waiter is answered once."""
        present = self.group.members.get(member.member_id)
        if present is not None and present.join_waiter is not None:
            again = JoinResult(ErrorKind.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            self.reply(present.join_waiter, again)
        until_ms = self.now_ms + self.config.new_member_join_timeout_ms if member.is_new else None
        self.do(MemberJoining(self.group.group_id, protocol_type, member, until_ms))

    def remove(self, member_id: str) -> bool:
        """Forget a member or a reserved id; what it waits for is answered, because nobody else will. True when it was
        a member, so that the others have to rebalance."""
        member = self.group.members.get(member_id)
        if member is not None:
            self.dismiss(member, ErrorKind.UNKNOWN_MEMBER_ID)
        self.do(MemberRemoved(self.group.group_id, member_id))
        return member is not None

    def dismiss(self, member: Member, error: ErrorKind) -> None:
        if member.join_waiter is not None:
            self.reply(member.join_waiter, JoinResult(error))
        if member.sync_waiter is not None:
            self.reply(member.sync_waiter, SyncResult(error))


def joined_plans(*plans: GroupPlan) -> GroupPlan:
    """One after the other, as one."""
    return Plan(
        tuple(fact for plan in plans for fact in plan.facts),
        tuple(reply for plan in plans for reply in plan.replies),
    )
