"""KIP-848 groups with clients of both protocols, lost answers, dying coordinators and changing topics.

Always: no partition is in the hands of two members (R55), counted in the clients' own hands and not only in the
coordinator's books; epochs only grow (R54). In the end, when nothing is lost any more, the group settles: every
partition has one reader, loads differ by one at most, and who stayed lost nothing to who left.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from subscriptions import encode_subscription

from headrace.core.errors import ErrorKind
from headrace.core.plan import JournalRecord, Plan
from headrace.groups.commands import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MemberIdentity,
    Protocol,
    SyncGroup,
)
from headrace.groups.config import GroupConfig
from headrace.groups.consumer.commands import ConsumerGroupHeartbeat, TopicsChanged
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.shard import GroupShard
from headrace.groups.state import ClassicGroup
from headrace.groups.subscription import (
    MemberSubscription,
    encode_assignment,
    parse_assignment,
)
from headrace.groups.topics import TopicInfo

NEW = ("n1", "n2", "s1")
STATIC = {"s1": "instance-s"}
OLD = ("o1", "o2")
TIMEOUT_MS = 60_000
EAGER = (Protocol("range", encode_subscription(MemberSubscription(1, ("t", "u")))),)

Parts = frozenset[tuple[str, int]]


def topic_id(name: str) -> bytes:
    return (name * 16).encode()


class NewClient:
    """A consumer of the new protocol: `told` is the last assignment it heard of, `owned` what it really reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.lives = 0
        self.epoch: int | None = None
        self.owned: Parts = frozenset()
        self.told: Parts = frozenset()
        self.missed_answer = False

    def reset(self) -> None:
        self.epoch, self.owned, self.told = None, frozenset(), frozenset()
        self.missed_answer = False


