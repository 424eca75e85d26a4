"""A group shard with a driver made of lists: applies plans, keeps the journal, moves the time, checks invariants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.plan import JournalRecord, Plan
from headrace.groups.commands import (
    CommitOffsets,
    FetchOffsets,
    GroupPlan,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MemberIdentity,
    OffsetToCommit,
    Protocol,
    SyncGroup,
)
from headrace.groups.config import GroupConfig
from headrace.groups.shard import GroupShard

WALL_MS = 1_700_000_000_000


class World:
    """`answers` maps waiter to reply; a waiter that is not in it is still parked."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("initial_rebalance_delay_ms", 0)
        self.config = GroupConfig(**settings)
        self.now_ms = 1_000
        self.shard = GroupShard(self.config, wall_minus_now_ms=WALL_MS)
        self.journal: list[tuple[JournalRecord, int | None]] = []
        self.answers: dict[int, Any] = {}
        self.last: GroupPlan = Plan()
        self._waiter = 0
        self._ids = 0

    def do(self, make: Callable[[int], Any]) -> int:
        """Decide, apply, journal. Returns the waiter."""
        self._waiter += 1
        self.run(self.shard.decide(make(self._waiter), self.now_ms))
        return self._waiter

    def ask(self, make: Callable[[int], Any]) -> Any:
        """Like do, for requests that are answered at once."""
        return self.answers[self.do(make)]

    def run(self, plan: Plan) -> None:
        self.last = plan
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if fact.durable:
                of_transaction = getattr(fact, "producer", None)
                producer = of_transaction[0] if of_transaction else None
                self.journal += ((record, producer) for record in self.shard.encode(fact))
        self.shard.invariants()
        for waiter, value in plan.replies:
            assert waiter not in self.answers, f"waiter {waiter} was answered twice"
            self.answers[waiter] = value

    def advance(self, ms: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end_ms = self.now_ms + ms
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.run(self.shard.expire(self.now_ms))
            after_ms = self.shard.next_deadline()
            assert after_ms is None or after_ms > self.now_ms, "expire left something due"
        self.now_ms = end_ms

    def restart(self, down_ms: int = 0) -> None:
        """The process dies; another one loads the journal, on its own monotonic clock."""
        wall_ms = self.shard.table.wall_ms(self.now_ms) + down_ms
        self.now_ms = 77
        self.shard = GroupShard(self.config, wall_minus_now_ms=wall_ms - self.now_ms)
        for record, producer in self.journal:
            if producer is None:
                self.shard.replay(record, self.now_ms)
            else:
                self.shard.replay_transactional(record, producer, self.now_ms)
        self.run(self.shard.loaded(self.now_ms))

    def group(self, group_id: str = "g") -> Any:
        return self.shard.table.groups[group_id]

    # --- requests --------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", group_id: str = "g", **fields: Any) -> int:
        self._ids += 1
        base: dict[str, Any] = {
            "group_id": group_id,
            "member_id": member_id,
            "new_member_id": f"m{self._ids}",
            "protocol_type": "consumer",
            "protocols": (Protocol("range", b"meta"),),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "member_id_required": False,
        }
        return self.do(lambda waiter: JoinGroup(**{**base, **fields}, waiter=waiter))

    def sync(self, member_id: str, generation: int, group_id: str = "g", **fields: Any) -> int:
        return self.do(lambda waiter: SyncGroup(group_id, member_id, generation, **fields, waiter=waiter))

    def beat(
        self, member_id: str, generation: int, instance_id: str | None = None, group_id: str = "g"
    ) -> Any:
        return self.ask(lambda w: Heartbeat(group_id, member_id, generation, instance_id, waiter=w)).error

    def leave(self, *members: str | MemberIdentity, group_id: str = "g") -> Any:
        identities = tuple(MemberIdentity(m) if isinstance(m, str) else m for m in members)
        return self.ask(lambda waiter: LeaveGroup(group_id, identities, waiter=waiter))

    def commit(self, *offsets: OffsetToCommit, group_id: str = "g", **fields: Any) -> Any:
        return self.ask(lambda waiter: CommitOffsets(group_id, offsets, **fields, waiter=waiter))

    def committed(
        self, topic: str = "t", partition: int = 0, group_id: str = "g", stable: bool = False
    ) -> Any:
        topics = ((topic, (partition,)),)
        result = self.ask(lambda waiter: FetchOffsets(group_id, topics, require_stable=stable, waiter=waiter))
        return result.partitions[0]

    def stable(
        self, *member_ids: str, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> list[str]:
        """A stable group of so many new dynamic members. Returns their ids, the leader first."""
        waiters = [self.join(**fields) for _ in member_ids]
        known = [self.answers[w].member_id if w in self.answers else None for w in waiters]
        while any(w not in self.answers for w in waiters):  # the first ones have to rejoin for the later ones
            for index, member_id in enumerate(known):
                if member_id is not None and waiters[index] in self.answers:
                    waiters[index] = self.join(member_id, **fields)
            known = [
                self.answers[w].member_id if w in self.answers else k
                for w, k in zip(waiters, known, strict=True)
            ]
        group = self.group(fields.get("group_id", "g"))
        for member_id in sorted(group.members, key=lambda m: m == group.leader):
            given = tuple((m, (assignments or {}).get(m, m.encode())) for m in group.members)
            self.sync(
                member_id,
                group.generation,
                group.group_id,
                assignments=given if member_id == group.leader else (),
            )
        assert group.state.value == "Stable"
        return sorted(group.members, key=lambda m: m != group.leader)


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture
def world() -> World:
    return World()
