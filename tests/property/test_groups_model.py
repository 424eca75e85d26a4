"""Classic groups and offsets against a dumb model: clients that do anything, a coordinator that may die at any time.

Always: decide changes nothing; every waiter is answered once and parked ones are in state; a generation has one leader
and one assignment, for ever (R54); committed offsets are what the model says, pending ones unseen (R50); a replayed
journal gives the same groups and offsets; nothing stays due after expire.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.errors import ErrorKind
from headrace.core.plan import JournalRecord, Plan
from headrace.groups.commands import (
    CommitOffsets,
    DeleteGroups,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    MemberIdentity,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncResult,
    TopicDeleted,
    TxnCommitOffsets,
    TxnMarker,
)
from headrace.groups.config import GroupConfig
from headrace.groups.shard import GroupShard
from headrace.groups.state import ClassicGroup

GROUP = "g"
CLIENTS = ("a", "b", "c", "d")
STATIC = {"c": "instance-c", "d": "instance-d"}
PRODUCERS = (5, 6)
TOPICS = ("t", "u")


def dump(shard: GroupShard) -> Any:
    """Everything that is state, as plain values."""
    table = shard.table
    groups = {
        g: {n: repr(getattr(group, n)) for n in ClassicGroup.__slots__} for g, group in table.groups.items()
    }
    deadlines = {key: table.deadlines.at(key) for key in table.deadlines}
    return groups, repr(table.offsets.committed), repr(table.offsets.pending), deadlines


def classic(shard: GroupShard) -> dict[str, ClassicGroup]:
    """All groups there are: the model makes no others."""
    found = {}
    for name, group in shard.table.groups.items():
        assert isinstance(group, ClassicGroup)
        found[name] = group
    return found


def started(shard: GroupShard) -> dict[str, int]:
    return {name: group.generation for name, group in classic(shard).items()}


class ClassicGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.config = GroupConfig()
        self.shard = GroupShard(self.config)
        self.log: list[tuple[JournalRecord, int | None] | tuple[int, bool]] = []
        self.member_ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.unanswered: dict[int, tuple[str, Any]] = {}
        self.waiters = 0
        self.leaders: dict[int, str] = {}
        self.handed_out: dict[tuple[int, str], bytes] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.pending: dict[int, dict[tuple[str, int], int]] = {}

    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def configure(self, delay_ms: int, max_size: int) -> None:
        self.config = GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.shard = GroupShard(self.config)

    # --- driver ----------------------------------------------------------------------------------------------

    def submit(self, client: str, make: Any) -> Any:
        self.waiters += 1
        waiter = self.waiters
        command = make(waiter)
        self.unanswered[waiter] = (client, command)
        before = dump(self.shard)
        plan = self.shard.decide(command, self.now_ms)
        assert dump(self.shard) == before, "decide changed something"
        self.run(plan)
        return next((reply.value for reply in plan.replies if reply.waiter == waiter), None)

    def run(self, plan: Plan) -> None:
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if fact.durable:
                owner = getattr(fact, "producer", None)
                producer = owner[0] if owner else None
                self.log += ((record, producer) for record in self.shard.encode(fact))
        for waiter, value in plan.replies:
            client, command = self.unanswered.pop(waiter)
            self.heard(client, command, value)

    def heard(self, client: str, command: Any, value: Any) -> None:
        if isinstance(value, JoinResult):
            if value.error in (ErrorKind.NONE, ErrorKind.MEMBER_ID_REQUIRED):
                self.member_ids[client] = value.member_id
            if value.error is ErrorKind.NONE:
                self.generations[client] = value.generation
                if value.members and not value.skip_assignment:
                    leader = self.leaders.setdefault(value.generation, value.leader)
                    assert leader == value.leader, "two leaders were told to assign the same generation"
        elif isinstance(value, SyncResult) and value.error is ErrorKind.NONE:
            # A static member keeps its assignment under each of its ids, so look at the client, not at the id.
            first = self.handed_out.setdefault((command.generation, client), value.assignment)
            assert first == value.assignment, "R54: one generation, two assignments"

    # --- what clients do -------------------------------------------------------------------------------------

    @rule(
        client=st.sampled_from(CLIENTS),
        restarted=st.booleans(),
        metadata=st.sampled_from([b"x", b"y"]),
        v=st.sampled_from([3, 8, 9]),
    )
    def join(self, client: str, restarted: bool, metadata: bytes, v: int) -> None:
        member_id = "" if restarted else self.member_ids.get(client, "")
        self.submit(
            client,
            lambda waiter: JoinGroup(
                GROUP,
                member_id,
                f"{client}-{waiter}",
                "consumer",
                (Protocol("range", metadata),),
                10_000,
                30_000,
                instance_id=STATIC.get(client),
                member_id_required=v >= 4,
                supports_skip_assignment=v >= 9,
                waiter=waiter,
            ),
        )

    @rule(client=st.sampled_from(CLIENTS), late=st.booleans())
    def sync(self, client: str, late: bool) -> None:
        group = self.shard.table.groups.get(GROUP)
        members = tuple(group.members) if group is not None else ()
        generation = self.generations.get(client, 0) - late
        assignments = tuple((m, f"{m}@{self.waiters}".encode()) for m in members)
        member_id = self.member_ids.get(client, "")
        self.submit(
            client,
            lambda w: SyncGroup(GROUP, member_id, generation, assignments, STATIC.get(client), waiter=w),
        )

    @rule(client=st.sampled_from(CLIENTS))
    def beat(self, client: str) -> None:
        args = (GROUP, self.member_ids.get(client, ""), self.generations.get(client, -1), STATIC.get(client))
        self.submit(client, lambda w: Heartbeat(*args, waiter=w))

    @rule(client=st.sampled_from(CLIENTS))
    def leave(self, client: str) -> None:
        identity = MemberIdentity(self.member_ids.get(client, "nobody"), STATIC.get(client))
        self.submit(client, lambda w: LeaveGroup(GROUP, (identity,), waiter=w))

    @rule(client=st.sampled_from((*CLIENTS, "")), topic=st.sampled_from(TOPICS), offset=st.integers(0, 99))
    def commit(self, client: str, topic: str, offset: int) -> None:
        member_id, generation = self.member_ids.get(client, ""), self.generations.get(client, -1)
        group = classic(self.shard).get(GROUP)
        result = self.submit(
            client,
            lambda w: CommitOffsets(
                GROUP,
                (OffsetToCommit(topic, 0, offset),),
                member_id,
                generation,
                STATIC.get(client),
                waiter=w,
            ),
        )
        if result.error is ErrorKind.NONE:
            self.offsets[topic, 0] = offset
            for entries in self.pending.values():
                entries.pop((topic, 0), None)  # the younger commit wins over what is pending
            if group is not None and group.members:
                assert member_id in group.members and generation == group.generation, (
                    "R54: a zombie committed"
                )

    @rule(pid=st.sampled_from(PRODUCERS), topic=st.sampled_from(TOPICS), offset=st.integers(100, 199))
    def txn_commit(self, pid: int, topic: str, offset: int) -> None:
        self.submit(
            "", lambda w: TxnCommitOffsets(GROUP, pid, 0, (OffsetToCommit(topic, 0, offset),), waiter=w)
        )
        self.pending.setdefault(pid, {})[topic, 0] = offset

    @rule(pid=st.sampled_from(PRODUCERS), commit=st.booleans())
    def marker(self, pid: int, commit: bool) -> None:
        mine = self.pending.pop(pid, {})
        orders = {key: value for key, value in mine.items() if commit}
        present = {
            key: self.shard.table.offsets.pending.get(pid, {}).get(GROUP, {}).get(key) for key in orders
        }
        for key, offset in orders.items():
            held, current = present[key], self.shard.table.offsets.get(GROUP, *key)
            assert held is not None
            if current is None or current.order < held.order:
                self.offsets[key] = offset
        self.log.append((pid, commit))
        self.submit("", lambda w: TxnMarker(pid, 0, commit, waiter=w))

    @rule(topic=st.sampled_from(TOPICS))
    def topic_deleted(self, topic: str) -> None:
        self.submit("", lambda w: TopicDeleted(topic, waiter=w))
        self.offsets.pop((topic, 0), None)
        for entries in self.pending.values():
            entries.pop((topic, 0), None)

    @rule()
    def delete_group(self) -> None:
        (outcome,) = self.submit("", lambda w: DeleteGroups((GROUP,), waiter=w))
        if outcome.error is ErrorKind.NONE:
            self.offsets.clear()
            self.pending.clear()
            self.leaders.clear()  # a group of the same name counts anew, with members of new names
            self.handed_out.clear()

    @rule(ms=st.sampled_from([1, 500, 3_000, 9_999, 10_000, 31_000, 301_000, 8 * 86_400_000]))
    def pass_time(self, ms: int) -> None:
        """In one jump: many deadlines may be overdue together."""
        self.now_ms += ms
        for _ in range(20):
            at_ms = self.shard.next_deadline()
            if at_ms is None or at_ms > self.now_ms:
                break
            before = dump(self.shard)
            plan = self.shard.expire(self.now_ms)
            assert dump(self.shard) == before, "expire changed something"
            self.run(plan)
        else:
            raise AssertionError("expire never ends")
        if GROUP not in self.shard.table.groups:
            self.leaders.clear()
            self.handed_out.clear()
        # Retention has a test of its own; here only: what is gone is old, and what is left is what was committed.
        left = {(topic, p) for topic, p, _ in self.shard.table.offsets.of_group(GROUP)}
        assert left == self.offsets.keys() or ms > 7 * 86_400_000
        self.offsets = {key: offset for key, offset in self.offsets.items() if key in left}

    @precondition(lambda self: self.log)
    @rule()
    def coordinator_dies(self) -> None:
        old, generations = self.shard.table, started(self.shard)
        self.shard = GroupShard(self.config, wall_minus_now_ms=old.wall_minus_now_ms)
        for entry in self.log:
            if isinstance(entry[0], int):
                self.shard.replay_marker(entry[0], 0, bool(entry[1]), self.now_ms)
            elif entry[1] is None:
                self.shard.replay(entry[0], self.now_ms)
            else:
                self.shard.replay_transactional(entry[0], int(entry[1]), self.now_ms)
        new = self.shard.table
        assert new.offsets.pending == old.offsets.pending and new.offsets.committed == old.offsets.committed
        assert started(self.shard) == generations, "R54: a generation was forgotten"
        self.unanswered.clear()
        self.run(self.shard.loaded(self.now_ms))

    # --- what must always hold -------------------------------------------------------------------------------

    @invariant()
    def state_is_sound(self) -> None:
        self.shard.invariants()

    @invariant()
    def nobody_is_forgotten(self) -> None:
        members = [m for group in classic(self.shard).values() for m in group.members.values()]
        parked = {w for m in members for w in (m.join_waiter, m.sync_waiter) if w is not None}
        assert parked == set(self.unanswered)

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        topics = tuple((topic, (0,)) for topic in TOPICS)
        seen: Any = self.shard.decide(FetchOffsets(GROUP, topics, waiter=0), self.now_ms).replies[0].value
        assert {f.topic: f.offset for f in seen.partitions} == {
            t: self.offsets.get((t, 0), -1) for t in TOPICS
        }
        plan = self.shard.decide(FetchOffsets(GROUP, topics, require_stable=True, waiter=0), self.now_ms)
        stable: Any = plan.replies[0].value
        unstable = {f.topic for f in stable.partitions if f.error is ErrorKind.UNSTABLE_OFFSET_COMMIT}
        expected = {
            key[0] for groups in self.shard.table.offsets.pending.values() for key in groups.get(GROUP, {})
        }
        assert unstable == expected, "R50"


TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_offsets_that_are_only_pending_are_not_cleaned_up() -> None:
    """They bring their own deadline when they are committed (found by the machine above)."""
    state = ClassicGroups()
    state.configure(delay_ms=0, max_size=2)
    state.commit(client="a", offset=0, topic="u")
    state.txn_commit(offset=100, pid=5, topic="t")
    state.pass_time(ms=691_200_000)
    state.state_is_sound()