class OldClient:
    """An eager classic consumer: it lets everything go before it rejoins."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: Parts = frozenset()
        self.joining: int | None = None
        self.syncing: int | None = None
        self.must_join = False

    def reset(self) -> None:
        self.member_id, self.generation, self.owned = "", -1, frozenset()
        self.joining = self.syncing = None
        self.must_join = False


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.config = GroupConfig(initial_rebalance_delay_ms=0)
        self.shard = GroupShard(self.config)
        self.journal: list[JournalRecord] = []
        self.new = {name: NewClient(name) for name in NEW}
        self.old = {name: OldClient(name) for name in OLD}
        self.waiters = 0
        self.replies: dict[int, Any] = {}
        self.topics: dict[str, int] = {}
        self.highest_epoch = 0
        self.change_topics(t=4, u=3)

    # --- driver ----------------------------------------------------------------------------------------------

    def submit(self, make: Any) -> int:
        self.waiters += 1
        waiter = self.waiters  # others may be drawn before we are back
        self.run(self.shard.decide(make(waiter), self.now_ms))
        return waiter

    def run(self, plan: Plan) -> None:
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if fact.durable:
                self.journal += self.shard.encode(fact)
        self.replies.update(plan.replies)
        self.hear_parked()

    def change_topics(self, **counts: int) -> None:
        self.topics = counts
        topics = {name: TopicInfo(topic_id(name), count) for name, count in counts.items()}
        topics["__consumer_offsets"] = TopicInfo(b"_" * 16, 50)
        self.submit(lambda w: TopicsChanged(topics, waiter=w))

    @property
    def group(self) -> Any:
        return self.shard.table.groups.get("g")

    # --- clients of the new protocol -------------------------------------------------------------------------

    def new_beat(
        self, client: NewClient, lost: bool = False, silent: bool = False, notices: bool = True
    ) -> None:
        """`notices`: it knows that an answer was lost. librdkafka does not when the answer was only late."""
        joining = client.epoch is None
        if joining and not client.member_id:
            client.lives += 1
            client.member_id = f"{client.name}-{client.lives}"
        owned = tuple((topic_id(t), (p,)) for t, p in sorted(client.owned))
        fields: dict[str, Any] = {"owned": owned}
        if joining:
            fields.update(rebalance_timeout_ms=TIMEOUT_MS, topics=("t", "u"), owned=())
        elif client.missed_answer:
            # It asks for everything again, and takes up no more than what it reports until it has heard.
            fields.update(rebalance_timeout_ms=TIMEOUT_MS, topics=("t", "u"))
            client.told = client.owned
        elif silent or client.owned != client.told:
            # While it is still taking what it was told, a report would read as if it had given that up: the protocol
            # can't tell the two apart. So it reports when it is done.
            fields["owned"] = None
        waiter = self.submit(
            lambda w: ConsumerGroupHeartbeat(
                "g",
                client.member_id,
                client.epoch or 0,
                instance_id=STATIC.get(client.name),
                **fields,
                waiter=w,
            )
        )
        answer = self.replies.pop(waiter)
        if lost:
            client.missed_answer = notices and not joining
            return
        if answer.error is not ErrorKind.NONE:
            fatal = answer.error not in (
                ErrorKind.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorKind.UNRELEASED_INSTANCE_ID,
            )
            if fatal:
                client.reset()
            return  # what it missed before it still misses: only an assignment tells it
        client.missed_answer = False
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = {topic_id(name): name for name in "tu"}
            client.told = frozenset((names[t], p) for t, parts in answer.assignment for p in parts)

    @rule(name=st.sampled_from(NEW), lost=st.booleans(), silent=st.booleans())
    def beat(self, name: str, lost: bool, silent: bool) -> None:
        self.new_beat(self.new[name], lost, silent)

    @rule(name=st.sampled_from(NEW))
    def late_answer(self, name: str) -> None:
        """The client has given up the answer when it comes, and only beats on."""
        if self.new[name].epoch is not None:
            self.new_beat(self.new[name], lost=True, silent=True, notices=False)

    @rule(name=st.sampled_from(NEW))
    def take(self, name: str) -> None:
        """Its callbacks are through: it has let go and taken up what it was told to, however long ago."""
        self.new[name].owned = self.new[name].told

    @rule(lost=st.booleans(), silent=st.booleans())
    def a_round(self, lost: bool, silent: bool) -> None:
        for client in self.new.values():
            if client.epoch is not None:
                self.new_beat(client, lost, silent)

    @rule()
    def everybody_takes(self) -> None:
        for name in NEW:
            self.take(name)

    @rule(name=st.sampled_from(NEW))
    def leave(self, name: str) -> None:
        client = self.new[name]
        if client.epoch is None:
            return
        epoch = -2 if name in STATIC else -1
        waiter = self.submit(
            lambda w: ConsumerGroupHeartbeat(
                "g", client.member_id, epoch, instance_id=STATIC.get(name), waiter=w
            )
        )
        self.replies.pop(waiter)
        client.reset()
        client.member_id = ""

    @rule(name=st.sampled_from(NEW))
    def crash(self, name: str) -> None:
        """It forgets everything, its id too; the coordinator finds out by its silence."""
        self.new[name].reset()
        self.new[name].member_id = ""

    # --- clients of the classic protocol ---------------------------------------------------------------------

    @rule(name=st.sampled_from(OLD))
    def old_join(self, name: str) -> None:
        client = self.old[name]
        if client.joining is not None or client.syncing is not None:
            return
        client.owned, client.must_join = frozenset(), False
        self.waiters += 1
        client.joining = self.waiters
        command = JoinGroup(
            "g",
            client.member_id,
            f"{name}-{self.waiters}",
            "consumer",
            EAGER,
            10_000,
            TIMEOUT_MS,
            member_id_required=False,
            waiter=self.waiters,
        )
        self.run(self.shard.decide(command, self.now_ms))

    @rule(name=st.sampled_from(OLD))
    def old_beat(self, name: str) -> None:
        client = self.old[name]
        if client.generation < 0 or client.joining or client.syncing or client.must_join:
            return
        waiter = self.submit(lambda w: Heartbeat("g", client.member_id, client.generation, waiter=w))
        self.old_error(client, self.replies.pop(waiter).error)

    @rule(name=st.sampled_from(OLD))
    def old_leave(self, name: str) -> None:
        client = self.old[name]
        if client.generation < 0 or client.joining or client.syncing:
            return
        waiter = self.submit(lambda w: LeaveGroup("g", (MemberIdentity(client.member_id),), waiter=w))
        self.replies.pop(waiter)
        client.reset()

    def old_error(self, client: OldClient, error: ErrorKind) -> None:
        if error in (ErrorKind.REBALANCE_IN_PROGRESS, ErrorKind.COORDINATOR_LOAD_IN_PROGRESS):
            client.must_join = True
        elif error is not ErrorKind.NONE:
            client.reset()

    def hear_parked(self) -> None:
        for client in self.old.values():
            if client.joining in self.replies:
                answer = self.replies.pop(client.joining)
                client.joining = None
                self.old_error(client, answer.error)
                if answer.error is ErrorKind.NONE:
                    client.member_id, client.generation = answer.member_id, answer.generation
                    self.old_sync(client, answer)
            elif client.syncing in self.replies:
                answer = self.replies.pop(client.syncing)
                client.syncing = None
                self.old_error(client, answer.error)
                if answer.error is ErrorKind.NONE:
                    parts = parse_assignment(answer.assignment)
                    assert parts is not None
                    # What its leader dealt out may be gone since: there is nothing to read of it.
                    client.owned = frozenset(
                        (t, p) for t, indexes in parts if t in self.topics for p in indexes
                    )

    def old_sync(self, client: OldClient, joined: Any) -> None:
        """A leader deals all partitions out in turn; in a consumer group nobody leads."""
        everything = [(t, p) for t, count in sorted(self.topics.items()) for p in range(count)]
        members = [m.member_id for m in joined.members]
        deal = [
            (member, encode_assignment(1, tuple((t, (p,)) for t, p in everything[i :: len(members)])))
            for i, member in enumerate(members)
        ]
        self.waiters += 1
        client.syncing = self.waiters
        command = SyncGroup("g", client.member_id, client.generation, tuple(deal), waiter=self.waiters)
        self.run(self.shard.decide(command, self.now_ms))

    # --- the world -------------------------------------------------------------------------------------------

    @rule(t=st.integers(0, 6), u=st.integers(0, 6))
    def topics_change(self, t: int, u: int) -> None:
        """Topics come, go and grow; they never shrink but by being deleted."""
        grown = {name: max(count, self.topics.get(name, 0)) for name, count in (("t", t), ("u", u)) if count}
        for (
            client
        ) in self.old.values():  # it knows topics by name only, and there is nothing to read any more
            client.owned = frozenset(part for part in client.owned if part[0] in grown)
        self.change_topics(**grown)

    @rule(ms=st.sampled_from([1_000, 9_000, 44_000, 61_000]))
    def pass_time(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.now_ms = max(at_ms, self.now_ms)
            self.run(self.shard.expire(self.now_ms))
        self.now_ms = end_ms

    @rule(told=st.booleans())
    def coordinator_dies(self, told: bool) -> None:
        old = self.group
        self.shard = GroupShard(self.config, wall_minus_now_ms=0)
        for record in self.journal:
            self.shard.replay(record, self.now_ms)
        if isinstance(old, ConsumerGroup):
            assert self.group is not None
            for name in ("epoch", "target_epoch", "members", "statics", "targets", "owners", "fingerprint"):
                assert getattr(self.group, name) == getattr(old, name), name
        for client in self.old.values():  # what was parked is answered by nobody: the connection breaks
            if client.joining is not None or client.syncing is not None:
                client.joining = client.syncing = None
                client.must_join = True
        self.run(self.shard.loaded(self.now_ms))
        if told:
            self.change_topics(**self.topics)

    # --- what must always hold -------------------------------------------------------------------------------

    @invariant()
    def books_are_sound(self) -> None:
        self.shard.invariants()

    def clients(self) -> list[NewClient | OldClient]:
        return [*self.new.values(), *self.old.values()]

    @invariant()
    def r55_no_partition_is_in_two_hands(self) -> None:
        members = self.group.members if self.group is not None else {}
        clients = [c for c in self.clients() if c.member_id in members]
        seen: dict[tuple[str, int], str] = {}
        for client in clients:
            for part in client.owned:
                assert part not in seen, f"R55: {part} is read by {seen[part]} and {client.name}"
                seen[part] = client.name
        if isinstance(self.group, ConsumerGroup):
            for client in clients:
                held = {(bytes(t)[:1].decode(), p) for t, p in members[client.member_id].held}
                assert client.owned <= held, f"{client.name} reads what the coordinator thinks is free"

    @invariant()
    def r54_epochs_only_grow(self) -> None:
        group = self.group
        if group is None:
            self.highest_epoch = 0
            return
        epoch = group.generation if isinstance(group, ClassicGroup) else group.epoch
        assert epoch >= self.highest_epoch
        self.highest_epoch = epoch

    # --- and in the end --------------------------------------------------------------------------------------

    @precondition(lambda self: isinstance(self.group, ConsumerGroup))
    @rule()
    def settle(self) -> None:
        self.quiet_rounds()
        self.check_settled()

    @precondition(lambda self: isinstance(self.group, ConsumerGroup))
    @rule(name=st.sampled_from(("n1", "n2")))
    def who_stays_loses_nothing(self, name: str) -> None:
        self.quiet_rounds()
        if not isinstance(self.group, ConsumerGroup) or self.new[name].epoch is None:
            return
        before = {c.name: c.owned for c in self.new.values() if c.name != name and c.epoch is not None}
        self.leave(name)
        if not isinstance(self.group, ConsumerGroup):
            return
        for _ in range(8):
            for other in before:
                self.new_beat(self.new[other])
                assert before[other] <= self.new[other].told, "an untouched member was revoked"
                self.take(other)

    def quiet_rounds(self) -> None:
        """Everybody who is there heartbeats, nothing is lost, and whoever is not there is found out."""
        self.change_topics(**self.topics)
        for _ in range(12):
            self.pass_time(5_000)
            for client in self.new.values():
                if client.epoch is not None:
                    self.new_beat(client)
                    self.take(client.name)
            for old in self.old.values():
                if old.must_join:
                    self.old_join(old.name)
                else:
                    self.old_beat(old.name)

    def check_settled(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return  # the last of the new clients had crashed
        live = [c for c in self.clients() if c.member_id in group.members]
        assert len(live) == len(group.members), "a member that nobody is"
        assert group.state_name == ("Stable" if live else "Empty")
        everything = {(t, p) for t, count in self.topics.items() for p in range(count)}
        assert {part for c in live for part in c.owned} == (everything if live else set())
        sizes = [len(c.owned) for c in live]
        assert not sizes or max(sizes) - min(sizes) <= 1


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
